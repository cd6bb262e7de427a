"""``tiered table``: tables of other engines over the sealed files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tiered.cli.access import OpenedArchive, reading
from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.daemon.signals import Signals
from tiered.errors import Invalid, Refused, TieredError, Unavailable, did_you_mean
from tiered.table.catalog import open_catalog
from tiered.table.keeping import TableKeeper, TableRound, row
from tiered.table.orders import (
    EMBEDDED,
    ICEBERG,
    KeptTables,
    add_tables,
    check_tables,
    drop_tables,
    tables_in_force,
)
from tiered.table.place import file_access, files_location
from tiered.text.output import Column, Output

if TYPE_CHECKING:
    from tiered.table.iceberg import TableState

COLUMNS = (
    Column("table"),
    Column("topic"),
    Column("catalog", less=1),
    Column("namespace", less=2),
    Column("patterns", less=2),
    Column("state"),
    Column("files"),
    Column("reflects_commit", "reflects commit"),
    Column("lag_commits", "lag"),
    Column("partial_files", "partial", less=1),
)
DONE = (Column("added_files", "added files"), Column("removed_files", "removed files"))
TO_COME = (Column("files_to_add", "to add"), Column("files_to_remove", "to remove"))
"""After a round, and before one that was not done: what has happened does not bear the name of what will."""

KEPT, NO_TOPIC, NO_DAY, LEFT, NOT_KNOWN = (
    "kept", "no topic fits", "no day is sealed", "left as it is", "not known",
)  # fmt: skip
"""What is said of a table; the middle two of an order while it has none, the last of one whose catalog could not be asked."""

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Tables of other engines over the sealed files: no data is copied. Which tables are kept stands in the bucket, for every
    host; a daemon brings them up to date by itself."""


@app.command("enable")
def enable_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What kind of table: iceberg.")],
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="CATALOG",
            help="The URI of a catalog (https://… REST, postgresql://… or sqlite:///… SQL, thrift://… Hive), glue, or a name"
            " of pyiceberg's own configuration; without it a file in the state directory.",
        ),
    ] = EMBEDDED,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="What pyiceberg is told beside it, such as warehouse=s3://…",
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="Where in the catalog.")
    ] = "rocketmq",
    table: Annotated[
        str,
        typer.Option("--one-table", metavar="NAME", help="One table of all topics, instead of one for each."),
    ] = "",
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="PATTERN",
            help="Topics shown: a name, or with * and ?; all but RocketMQ's own.",
        ),
    ] = None,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Keep Iceberg tables over the sealed files, from now on; the first round is done at once.

    Credentials of a catalog are given to pyiceberg itself, PYICEBERG_CATALOG__TIERED__TOKEN and the like: nothing secret is put
    into the bucket. Exit code 1 if a table could not be brought up to date.
    """
    out = output(json)
    if kind != ICEBERG:
        raise Invalid("no such kind of table", found=kind, hint=did_you_mean(kind, (ICEBERG,), "kinds: "))
    kept = KeptTables(catalog, _pairs(properties or []), namespace, table, tuple(topics or ["*"]))
    check_tables(kept)
    with _opened(out, config, archive, state, sets) as place:
        place.refuse_encrypted()
        location = files_location(place.settings.archive.url, place.keys.root)
        place.ask_catalog(kept)
        add_tables(place.provider, place.keys, place.archive_id, kept, SystemClock().now_ms(), os.urandom)
        out.note(
            f"files below {location} are shown in {kept.name}; tiered table list says how far each table is"
        )
        return _tell(out, json, [place.round(kept, change=True)], change=True)


@app.command("list")
def list_command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Every table that is kept: the commit that it reflects, and how far it is behind; and every order that has no table yet,
    since no topic fits it or no day of one is sealed. Exit code 1 if a catalog is away, or an
    order of the bucket cannot be followed."""
    out = output(json)
    with _opened(out, config, archive, state, sets) as place:
        return _tell(out, json, place.rounds(change=False), change=False)


