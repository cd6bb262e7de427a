"""The sink: rows are written as they come, and one commit of the catalog shows them, with the position."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tiered.errors import Corrupt, Fenced, Invalid, Refused, Unavailable
from tiered.sink.base import Accepted, Rewound, SafePoint, SinkBatch, SinkPosition
from tiered.sink.keptposition import laid_over, position_of, position_value, rewound_value
from tiered.sink.kinds import SinkPlace
from tiered.table.catalog import catalog_errors

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

ARCHIVE, SINK, SINK_ID, EPOCH, WRITER, POSITION = (
    "tiered.archive-id", "tiered.sink", "tiered.sink-id", "tiered.sink-epoch", "tiered.sink-writer", "tiered.sink-position",
)  # fmt: skip
REWOUND, REWOUND_SHOWN = "tiered.sink-rewound", 200
"""In the summary of the commit behind which a lost tail is given again: what of the rows before the broker lost, as JSON; at
most so many ranges, and ``tiered.sink-rewound-ranges`` says how many there were."""
MAX_POSITION_BYTES = 256 * 1024
"""Of a position in a snapshot's summary: every snapshot that is kept has one. Some ten thousand queues."""
ROWS_BYTES = 64 << 20
"""Rows that wait before they become data files, which the next flush then shows."""


@contextmanager
def table_errors(name: str) -> Iterator[None]:
    """``catalog_errors``, but rights that are missing and columns that do not fit are ``Invalid``: they do not pass."""
    from pyiceberg.exceptions import BadRequestError, ForbiddenError, UnauthorizedError

    try:
        with catalog_errors(name):
            yield
    except Unavailable as error:
        if isinstance(error.__cause__, BadRequestError | ForbiddenError | UnauthorizedError | ValueError):
            raise Invalid(
                "the table of a sink does not take rows", table=name, found=error.fields.get("found"),
                hint="give the sink the right to write there; if columns were changed, give the option table another name",
            ) from error  # fmt: skip
        raise


class IcebergSink:
    """Opening it commits a snapshot without rows: whoever had the sink before finds another snapshot than its own, and is
    fenced."""

    def __init__(self, catalog: Catalog, name: str, place: SinkPlace) -> None:
        self._catalog, self._name, self._place = catalog, name, place
        self._writer = uuid.uuid4().hex[:12]
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._rewound: list[Rewound] = []
        with table_errors(name):
            self._table = self._load_or_create()
            self._position = self._kept()
        self._transaction: Transaction | None = None
        self._commit(self._position)

    def position(self) -> SinkPosition:
        return self._position

    def write(self, batch: SinkBatch) -> Accepted:
        from tiered.codec.arrow.givenrows import given_table

        rows = given_table(batch.messages, batch.rows)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROWS_BYTES:
            with table_errors(self._name):
                self._append({})
        return Accepted(len(batch.rows))

    def mark(self, rewound: Sequence[Rewound]) -> None:
        """In the summary of the next commit."""
        self._rewound += rewound

    def flush(self, position: SinkPosition) -> SafePoint:
        whole = laid_over(self._position, position)
        if self._waiting or self._rewound or self._transaction is not None or whole != self._position:
            self._commit(whole)
        return SafePoint(position)

    def close(self) -> None:
        self._waiting, self._transaction = [], None
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()

    def _append(self, said: Mapping[str, str]) -> None:
        """Write what waits as data files, to be shown by the commit of the transaction."""
        from tiered.codec.arrow.givenrows import joined_tables

        if self._transaction is None:
            self._transaction = self._table.transaction()
        self._transaction.append(joined_tables(self._waiting), snapshot_properties=dict(said))
        self._waiting, self._waiting_bytes = [], 0

    def _commit(self, position: SinkPosition) -> None:
        from pyiceberg.exceptions import CommitFailedException

        said = {
            ARCHIVE: self._place.archive_id.hex(), SINK: self._place.name, EPOCH: str(self._place.epoch),
            WRITER: self._writer, POSITION: _packed(position), **_told(self._rewound),
        }  # fmt: skip
        with table_errors(self._name):
            self._append(said)
            assert self._transaction is not None
            try:
                self._table = self._transaction.commit_transaction()
            except CommitFailedException as error:
                raise self._overtaken(error) from error
        self._transaction, self._position, self._rewound = None, position, []

    def _overtaken(self, error: Exception) -> Fenced | Unavailable:
        """Whose commit was faster: another opening's, or that of a program that looks after tables."""
        said = newest_said(self._catalog.load_table(self._table.name()))
        if said is not None and said.get(WRITER) != self._writer:
            return Fenced(
                "another process has this sink now", sink=self._place.name, table=self._name,
                hint="one daemon writes an archive, and its sinks; look for a second one",
            )  # fmt: skip
        return Unavailable(
            "somebody else changed the table meanwhile", table=self._name, found=str(error)[:200],
            hint="the sink goes on from its position",
        )  # fmt: skip

    def _load_or_create(self) -> Table:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            try:
                return self._create()
            except TableAlreadyExistsError:
                return self._catalog.load_table(self._name)

    def _create(self) -> Table:
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
        from pyiceberg.schema import assign_fresh_schema_ids

        from tiered.codec.arrow.givenrows import GIVEN_SCHEMA

        namespace = tuple(self._name.split("."))[:-1]
        for depth in range(1, len(namespace) + 1):
            self._catalog.create_namespace_if_not_exists(namespace[:depth])
        schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(GIVEN_SCHEMA))
        own = {
            ARCHIVE: self._place.archive_id.hex(), SINK: self._place.name, SINK_ID: self._place.sink_id.hex(),
            "commit.retry.num-retries": "0",
        }  # fmt: skip
        return self._catalog.create_table(self._name, schema, properties={"format-version": "2", **own})

    def _kept(self) -> SinkPosition:
        """The position in the newest snapshot that a sink made. ``Refused`` for a table of somebody else."""
        place = self._place
        check_owner(self._table, self._name, place)
        said = newest_said(self._table)
        if said is None:
            if self._table.current_snapshot() is not None:
                raise Refused(
                    "no snapshot of this table holds the sink's position any more", table=self._name,
                    hint="snapshots of the sink were expired, all of them: give the option table another name",
                )  # fmt: skip
            return SinkPosition()
        if int(said.get(EPOCH, "0")) > place.epoch:
            raise Fenced(
                "a later writer has this sink", sink=place.name, expected=place.epoch, found=said[EPOCH]
            )
        return unpacked(said[POSITION], self._name)


