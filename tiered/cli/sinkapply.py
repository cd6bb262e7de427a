"""``tiered sink apply``: the sinks of a file, as the bucket's orders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.cli.sinkorders import opened_orders
from tiered.clock import SystemClock
from tiered.sink.declared import declared_changes, put_changes, read_declared
from tiered.text.output import Column

CHANGES = (Column("sink"), Column("kind"), Column("changed", flexible=True))


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML: a table for each sink, by its name.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; nothing is changed.")
    ] = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Order sinks as a file declares them: those that are not there are added, others changed where they differ. Sinks that it
    does not name are left alone. All are checked before one is put."""
    out = output(json)
    declared = read_declared(file)
    with opened_orders(out, config, archive, sets) as place:
        changes = declared_changes(place.book, declared)
        if not dry_run:
            put_changes(place.book, changes, SystemClock().now_ms(), os.urandom)
        out.table(CHANGES, [(each.name, each.order.kind, " ".join(each.differs)) for each in changes])
        some = sum(bool(each.differs) for each in changes)
        out.note("nothing was changed: --dry-run" if dry_run else f"{some} of {len(changes)} changed")
