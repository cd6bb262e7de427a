"""``tiered sink``: destinations that the log is replicated to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tiered.archive.state.sinks import sinks as known_sinks
from tiered.cli import sinkapply, sinkbackfill, sinkoffsets
from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, JsonFlag, SetValues, output
from tiered.cli.sinkorders import opened_orders
from tiered.cli.sinkverify import verify_command
from tiered.cli.status import ask_daemon
from tiered.clock import SystemClock
from tiered.errors import Invalid
from tiered.settings import Settings
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.kinds import changed_options, find_kind
from tiered.sink.order import SinkOrder
from tiered.text.human import Kind
from tiered.text.output import Column, Output
from tiered.text.values import moment_ms

ORDERED = (
    Column("sink"),
    Column("kind"),
    Column("topics"),
    Column("exclude", less=1),
    Column("required"),
    Column("from_start", "from start", less=1),
    Column("in_order", "in order", less=1),
    Column("paused"),
    Column("revision", less=1),
    Column("created", kind=Kind.TIME, less=1),
    Column("options", flexible=True, less=1),
)
STATED = (
    Column("sink"),
    Column("phase"),
    Column("position", kind=Kind.COUNT),
    Column("lag_bytes", "lag", kind=Kind.SIZE),
    Column("stale_seconds", "stale", kind=Kind.SECONDS),
    Column("backlog_messages", "backlog", kind=Kind.COUNT),
    Column("eta_seconds", "left", kind=Kind.SECONDS),
    Column("dead_letters", "dead letters", kind=Kind.COUNT, less=1),
    Column("left_out", "left out", kind=Kind.COUNT, less=1),
    Column("came_back", "came back", kind=Kind.COUNT, less=1),
    Column("lost_messages", "missing", kind=Kind.COUNT, less=1),
    Column("lost_at_source", "lost at source", kind=Kind.COUNT, less=1),
    Column("archived_position", "in the archive", kind=Kind.COUNT, less=1),
    Column("why", flexible=True),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the sink is called.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; nothing is changed.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="The kind's own; secrets as env:NAME or file:PATH."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="PATTERN", help="Topics given: a name, or with * and ?; all but RocketMQ's own."
    ),
]
Excluded = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="And of these the ones that are not.")
]

app = typer.Typer(no_args_is_help=True)
app.command("verify")(verify_command)


app.command("apply")(sinkapply.command)
app.command("offsets")(sinkoffsets.command)
app.command("backfill")(sinkbackfill.command)


@app.callback()
def _group() -> None:
    """Destinations that the log is replicated to, by the daemon that archives it. Which there are stands in the bucket, for
    every host; a daemon takes changes up by itself."""


@app.command("add")
def add_command(
    name: Name,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="What it is: kafka, file, http, rocketmq, …")
    ],
    options: Options = None,
    topics: Topics = None,
    exclude: Excluded = None,
    required: Annotated[bool, typer.Option("--required", help="Retention waits for it.")] = False,
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Only what is archived from now on, instead of everything.")
    ] = False,
    in_order: Annotated[
        bool, typer.Option("--in-order", help="All messages in the broker's order, not just each queue's.")
    ] = False,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Replicate the log to a destination, from now on. Secrets are named and never put into the bucket; they are looked up
    where the daemon runs, and here, where the destination is asked whether it can work."""
    out = output(json)
    order = SinkOrder(
        name,
        kind,
        _pairs(options or []),
        tuple(topics or ["*"]),
        tuple(exclude or ()),
        required,
        not from_now,
        in_order,
    )
    find_kind(kind).check(order)
    with opened_orders(out, config, archive, sets) as place:
        now_ms = SystemClock().now_ms()
        if dry_run:
            place.book.refuse_taken(name)
            made = StoredSink(b"", order, made_ms=now_ms, created_ms=now_ms)
        else:
            made = place.book.add(order, now_ms, os.urandom)
        out.table(ORDERED, [_ordered(made)])
        _said(out, dry_run, "added: a daemon takes it up within sinks.look_ms")


