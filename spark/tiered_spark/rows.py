"""Rows of an object as a scan reads them: which are wanted, and the columns that the plan knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered.archive.read.runs import SeveralRuns
from tiered.archive.state.values import ObjectState
from tiered.codec.arrow.arrays import chosen, repeated
from tiered.codec.types import Ints
from tiered_spark.columns import KNOWN, RECORD, ColumnCost
from tiered_spark.plan import Piece
from tiered_spark.positions import StreamBatch
from tiered_spark.snapshot import ArchivePlace
from tiered_spark.wanted import Wanted

RowNumbers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ObjectRows:
    """Consecutive rows of an object from ``first_row`` on, with the piece (an index) and the queue offset of each."""

    place: ArchivePlace
    item: ObjectState
    first_row: int
    pieces: Sequence[Piece]
    piece_of: Ints
    offsets: Ints

    def wanted(
        self,
        wanted: Wanted,
        stored_at: npt.NDArray[Any],
        commits: Ints | None,
        appended_by: StreamBatch | None,
    ) -> RowNumbers:
        """Rows that are alive, at a wanted offset, stored at a wanted time, and appended by a wanted commit.

        ``commits``: of each row, ``None`` where every commit of the object is wanted.
        """
        good = SeveralRuns([p.run for p in self.pieces]).live_rows(self.offsets, self.piece_of)
        limits = wanted.limits(self.place.broker, [p.run.queue for p in self.pieces])
        first, last, early, late = limits[:, self.piece_of]
        good &= (self.offsets >= first) & (self.offsets <= last) & (stored_at >= early) & (stored_at <= late)
        if commits is not None and appended_by is not None:
            queues = [p.run.queue for p in self.pieces]
            good &= appended_by.takes(commits, self.offsets, queues, self.piece_of)
        return np.flatnonzero(good)

    def knows(self, name: str) -> bool:
        """Whether ``column`` gives this one; any other is stored with the messages."""
        return KNOWN[name].cost is ColumnCost.QUEUE or name in ("queue_offset", RECORD)

    def column(self, field: pa.Field, rows: RowNumbers) -> pa.Array:
        """A column that the plan knows, the queue offset, or where the records lie, of some of the rows."""
        name = field.name
        if name == RECORD:
            return self._records(rows, field.type)
        if name in ("cluster", "broker"):
            return repeated(getattr(self.place, name), len(rows))
        if name == "topic":
            return chosen([p.run.queue.topic for p in self.pieces], self.piece_of[rows])
        if name == "queue_id":
            ids = np.array([p.run.queue.queue_id for p in self.pieces])
            return pa.array(ids[self.piece_of[rows]])
        return pa.array(self.offsets[rows])

    def _records(self, rows: RowNumbers, kind: pa.DataType) -> pa.Array:
        """The object, by its commit and number, and the row in it."""
        commit = np.full(len(rows), self.item.ref.commit_seq, np.int64)
        number = np.full(len(rows), self.item.ref.index, np.int32)
        row = (self.first_row + rows).astype(np.int64)
        return pa.StructArray.from_arrays([commit, number, row], fields=list(kind))
