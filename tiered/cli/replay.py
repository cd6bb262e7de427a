"""``tiered replay``: cold history for a POP group, and what is owed to whom."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tiered.archive.state.scope import Scope
from tiered.cli.absent import absent_topic
from tiered.cli.options import (
    ArchiveUrl,
    ConfigFile,
    DaemonState,
    JsonFlag,
    SetValues,
    StoreDir,
    output,
    settings_from,
)
from tiered.clock import SystemClock
from tiered.daemon.checks import require
from tiered.daemon.config import Loaded
from tiered.errors import Invalid, NotFound, Refused, Unavailable
from tiered.metrics import Metrics
from tiered.replay import inbox, roster
from tiered.replay.base import Books
from tiered.replay.broker import broker_of, check_suitable
from tiered.replay.inbox import Asked, AskedFor
from tiered.replay.ledger import read_books
from tiered.replay.report import rows, summary
from tiered.replay.running import DIRECTORY
from tiered.settings import Settings
from tiered.store import MessageStore
from tiered.text.human import Kind
from tiered.text.output import Column, Output
from tiered.text.values import moment_ms

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})

COLUMNS = (
    Column("number", less=4),
    Column("group"),
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("start", kind=Kind.COUNT),
    Column("end", kind=Kind.COUNT),
    Column("state"),
    Column("left", kind=Kind.COUNT),
    Column("sent", kind=Kind.COUNT, less=1),
    Column("filtered", kind=Kind.COUNT, less=3),
    Column("holes", kind=Kind.COUNT, less=2),
    Column("hole_ranges", "in no archive", Kind.RANGES, less=5),
    Column("refused", kind=Kind.COUNT, less=3),
    Column("reason", less=3),
    Column("noticed_ms", "noticed", Kind.TIME, less=2),
)

GROUP_COLUMNS = (
    Column("group"),
    Column("watched"),
    Column("why", "why not"),
    Column("topics", kind=Kind.COUNT, less=2),
    Column("watched_topics", "of them watched", Kind.COUNT, less=2),
    Column("skipped", "skipped unwatched", Kind.COUNT, less=1),
)


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    group: Annotated[str | None, typer.Option("--group", help="The POP group to send to.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="The topic.")] = None,
    from_time: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Store time: ms since 1970, or ISO 8601.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="Up to this time; default: the group's position, or the end for a new group.",
        ),
    ] = None,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int | None:
    """Send archived messages of a topic to a POP group's retry topic, from a time on: from now on the daemon owes them and
    sends them, a window at a time. ``tiered replay status`` shows how far it is.
    """
    if context.invoked_subcommand is not None:
        return None
    missing = [f for f, v in (("--group", group), ("--topic", topic), ("--from", from_time)) if not v]
    if group is None or topic is None or from_time is None or missing:
        raise Invalid(
            "replay needs --group, --topic and --from", missing=", ".join(missing),
            hint="for example: tiered replay --group Billing --topic Orders --from 2026-01-31T00:00:00Z",
        )  # fmt: skip
    start_ms, end_ms = moment_ms("--from", from_time), None if to_time is None else moment_ms("--to", to_time)
    if end_ms is not None and end_ms <= start_ms:
        raise Invalid("--to is not after --from", found=f"{to_time} <= {from_time}", hint="swap them")
    out = output(json)
    loaded, directory = _replay_directory(out, config, archive, store, state, sets)
    with ExitStack() as stack:
        archived = MessageStore.open(
            loaded.settings, SystemClock(), Metrics(), stack=stack, scope=Scope.topic(topic)
        )
        ends = _ends(out, loaded.settings, group, topic, needed=end_ms is None)
        ranges = _ranges(archived, topic, start_ms, end_ms, ends or {})
    if not ranges:
        raise NotFound(
            "no message of this topic is archived in this time range", topic=topic,
            hint="tiered topics lists the archived topics", start=from_time, end=to_time or "where the group stands",
        )  # fmt: skip
    now = SystemClock().now_ms()
    request = AskedFor(f"{now:013d}-{os.urandom(4).hex()}", group, topic, now, tuple(ranges))
    inbox.leave(directory, request)
    out.record(
        {
            "request": request.name, "group": group, "topic": topic, "messages": request.messages,
            "queues": len(ranges), "ranges": [[r.queue_id, r.start, r.end] for r in ranges] if json
            else "; ".join(f"queue {r.queue_id} [{r.start:,}, {r.end:,})" for r in ranges),
            "broker_answered": ends is not None,
        },
        kinds={"messages": Kind.COUNT},
    )  # fmt: skip
    if not loaded.settings.replay.enabled:
        out.note("replay.enabled is not set here: the daemon sends nothing until it runs with it")
    return 0


@app.command("status")
def status(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Each group of the broker, whether it is watched and why not; what is owed, sent and lost; what groups that want order
    were skipped over; requests not taken yet.
    """
    out = output(json)
    loaded, directory = _replay_directory(out, config, archive, store, state, sets)
    books = read_books(directory) or Books()
    waiting, wrong = inbox.waiting(directory)
    for error in wrong:
        out.note(str(error))
    debts = rows(books.debts.values())
    looked_ms, groups = roster.read(directory)
    if not loaded.settings.replay.enabled:
        out.note("replay.enabled is not set here: no group is watched unless the daemon's settings say so")
    if looked_ms is None:
        out.note("the daemon has not looked at any group yet: nothing is known of which are watched")
    if json:
        out.record(
            {
                **summary(books),
                "looked_ms": looked_ms,
                "watched": [asdict(row) for row in groups],
                "debts": debts,
                "groups": [
                    {"group": g, "topic": t, "debts": n.debts, "sent": n.sent, "filtered": n.filtered,
                     "holes": n.holes, "refused": n.refused} for (g, t), n in sorted(books.totals().items())
                ],
                "waiting": [{"request": r.name, "group": r.group, "topic": r.topic, "messages": r.messages} for r in waiting],
            }
        )  # fmt: skip
        return
    if groups:
        out.table(GROUP_COLUMNS, [[getattr(row, column.name) for column in GROUP_COLUMNS] for row in groups])
    if debts:
        out.table(COLUMNS, [[row[c.name] for c in COLUMNS] for row in debts])
    told = summary(books)
    fifo = told.pop("fifo_skipped")
    told["fifo_ranges"] = len(fifo) if isinstance(fifo, list) else 0
    told["requests_waiting"] = len(waiting)
    out.record({"looked": looked_ms, **told}, kinds={"looked": Kind.TIME})