@app.command("list")
def list_command(
    config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """Every sink as it is ordered."""
    out = output(json)
    with opened_orders(out, config, archive, sets) as place:
        found = place.book.sinks()
        out.table(ORDERED, map(_ordered, found))
        if not found:
            out.note("there is no sink: tiered sink add")


@app.command("status")
def status_command(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One of them; all.")] = "",
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """How far each sink is: as the daemon beside this state directory says, and as the archive has it. Exit code 1 if one
    stands still."""
    out = output(json)
    with reading(out, config, archive, sets, whole=True) as opened:
        settings, view = opened.loaded.settings, opened.view
        book = SinkBook(view.log.provider, view.keys, view.identity.archive_id)
        stored = [book.sink(name)] if name else book.sinks()
        archived = {known.sink_id: known.physical for known in known_sinks(view.state.view)}
        running = _running(settings, state)
        rows = [_stated(each, archived.get(each.sink_id), running) for each in stored]
    out.table(STATED, [[row[column.name] for column in STATED] for row in rows])
    if running is None:
        out.note(
            "no daemon answers here: how its sinks are is known where it runs, beside its state directory (--state)"
        )
    return 1 if any(row["phase"] in ("away", "waiting", "stopped") for row in rows) else 0


@app.command("topics")
def topics_command(
    name: Name,
    topics: Topics = None,
    exclude: Excluded = None,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Give other topics from now on, in place of those of before. What is new among them comes from where a new sink begins."""
    if not topics and exclude is None:
        raise Invalid("nothing is to be changed", option="--topic", hint="give --topic or --exclude")

    def changed(old: StoredSink) -> dict[str, Any]:
        order = replace(
            old.order,
            topics=tuple(topics) if topics else old.order.topics,
            exclude=old.order.exclude
            if exclude is None
            else tuple(pattern for pattern in exclude if pattern),
        )
        return {"order": order}

    _change(output(json), name, changed, dry_run, config, archive, sets, "other topics are given")


@app.command("set")
def set_command(
    name: Name,
    options: Options = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="An option that gets its default again."),
    ] = None,
    required: Annotated[
        bool | None, typer.Option("--required/--not-required", help="Whether retention waits for it.")
    ] = None,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Change options of a sink that goes on where it is. What is written is flushed with those of before; options that say
    where messages lie last as long as the sink. The destination is asked, as when a sink is added."""
    if not options and not without and required is None:
        raise Invalid(
            "nothing is to be changed", option="--option", hint="give --option, --without or --required"
        )
    given = _pairs(options or [])

    def changed(old: StoredSink) -> dict[str, Any]:
        order = changed_options(old.order, given, without or ())
        return {"order": order if required is None else replace(order, required=required)}

    _change(output(json), name, changed, dry_run, config, archive, sets, "changed")


@app.command("pause")
def pause_command(
    name: Name,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Give nothing until it is resumed; what comes meanwhile stays in the archive. A required sink keeps retention waiting."""
    _change(output(json), name, lambda old: {"paused": True}, dry_run, config, archive, sets, "paused")


@app.command("resume")
def resume_command(
    name: Name,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Go on where it was paused, or try again where it has stopped."""
    _change(output(json), name, lambda old: {"paused": False}, dry_run, config, archive, sets, "goes on")


@app.command("rewind-to")
def rewind_command(
    name: Name,
    where: Annotated[
        str, typer.Argument(metavar="TIME|start", help="A store time, or the archive's beginning.")
    ],
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Give everything again from a time on; some messages before it, as many as were archived together, come too. Destinations
    get messages that they have had."""
    time_ms = None if where == "start" else moment_ms("TIME", where)
    told = {"rewind": True, "rewind_ms": time_ms}
    _change(output(json), name, lambda old: told, dry_run, config, archive, sets, f"begins again at {where}")


@app.command("remove")
def remove_command(
    name: Name,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Replicate to it no longer, and forget how far it was. The destination stays as it is."""
    out = output(json)
    with opened_orders(out, config, archive, sets) as place:
        found = place.book.sink(name) if dry_run else place.book.remove(name)
        out.table(ORDERED, [_ordered(found)])
        _said(out, dry_run, "removed")


def _change(
    out: Output,
    name: str,
    wanted: Any,
    dry_run: bool,
    config: Path | None,
    archive: str | None,
    sets: list[str] | None,
    said: str,
) -> None:
    with opened_orders(out, config, archive, sets) as place:
        told = wanted(place.book.sink(name))
        if dry_run:
            old = place.book.sink(name)
            made = replace(old, order=told.get("order", old.order), paused=told.get("paused", old.paused))
        else:
            made = place.book.change(name, SystemClock().now_ms(), os.urandom, **told)
        out.table(ORDERED, [_ordered(made)])
        _said(out, dry_run, said)


def _said(out: Output, dry_run: bool, text: str) -> None:
    out.note("nothing was changed: --dry-run" if dry_run else text)


def _running(settings: Settings, state: str | None) -> dict[str, dict[str, Any]] | None:
    """What the daemon says of each sink, by name; ``None`` if none answers."""
    where = state or settings.state_directory
    found: Any = ask_daemon(Path(where), settings) if where else None
    if found is None or not isinstance(found.get("sinks"), dict):
        return None
    return {row["sink"]: row for row in found["sinks"]["sinks"]}


def _ordered(stored: StoredSink) -> tuple[object, ...]:
    order = stored.order
    return (
        order.name, order.kind, " ".join(order.topics), " ".join(order.exclude), order.required, order.from_start,
        order.in_order, stored.paused, stored.revision, stored.created_ms,
        " ".join(f"{name}={value}" for name, value in sorted(order.options.items())),
    )  # fmt: skip


def _stated(
    stored: StoredSink, archived: int | None, running: dict[str, dict[str, Any]] | None
) -> dict[str, Any]:
    """``running``: what the daemon says; ``None``: none answers here, and one may run elsewhere."""
    row: dict[str, Any] = {column.name: None for column in STATED}
    silent = "unknown here" if running is None else "not running"
    row |= (running or {}).get(stored.name, {"phase": "paused" if stored.paused else silent})
    return {**row, "sink": stored.name, "archived_position": archived}


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise Invalid("--option needs NAME=VALUE", found=name, hint="for example url=file:///data/out")
        pairs[name.strip()] = value
    return pairs