def newest_said(table: Table) -> Mapping[str, str] | None:
    """What the newest snapshot with a position says; programs that look after tables make others on top of it."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        said: Mapping[str, str] = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if POSITION in said:
            return said
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


def check_owner(table: Table, name: str, place: SinkPlace) -> None:
    """``Refused`` for a table of somebody else, a sink that had this name before as well."""
    found, own = table.properties, place.sink_id.hex()
    other = found.get(SINK_ID, own) != own
    if other or (found.get(ARCHIVE), found.get(SINK)) != (place.archive_id.hex(), place.name):
        raise Refused(
            "a table of this name belongs to somebody else", table=name,
            expected=f"archive {place.archive_id.hex()}, sink {place.name} ({own})",
            found=f"archive {found.get(ARCHIVE, 'none')}, sink {found.get(SINK, 'none')} ({found.get(SINK_ID, '')})",
            hint="give the option table another name; nothing was changed",
        )  # fmt: skip


def _told(rewound: Sequence[Rewound]) -> dict[str, str]:
    if not rewound:
        return {}
    shown = json.dumps([rewound_value(gone) for gone in rewound[:REWOUND_SHOWN]], separators=(",", ":"))
    return {REWOUND: shown, f"{REWOUND}-ranges": str(len(rewound))}


def _packed(position: SinkPosition) -> str:
    text = json.dumps(position_value(position), separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    if len(packed) > MAX_POSITION_BYTES:
        raise Invalid(
            "a sink into a table has too many queues: each snapshot holds the position of all", found=len(position.queues),
            hint="make several sinks, each of some topics and with a table of its own",
        )  # fmt: skip
    return packed


def unpacked(packed: str, name: str) -> SinkPosition:
    """A position out of a snapshot's summary. ``Corrupt``."""
    try:
        return position_of(json.loads(zlib.decompress(base64.b64decode(packed))))
    except (ValueError, zlib.error) as error:
        raise Corrupt(
            "the position in a table's snapshot cannot be read", found=f"{name}: {error}"[:200],
            hint="roll the table back to the snapshot before it",
        ) from error  # fmt: skip