def _replay_directory(
    out: Output,
    config: Path | None,
    archive: str | None,
    store: str | None,
    state: str | None,
    sets: list[str] | None,
) -> tuple[Loaded, Path]:
    loaded = settings_from(config, store, archive, sets, out=out)
    place = state or loaded.settings.state_directory
    if not place:
        require(loaded, "state.directory")
    path = Path(place)
    if not path.is_dir():
        raise NotFound(
            "the daemon's state directory does not exist", path=place,
            hint="name it with --state, or the broker's store with --store; `tiered run` creates it",
        )  # fmt: skip
    return loaded, path / DIRECTORY


def _ends(out: Output, settings: Settings, group: str, topic: str, *, needed: bool) -> dict[int, int] | None:
    """Per queue where the group stands; a group that is new is owed everything the broker has got.

    ``Refused`` if the group wants order. ``needed``: the ends must be known; else one that does not answer is no error, and
    ``None``.
    """
    broker = broker_of(settings.replay, SystemClock())
    try:
        facts = broker.facts()
        check_suitable(facts, settings.source.cluster, settings.source.broker)
        if broker.is_ordered(group):
            raise Refused(
                "this group consumes in order and never reads a retry topic", group=group,
                hint="read them with `tiered read`, or replay to a group that does not consume in order",
            )  # fmt: skip
        bounds = broker.bounds(topic) or {}
        offsets = broker.offsets()
    except Unavailable as error:
        if not needed:
            out.note(
                f"whether this group consumes in order is not known now: the daemon asks before it sends ({error})"
            )
            return None
        error.hint = f"{error.hint}; or say with --to where to end"
        raise
    finally:
        broker.client.close()
    stands = dict(offsets.committed.get((group, topic), {}))
    if facts.kv:
        stands |= offsets.pulled.get((group, topic), {})
    if not stands and needed:
        out.note("this group has no position in the topic yet: what the broker still has is sent, too")
    return {queue: stands.get(queue, bound[1]) for queue, bound in bounds.items()}


def _ranges(
    archived: MessageStore, topic: str, start_ms: int, end_ms: int | None, ends: dict[int, int]
) -> list[Asked]:
    """What is owed of each queue."""
    queues = [queue.queue.queue_id for queue in archived.queues(topic)]
    if not queues:
        raise absent_topic(topic, archived.topics(system=True))
    found = []
    for queue_id in queues:
        start = archived.offset_by_time(topic, queue_id, start_ms)
        last = archived.max_offset(topic, queue_id) or 0
        end = (
            archived.offset_by_time(topic, queue_id, end_ms)
            if end_ms is not None
            else ends.get(queue_id, last)
        )
        if start is not None and end is not None and start < min(end, last):
            found.append(Asked(queue_id, start, min(end, last)))
    return found
