"""``tiered gc``: what nothing in the archive refers to, and what waits to be deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from tiered.archive.rewrite.collection import figures, look, said
from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.errors import Invalid


def command(
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would be named for deletion and deleted; nothing is written."
        ),
    ] = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Look through the bucket for what no commit refers to. Deleting is the work of the archive's one writer: of the daemon
    with gc.enabled, or of tiered maintain --once."""
    if not dry_run:
        raise Invalid(
            "tiered gc only shows what would be collected",
            hint="run tiered gc --dry-run; tiered maintain --once does it",
        )
    out = output(json)
    with reading(out, config, archive, sets, whole=True) as opened:
        found = look(opened.view.log, opened.view.state, opened.loaded.settings.gc, SystemClock())
        out.record(dict(figures(found)))
        out.note(said(found))
        if not opened.loaded.settings.gc.enabled:
            out.note("nothing is deleted while gc.enabled is false")
