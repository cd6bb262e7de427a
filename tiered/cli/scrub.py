"""``tiered scrub``: what the walks over the bucket found, and a walk now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tiered.allocator import keep_freed_memory
from tiered.archive.care.look import Look, look
from tiered.archive.care.notes import Notebook, Notes, figures_of, read_notes, said_of_notes, shown
from tiered.archive.log.maintenance import OwnKeys, Task
from tiered.archive.log.writer import CommitLog
from tiered.cli.access import OpenedArchive, archive_settings, put_again, reading
from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, JsonFlag, SetValues, StoreDir, output
from tiered.cli.writing import TakeOver, WriterFlags, do_all, tell
from tiered.clock import Clock, SystemClock
from tiered.daemon.maintain import outlooks
from tiered.daemon.maintenance import mending
from tiered.errors import Invalid, TieredError
from tiered.settings import Settings
from tiered.source.open import open_source
from tiered.text.human import Kind
from tiered.text.output import Column, Output

REMEDY = (
    "readers refuse these bytes and read all others; a daemon, or --repair, mends what a copy, the broker's commitlog or an "
    "object that is not collected yet still has; tiered repair mends commits; restore what no copy has from the bucket's "
    "versions: a key that is sound again is no longer listed after the next walk"
)
REMEDIES = (Column("key"), Column("how"), Column("why", flexible=True))
COLUMNS = (
    Column("what"),
    Column("key"),
    Column("position", kind=Kind.COUNT, less=1),
    Column("first_seen_ms", "first seen", kind=Kind.TIME, less=2),
    Column("detail", flexible=True),
)


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    once: Annotated[
        bool, typer.Option("--once", help="Walk over the bucket now; a daemon may run beside it.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="With --once: read every byte, and not only the listing.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="With --once: mend what is found; no daemon may run here."),
    ] = False,
    copy: Annotated[
        str | None, typer.Option("--copy", metavar="URL", help="The copy to mend from (scrub.copy_url).")
    ] = None,
    store: StoreDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --once: say what would be looked at, or mended.")
    ] = False,
    take_over: TakeOver = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """What the daemon's walks over the bucket found and how far they are; with --once, what a walk finds now.

    A walk compares presence and length of everything in the bucket with the log; --deep compares every byte with its checksum.
    It writes nothing. --repair, in an epoch of its own, puts missing keys again from a copy of the archive, and writes damaged
    objects anew from the copy, the broker's commitlog (source.store_dir) or objects that they were made of and that are not
    collected yet. Of what holds no messages a copy's bytes are put over damaged ones. Exit code 1 while anything is damaged
    or missing.
    """
    out = output(json)
    if (deep or dry_run or repair) and not once:
        raise Invalid(
            "--deep, --dry-run and --repair say how --once walks", hint="tiered scrub --once --deep"
        )
    if repair and not dry_run:
        put_again(out, archive_settings(out, config, archive, sets, store).settings, copy)
    with reading(out, config, archive, sets, whole=once) as opened:
        if not once:
            return _kept(out, opened, state, json=json)
        if dry_run and not repair:
            return _foretell(out, opened, deep=deep)
        keep_freed_memory()  # requests of megabytes come and go
        found = _walk(out, opened, deep=deep)
    if repair and found.damaged:
        given = WriterFlags(config, archive, store, state, take_over, sets)
        return _repair(out, given, copy, found.notes, dry_run=dry_run, json=json)
    verdict: dict[str, object] = {
        "verdict": "DAMAGED" if found.damaged else "sound",
        "deep": deep,
        **found.figures,
    }
    _tell(out, verdict, shown(found.notes, opened.view.keys.root, found.damaged), json=json)
    return TieredError.exit_code if found.damaged else 0


def _repair(
    out: Output, given: WriterFlags, copy: str | None, found: Notes, *, dry_run: bool, json: bool
) -> int:
    """Mend what was found, or say what would be done."""

    def tasks(
        log: CommitLog, clock: Clock, settings: Settings, own_keys: OwnKeys, weak: Sequence[str]
    ) -> tuple[Task, ...]:
        named = replace(settings.scrub, copy_url=copy or settings.scrub.copy_url)
        notebook = Notebook(None, found.archive_id)
        notebook.notes = found
        named_log = settings.commitlog_directories
        local = open_source(settings.source, settings.hold, clock) if named_log else None
        return (mending(log, clock, replace(settings, scrub=named), own_keys, notebook, local),)

    if not dry_run:
        return tell(out, do_all(out, given, tasks), json=json)
    (report,) = outlooks(given.load().settings, SystemClock(), tasks)
    rows = [[row[column.name] for column in REMEDIES] for row in report.outlook.rows]
    out.table(REMEDIES, rows, title=None if json else "what a repair would do")
    return TieredError.exit_code


def _walk(out: Output, opened: OpenedArchive, *, deep: bool) -> Look:
    """One walk; as much of it as the settings let it read in a second."""
    clock, rate = SystemClock(), opened.loaded.settings.scrub.max_bytes_per_second
    total = sum(item.length for item in opened.view.state.objects() if item.references) if deep else 0
    with out.progress("reading bytes" if deep else "listing keys", total) as advance:
        return look(
            opened.view.log, lambda: opened.reader.follow().state, clock,
            deep=deep, bytes_per_second=rate, progress=advance,
        )  # fmt: skip


def _foretell(out: Output, opened: OpenedArchive, *, deep: bool) -> int:
    needed = [item.length for item in opened.view.state.objects() if item.references]
    head = opened.view.head
    told: dict[str, object] = {
        "commits": 0 if head is None else head.seq + 1 - head.floor,
        "objects": len(needed),
        "bytes_to_read": sum(needed) if deep else 0,
    }
    out.record(told, kinds={"bytes_to_read": Kind.SIZE})
    return 0


def _kept(out: Output, opened: OpenedArchive, state: str | None, *, json: bool) -> int:
    """What a daemon wrote down."""
    settings, identity = opened.loaded.settings, opened.view.identity
    where = state or settings.state_directory
    notes = read_notes(Path(where), identity.archive_id) if where else None
    if notes is None:
        raise Invalid(
            "no walk over this archive is noted in the state directory",
            hint="--state or state.directory names the daemon's; tiered scrub --once walks now", path=where or "none",
        )  # fmt: skip
    figures = figures_of(notes, SystemClock().now_ms(), identity.created_ms)
    damage = shown(notes, opened.view.keys.root, len(notes.findings))
    _tell(out, dict(figures), damage, json=json)
    if not json:
        out.note(said_of_notes(figures))
    return TieredError.exit_code if figures["damaged_keys"] else 0


def _tell(out: Output, told: dict[str, object], damage: list[dict[str, object]], *, json: bool) -> None:
    kinds = {
        "listed_bytes": Kind.SIZE, "bytes": Kind.SIZE, "read_bytes": Kind.SIZE,
        "last_listed_ms": Kind.TIME, "last_listed_end_ms": Kind.TIME, "last_read_ms": Kind.TIME, "last_read_end_ms": Kind.TIME,
    }  # fmt: skip
    out.record({**told, "damage": damage} if json else told, kinds=kinds)
    if json or not damage:
        return
    out.table(COLUMNS, [[row[column.name] for column in COLUMNS] for row in damage], title="damage")
    out.note(REMEDY)
