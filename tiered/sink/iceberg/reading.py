"""Rows of a table read back, as of the snapshot that is newest when it is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from tiered.errors import NotFound
from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch, SinkPosition
from tiered.sink.comparison.base import Marks
from tiered.sink.comparison.tables import COLUMNS, table_marks
from tiered.sink.iceberg.sink import POSITION, check_owner, newest_said, table_errors, unpacked
from tiered.sink.kinds import SinkPlace

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class IcebergReadBack:
    """A table has no order of its own, so that of messages is not compared."""

    ordered = False

    def __init__(self, catalog: Catalog, name: str, place: SinkPlace) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        self._catalog, self._name = catalog, name
        with table_errors(name):
            try:
                self._table = catalog.load_table(name)
            except NoSuchTableError as error:
                raise NotFound(
                    "the table of a sink is not there",
                    table=name,
                    hint="the sink makes it when it is opened first",
                ) from error
            check_owner(self._table, name, place)

    def position(self) -> SinkPosition:
        said = newest_said(self._table)
        return SinkPosition() if said is None else unpacked(said[POSITION], self._name)

    def target(self, queue: MessageQueue) -> MessageQueue:
        return queue

    def lane(self, queue: MessageQueue) -> str:
        return ""

    def given(self, batch: SinkBatch) -> Marks:
        from tiered.codec.arrow.givenrows import given_table

        return table_marks(given_table(batch.messages, batch.rows))

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        with table_errors(self._name):
            for some in self._table.scan(selected_fields=COLUMNS).to_arrow_batch_reader():
                for first in range(0, some.num_rows, AT_ONCE):
                    yield table_marks(some.slice(first, AT_ONCE))

    def buried(self) -> Iterator[Marks]:
        return iter(())

    def begins_late(self, queue: MessageQueue) -> bool:
        return False

    def unread(self) -> str | None:
        return None

    def close(self) -> None:
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()


AT_ONCE = 4_096
"""Rows that become Python's own values at once."""
