"""``tiered retain``: what retention takes, queue by queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from tiered.archive.log.maintenance import OwnKeys, Task
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.retain import check_share
from tiered.archive.rewrite.retention import Retention, look, row, said_of_ahead
from tiered.cli.access import reading
from tiered.cli.options import JsonFlag, output
from tiered.cli.writing import WriterFlags, do_all, tell, with_writer_flags
from tiered.clock import Clock, SystemClock
from tiered.daemon.brokertopics import BrokersTopics
from tiered.settings import Settings
from tiered.sink.required import required_sinks
from tiered.text.human import Kind, size
from tiered.text.output import Column

COLUMNS = (
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("generation", kind=Kind.COUNT, less=3),
    Column("min_offset", "from", Kind.COUNT, less=1),
    Column("first_offset", "begins at", Kind.COUNT),
    Column("messages", kind=Kind.COUNT),
    Column("bytes", kind=Kind.SIZE),
    Column("runs", kind=Kind.COUNT, less=4),
    Column("closed_parts", "closed parts", Kind.COUNT, less=5),
    Column("newest", kind=Kind.TIME, less=2),
    Column("reason"),
    Column("kept_by", "stopped by hold", less=1),
)


@with_writer_flags
def command(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be trimmed; nothing is written.")
    ] = False,
    max_trim_percent: Annotated[
        int | None,
        typer.Option(
            "--max-trim-percent",
            metavar="N",
            min=0,
            max=100,
            help="Let this run trim up to N % of the archive.",
        ),
    ] = None,
    given: WriterFlags,
    json: JsonFlag = False,
) -> int:
    """Trim queues to what section [retain] of the settings and the legal holds keep.

    Messages that were trimmed are no longer served; their objects are deleted later, by collection. A daemon does this by
    itself; without --dry-run this opens an epoch of its own, as a daemon does.
    """
    out = output(json)
    if not dry_run:
        return tell(out, do_all(out, given, partial(_tasks, max_trim_percent)), json=json)
    sets = [*(given.sets or ()), *([f"state.directory={given.state}"] if given.state is not None else ())]
    with reading(out, given.config, given.archive, sets, store=given.store, whole=True) as opened:
        settings, log = opened.loaded.settings.retain, opened.view.log
        broker = BrokersTopics(opened.loaded.settings, log.identity.archive_id, notes=False)
        required = required_sinks(log.provider, log.keys, log.identity.archive_id)
        run = look(log, opened.view.state, settings, SystemClock(), broker, required=required)
        plan = None if run is None else run.plan
        if not opened.loaded.settings.source.store_dir and (
            settings.topic_attributes or settings.deleted_topic_ms
        ):
            out.note(
                "note: source.store_dir is not set: what the broker says of its topics is not known here"
            )
        out.table(COLUMNS, (tuple(row(trim).values()) for trim in (() if plan is None else plan.trims)))
        if plan is None:
            out.note(
                "every message is kept for ever: section [retain] sets no limit, and neither does the broker"
            )
            return 0
        for pattern in plan.unmatched:
            out.note(f"note: no topic of the archive fits {pattern}")
        if plan.ahead:
            out.note(f"note: {said_of_ahead(plan.ahead)}")
        out.note(f"{size(plan.trimmed_bytes)} of {size(plan.live_bytes)} would be trimmed")
        check_share(plan, settings.max_trim_percent if max_trim_percent is None else max_trim_percent)
        return 0


def _tasks(
    max_trim_percent: int | None,
    log: CommitLog,
    clock: Clock,
    settings: Settings,
    own_keys: OwnKeys,
    weak: Sequence[str],
) -> tuple[Task, ...]:
    broker = BrokersTopics(settings, log.reader.identity.archive_id, notes=False)
    required = required_sinks(log.reader.provider, log.reader.keys, log.reader.identity.archive_id)
    return (Retention(log, clock, lambda: settings.retain, broker, max_trim_percent, required),)
