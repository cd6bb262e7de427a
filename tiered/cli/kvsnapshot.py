"""``tiered kv snapshot``: a view's store as of one position, in the archive's bucket.

What a verb needs is imported when it runs: ``tiered kv get`` needs nothing of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.errors import NotFound
from tiered.keyvalue import check_namespace
from tiered.text.human import Kind
from tiered.text.output import Column, Output

if TYPE_CHECKING:
    from tiered.codec.format.keyvalue import KeyValueSnapshot
    from tiered.metadata.base import RedoStore
    from tiered.settings import Settings
    from tiered.view.keeping import SnapshotPlace

COLUMNS = (
    Column("id"),
    Column("created_ms", "created", kind=Kind.TIME),
    Column("namespace", less=1),
    Column("namespaces", kind=Kind.COUNT, less=2),
    Column("entries", kind=Kind.COUNT),
    Column("bytes", kind=Kind.SIZE),
)

Only = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="One namespace alone; without it all.")
]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Snapshots of a key-value view. A running view takes them by itself (kv.snapshot_ms) and begins with the newest when its
    store is empty; export and import are for one that does not run."""


@app.command("list")
def list_command(
    config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """All of them, newest first. Damaged ones are named on standard error."""
    from tiered.view.snapshot import list_snapshots

    out = output(json)
    with _bucket(out, config, archive, sets) as (_, place, _stack):
        found = list_snapshots(place.provider, place.keys, skipped=lambda error: out.error(error))
        out.table(COLUMNS, map(_row, found))


@app.command("export")
def export_command(
    namespace: Only = None,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Take one of the store in kv.state_directory, which no view may have open."""
    from tiered.clock import SystemClock
    from tiered.view.keeping import ID_BYTES
    from tiered.view.snapshot import write_snapshot

    out = output(json)
    if namespace is not None:
        check_namespace(namespace)
    with _bucket(out, config, archive, sets) as (settings, place, stack):
        store = _store(stack, settings)
        made = write_snapshot(
            place.provider, place.keys, store.snapshot(), namespace=namespace, now_ms=SystemClock().now_ms(),
            snapshot_id=os.urandom(ID_BYTES),
        )  # fmt: skip
        out.table(COLUMNS, [_row(made)])


@app.command("import")
def import_command(
    snapshot: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Which: its id, or how that begins. Without it the newest."),
    ] = None,
    namespace: Only = None,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Fill the empty store in kv.state_directory with one; a view goes on from there."""
    from tiered.view.snapshot import load_snapshot

    out = output(json)
    with _bucket(out, config, archive, sets) as (settings, place, stack):
        found = _chosen(place, snapshot, namespace)
        load_snapshot(place.provider, place.keys, _store(stack, settings), found, namespace=namespace)
        out.table(COLUMNS, [_row(found)])


@app.command("delete")
def delete_command(
    keep: Annotated[int, typer.Option("--keep", min=1, help="The newest so many stay.")],
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Delete all but the newest, and what exports left that were not finished within a day."""
    from tiered.clock import SystemClock
    from tiered.view.snapshot import delete_snapshots

    out = output(json)
    with _bucket(out, config, archive, sets) as (_, place, _stack):
        gone = delete_snapshots(place.provider, place.keys, keep=keep, now_ms=SystemClock().now_ms())
        out.table((Column("id", "deleted"),), ((name.hex(),) for name in gone))


@contextmanager
def _bucket(
    out: Output, config: ConfigFile, archive: str | None, sets: list[str] | None
) -> Iterator[tuple[Settings, SnapshotPlace, ExitStack]]:
    from tiered.cli.access import archive_settings
    from tiered.clock import SystemClock
    from tiered.daemon.keyvalue import open_place
    from tiered.metrics import Metrics

    settings = archive_settings(out, config, archive, sets).settings
    with ExitStack() as stack:
        place = open_place(stack, settings, SystemClock(), Metrics(), threading.Event())
        assert place is not None  # an archive is named
        yield settings, place, stack


def _store(stack: ExitStack, settings: Settings) -> RedoStore:
    from tiered.daemon.keyvalue import open_store, state_directory
    from tiered.daemon.lock import StateLock

    state = state_directory(settings)
    stack.enter_context(StateLock(state))
    return open_store(stack, settings, state)


def _chosen(place: SnapshotPlace, name: str | None, namespace: str | None) -> KeyValueSnapshot:
    from tiered.view.snapshot import list_snapshots

    for found in list_snapshots(place.provider, place.keys):
        if found.namespace == namespace and found.snapshot_id.hex().startswith((name or "").replace("-", "")):
            return found
    raise NotFound(
        "there is no such snapshot", id=name or "any", namespace=namespace or "all",
        hint="tiered kv snapshot list shows those that are there",
    )  # fmt: skip


def _row(found: KeyValueSnapshot) -> tuple[object, ...]:
    return (
        found.snapshot_id.hex(), found.created_ms, found.namespace, len(found.entries), sum(found.entries.values()),
        found.stored_bytes,
    )  # fmt: skip
