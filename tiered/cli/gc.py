"""``tiered gc``: what nothing in the archive refers to, and what waits to be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from tiered.archive.log.maintenance import OwnKeys, Task
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.collection import Collection, figures, look, said
from tiered.cli.access import reading
from tiered.cli.options import JsonFlag, output
from tiered.cli.writing import WriterFlags, do_all, tell, with_writer_flags
from tiered.clock import Clock, SystemClock
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

    A daemon with gc.enabled does this by itself; without --dry-run this opens an epoch of its own, as a daemon does. Exit code
    1 if something could not be deleted.
    """
    out = output(json)
    if not dry_run:
        return tell(out, do_all(out, given, _tasks), json=json)
    with reading(out, given.config, given.archive, given.sets, whole=True) as opened:
        found = look(opened.view.log, opened.view.state, opened.loaded.settings.gc, SystemClock())
        out.record(dict(figures(found)))
        out.note(said(found))
        if not opened.loaded.settings.gc.enabled:
            out.note("a daemon deletes nothing while gc.enabled is false")
        return 0


def _tasks(
    log: CommitLog, clock: Clock, settings: Settings, own_keys: OwnKeys, weak: Sequence[str]
) -> tuple[Task, ...]:
    return (Collection(log, clock, replace(settings.gc, enabled=True), own_keys, weak),)
