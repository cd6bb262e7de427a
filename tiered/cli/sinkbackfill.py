"""``tiered sink backfill``: how far a Spark job is that gives a sink its history, and its end before its time."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.cli.sinkorders import opened_orders
from tiered.clock import SystemClock
from tiered.errors import Conflict, Invalid
from tiered.sink.backfill import BackfillBook
from tiered.sink.book import StoredSink
from tiered.sink.ending import end_backfill
from tiered.text.human import Kind
from tiered.text.output import Column

COLUMNS = (
    Column("sink"),
    Column("state"),
    Column("parts", kind=Kind.COUNT),
    Column("parts_done", "done", Kind.COUNT),
    Column("planned", "messages", Kind.COUNT),
    Column("given", kind=Kind.COUNT),
    Column("missing", kind=Kind.COUNT),
    Column("commit", kind=Kind.COUNT, less=1),
)


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the sink is called.")],
    end: Annotated[
        bool,
        typer.Option(
            "--end", help="End it now: the sink goes on by itself, from what it was given. Its tasks fail."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be ended; nothing is changed.")
    ] = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """How far ``tiered spark backfill`` is, which gives a sink its history while the daemon's sink waits. Where that job will
    not be run again, ``--end`` lets the sink go on: exactly, where the destination keeps the position; else what the parts that
    were not done had given comes again. It speaks to the destination, so secrets are looked up here."""
    out = output(json)
    if dry_run and not end:
        raise Invalid("there is nothing to be changed", option="--dry-run", hint="it goes with --end")
    with opened_orders(out, config, archive, sets) as opened:
        backfills = BackfillBook(opened.provider, opened.keys, opened.archive_id)
        stored = opened.book.sink(name)
        if end and stored.under_way is None:
            raise Conflict("no backfill of this sink is under way", sink=name)
        if end and not dry_run:
            place = stored.place(opened.archive_id, opened.keys.cluster, opened.keys.broker)
            stored = end_backfill(opened.book, backfills, stored, place, SystemClock(), os.urandom)
        row = _row(backfills, stored)
    out.table(COLUMNS, [row])
    if end:
        out.note("nothing was changed: --dry-run" if dry_run else "ended: the sink goes on by itself")


def _row(backfills: BackfillBook, stored: StoredSink) -> tuple[object, ...]:
    backfill = stored.backfill
    if backfill is None:
        return stored.name, "none", None, None, None, None, None, None
    plan = backfills.plan(backfill.backfill_id)
    state = "given" if stored.given else "asked for" if plan is None else "under way"
    if plan is None:
        return stored.name, state, None, None, None, None, None, None
    done = backfills.done(plan).values()
    given, missing = sum(each.messages for each in done), sum(each.lost for each in done)
    return stored.name, state, plan.parts, len(done), plan.messages, given, missing, plan.commit