@app.command("sync")
def sync_command(
    once: Annotated[bool, typer.Option("--once", help="One round, and end; else again and again.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what a round would do; nothing is changed.")
    ] = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Bring tables up to date now. A daemon does it by itself; beside one this does no harm, on any host. A table that was
    lost, or dropped without purging, is made anew. Exit code 1 if a table could not be brought up to date.
    """
    out = output(json)
    clock, stop = SystemClock(), threading.Event()
    with Signals(stop, clock):
        while True:
            with _opened(out, config, archive, state, sets) as place:
                code = _tell(out, json, place.rounds(change=not dry_run), change=not dry_run)
                pause = place.settings.tables.interval_ms / 1000
            if once or dry_run:
                return code
            clock.wait(pause, stop)
            if stop.is_set():
                return code


@app.command("disable")
def disable_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A namespace, or CATALOG:NAMESPACE.")],
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Keep these tables no longer. They stay in their catalog as they are, and name files that retention and collection delete
    by and by: drop them there, and never with purge, which deletes the archive's files."""
    out = output(json)
    with _opened(out, config, archive, state, sets) as place:
        dropped = drop_tables(place.provider, place.keys, place.archive_id, name)
        out.record({"disabled": dropped.tables.name})


@contextmanager
def _opened(
    out: Output, config: ConfigFile, archive: str | None, state: str | None, sets: list[str] | None
) -> Iterator[_Place]:
    given = [*(sets or []), *([f"state.directory={state}"] if state else [])]
    with reading(out, config, archive, given, whole=True) as opened:
        yield _Place(opened)


@dataclass(frozen=True, slots=True)
class _Told:
    """An order and its round. ``empty``: what is said of it in the place of a table, where it has none."""

    kept: KeptTables
    found: TableRound
    empty: str = NOT_KNOWN


class _Place:
    """An archive that tables are kept of."""

    def __init__(self, opened: OpenedArchive) -> None:
        self.settings = opened.loaded.settings
        self.keys, self.archive_id = opened.view.keys, opened.view.identity.archive_id
        self.provider, self._state = opened.view.log.provider, opened.view.state

    def refuse_encrypted(self) -> None:
        """``Refused`` for an archive whose days are not sealed: tables of it would wait for files for ever."""
        if self.settings.encryption.on:  # without it an encrypted archive is not opened at all
            raise Refused(
                "tables are made of sealed days, and an encrypted archive seals none", key="encryption.*",
                found="a key is named",
                hint="tiered_spark reads an encrypted archive with its key (deploy/encryption.md); nothing was kept",
            )  # fmt: skip

    def ask_catalog(self, kept: KeptTables) -> None:
        """Have the catalog of an order that is not kept yet answer. ``Unavailable``: no round will come to it by itself."""
        settings = self.settings
        try:
            open_catalog(kept, file_access(settings.archive.url, settings.store), settings.state_directory)
        except Unavailable as error:
            hint = "nothing was kept: run it again when the catalog answers, or give another --catalog"
            raise Unavailable(error.message, hint=hint, **error.fields) from error.__cause__

    def rounds(self, *, change: bool) -> list[_Told]:
        """A round over all tables, or a look at what it would do."""
        stored = tables_in_force(self.provider, self.keys, self.archive_id)
        return [self.round(each.tables, change=change) for each in stored]

    def round(self, kept: KeptTables, *, change: bool) -> _Told:
        """The same of one order; a catalog that is away is a trouble of its tables."""
        try:
            keeper = TableKeeper(self.settings, self.keys, self.archive_id, kept)
        except Invalid as error:
            return _Told(kept, TableRound((), (f"{kept.name}: {error}",)))
        try:
            if change:
                found = keeper.bring(self._state, SystemClock().now_ms(), lambda: None)
            else:
                found = keeper.look(self._state)
        except Unavailable as error:
            return _Told(kept, TableRound((), (f"{kept.name}: {error}",)))
        if found.troubles or any(map(_shows_files, found.states)):
            return _Told(kept, found)
        return _Told(kept, found, NO_DAY if keeper.fits(self._state) else NO_TOPIC)


def _tell(out: Output, json: bool, rounds: Sequence[_Told], *, change: bool) -> int:
    """What each table is, what was done or is to come, what could not be done, and the exit code."""
    columns = (*COLUMNS[:-1], *(DONE if change else TO_COME), COLUMNS[-1])
    out.table(columns, [[row.get(c.name) for c in columns] for each in rounds for row in _rows(each)])
    troubles = [trouble for each in rounds for trouble in each.found.troubles]
    partial = sum(state.partial for each in rounds for state in each.found.states)
    if partial:
        out.note(
            f"{partial} file{'s'[: partial > 1]} hold rows that retention or a rewind took from the archive: engines see them"
            " until the whole file goes"
        )
    for each in rounds:
        if each.empty == NO_TOPIC:
            out.note(f"{each.kept.name}: no topic of the archive fits {' '.join(each.kept.topics)}")
    for trouble in troubles:
        out.note(f"left as it is: {trouble}")
    if troubles and json:  # machines get no notes
        out.error(TieredError("tables were left as they are", found="; ".join(troubles)))
    if not rounds:
        out.note("no table is kept: tiered table enable iceberg")
    return TieredError.exit_code if troubles else 0


def _rows(told: _Told) -> list[dict[str, object]]:
    """A row for each table of an order, or one for the order."""
    kept, found = told.kept, told.found
    order: dict[str, object] = {
        "catalog": kept.catalog, "namespace": kept.namespace, "patterns": list(kept.topics),
    }  # fmt: skip
    rows: list[dict[str, object]] = []
    for state in found.states:
        none = told.empty != NOT_KNOWN and kept.table and not _shows_files(state)
        to_come = {"files_to_add": state.added, "files_to_remove": state.removed}
        rows.append({**order, **row(state), **to_come, "state": told.empty if none else KEPT})
    known = {state.name for state in found.states}
    rows += [{**order, "table": name, "state": LEFT} for name in found.failed if name not in known]
    return rows or [{**order, "state": told.empty}]


def _shows_files(state: TableState) -> bool:
    return bool(state.files or state.added or state.removed)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise Invalid(
                "--property needs NAME=VALUE", found=pair, hint="for example warehouse=s3://bucket/warehouse"
            )
        pairs[name.strip()] = value
    return pairs
