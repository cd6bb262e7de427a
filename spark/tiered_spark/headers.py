"""Columns of messages that need no record: from the plan, and from the columns section of their object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import SeveralRuns, rows_before, stretch_offsets
from tiered.archive.state.values import ObjectState
from tiered.codec.arrow.arrays import chosen, repeated, times
from tiered.codec.types import Ints
from tiered_spark.columns import COLUMNS
from tiered_spark.plan import Piece
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


def queue_column(
    place: ArchivePlace, field: pa.Field, pieces: Sequence[Piece], piece_of: Ints, offsets: Ints
) -> pa.Array:
    """A column that the plan knows, or the queue offset."""
    name = field.name
    if name in ("cluster", "broker"):
        return repeated(getattr(place, name), len(piece_of))
    if name == "topic":
        return chosen([p.run.queue.topic for p in pieces], piece_of)
    if name == "queue_id":
        ids = np.array([p.run.queue.queue_id for p in pieces])
        return pa.array(ids[piece_of])
    return pa.array(offsets)


def places(item: ObjectState, rows: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Where records lie: the object, by its commit and number, and the row in it."""
    commit = np.full(len(rows), item.ref.commit_seq, np.int64)
    number = np.full(len(rows), item.ref.index, np.int32)
    return pa.StructArray.from_arrays([commit, number, rows.astype(np.int64)], fields=list(kind))


def spans(
    objects: ObjectReader, item: ObjectState, pieces: Sequence[Piece]
) -> Iterator[list[tuple[Piece, int, int]]]:
    """Neighbouring pieces with their first row in the object and their rows."""
    span: list[tuple[Piece, int, int]] = []
    end = -1
    for piece in pieces:
        first, rows = piece.run.first_row, piece.run.rows
        if not piece.whole:
            table = objects.block_table(item)
            first += rows_before(table, piece.run.first_block, piece.first_block)
            rows = rows_before(table, piece.first_block, piece.end_block)
        if span and first != end:
            yield span
            span = []
        span.append((piece, first, rows))
        end = first + rows
    if span:
        yield span


def queue_offsets(
    objects: ObjectReader,
    item: ObjectState,
    pieces: Sequence[Piece],
    counts: Ints,
    owned: npt.NDArray[Any] | None,
) -> Ints:
    """Queue offset of every row of a span."""
    starts = np.array(
        [
            p.run.first_queue_offset if p.first_block == p.run.first_block
            else int(objects.block_table(item)["first_queue_offset"][p.first_block])
            for p in pieces
        ],
        np.int64,
    )  # fmt: skip
    if owned is None:
        return stretch_offsets(starts, counts)
    return stretch_offsets(starts, counts, owned, SeveralRuns([p.run for p in pieces]).batched())
