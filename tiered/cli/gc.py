"""``tiered gc``: what nothing in the archive refers to, and what waits to be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from tiered.archive.care.notes import Notebook
from tiered.archive.care.quarantine import Quarantine
from tiered.archive.log.maintenance import OwnKeys, Task
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.collection import Collection, figures, look, said
from tiered.cli.access import reading
from tiered.cli.options import JsonFlag, output
from tiered.cli.writing import WriterFlags, do_all, tell, with_writer_flags
from tiered.clock import Clock, SystemClock
from tiered.daemon.maintenance import state_of
from tiered.settings import Settings


@with_writer_flags
def command(
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would be named for deletion and deleted; nothing is written."
        ),
    ] = False,
    given: WriterFlags,
    json: JsonFlag = False,
) -> int:
    """Name for deletion what nothing refers to, and delete what was named at least gc.grace_ms ago.

    A daemon does this by itself, as gc.enabled says; without --dry-run this opens an epoch of its own, as a daemon does.
    Exit code 1 if something could not be deleted.
    """
    out = output(json)
    if not dry_run:
        return tell(out, do_all(out, given, _tasks), json=json)
    sets = [*(given.sets or ()), *([f"state.directory={given.state}"] if given.state is not None else ())]
    with reading(out, given.config, given.archive, sets, store=given.store, whole=True) as opened:
        log, settings = opened.view.log, opened.loaded.settings
        damaged = _damaged(log, settings)
        found = look(log, opened.view.state, settings.gc, SystemClock(), damaged=damaged.paths())
        out.record(dict(figures(found)))
        out.note(said(found))
        off = settings.gc.off(collected=opened.view.identity.collected)
        if off is not None:
            out.note(f"a daemon deletes nothing: {off}")
        return 0


def _tasks(
    log: CommitLog, clock: Clock, settings: Settings, own_keys: OwnKeys, weak: Sequence[str]
) -> tuple[Task, ...]:
    section, damaged = replace(settings.gc, enabled="true"), _damaged(log.reader, settings)
    return (Collection(log, clock, section, own_keys, weak, damaged=damaged.paths),)


def _damaged(reader: LogReader, settings: Settings) -> Quarantine:
    """What the daemon's scrub noted: left alone by a verb, too."""
    return Quarantine(Notebook(state_of(settings), reader.identity.archive_id))
