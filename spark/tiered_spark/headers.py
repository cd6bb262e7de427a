"""Columns of messages that need no record, from the columns section of their object; and which rows of it belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import SeveralRuns, rows_before, stretch_offsets
from tiered.archive.state.values import ObjectState
from tiered.codec.arrow.arrays import chosen, times
from tiered.codec.types import Ints
from tiered_spark.columns import COLUMNS
from tiered_spark.plan import Piece
from tiered_spark.rows import ObjectRows
from tiered_spark.snapshot import ArchivePlace


def stored_column(
    objects: ObjectReader, item: ObjectState, field: pa.Field, columns: dict[str, npt.NDArray[Any]]
) -> pa.Array:
    """A column of messages from the columns section of their object."""
    if field.name == "tags":
        tags = [None, *(t.decode("utf-8", "replace") for t in objects.directory(item).tags[1:])]
        return chosen(tags, columns["tag"])
    values = columns[COLUMNS[field.name].stored[0]]
    if field.name.endswith("_timestamp"):
        return times(values, field.type)
    return pa.array(values.astype(np.int64))


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring pieces of an object: their first row in it, and the rows of each."""

    pieces: tuple[Piece, ...]
    first_row: int
    counts: Ints

    @property
    def dense(self) -> bool:
        """Whether queue offsets follow from those of the blocks, and need no column."""
        return all(piece.run.dense for piece in self.pieces)

    def rows(
        self, place: ArchivePlace, objects: ObjectReader, item: ObjectState, owned: npt.NDArray[Any] | None
    ) -> ObjectRows:
        """All rows of the span. ``owned``: the column of queue offsets, of a span that is not dense."""
        starts = np.array(
            [
                p.run.first_queue_offset if p.first_block == p.run.first_block
                else int(objects.block_table(item)["first_queue_offset"][p.first_block])
                for p in self.pieces
            ],
            np.int64,
        )  # fmt: skip
        if owned is None:
            offsets = stretch_offsets(starts, self.counts)
        else:
            batched = SeveralRuns([p.run for p in self.pieces]).batched()
            offsets = stretch_offsets(starts, self.counts, owned, batched)
        piece_of = np.repeat(np.arange(len(self.pieces)), self.counts)
        return ObjectRows(place, item, self.first_row, self.pieces, piece_of, offsets)


def spans(objects: ObjectReader, item: ObjectState, pieces: Sequence[Piece]) -> Iterator[Span]:
    """Pieces of an object, those that are neighbours together."""
    near: list[Piece] = []
    counts: list[int] = []
    start = end = -1
    for piece in pieces:
        first, rows = piece.run.first_row, piece.run.rows
        if not piece.whole:
            table = objects.block_table(item)
            first += rows_before(table, piece.run.first_block, piece.first_block)
            rows = rows_before(table, piece.first_block, piece.end_block)
        if near and first != end:
            yield Span(tuple(near), start, np.array(counts, np.int64))
            near, counts = [], []
        if not near:
            start = first
        near.append(piece)
        counts.append(rows)
        end = first + rows
    if near:
        yield Span(tuple(near), start, np.array(counts, np.int64))
