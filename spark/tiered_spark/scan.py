"""One task's reading: portions of objects as Arrow batches, requests running ahead within a budget."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tiered.archive.entities import ObjectState
from tiered.archive.keys import ArchiveKeys
from tiered.archive.objects import ObjectReader
from tiered.errors import Corrupt
from tiered.settings import MIB
from tiered_spark.arrays import Ints, chosen, repeated, times
from tiered_spark.choose import choose
from tiered_spark.columns import COLUMNS, Cost
from tiered_spark.options import Options
from tiered_spark.plain import plainly
from tiered_spark.plan import Piece, Portion, ScanPartition
from tiered_spark.pushdown import Wanted
from tiered_spark.records import RecordBlock
from tiered_spark.snapshot import TABLE_CACHE_BYTES, Place, shared_provider

log = logging.getLogger("tiered.spark")

GROUP_BYTES = 4 * MIB
"""Blocks decoded together, raw, and one Arrow batch; at least one block."""

BATCH_ROWS = 65_536

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive blocks of an object: of each its piece (an index), rows, and first queue offset."""

    item: ObjectState
    first_block: int
    pieces: tuple[Piece, ...]
    piece_of: Ints
    rows: Ints
    first_offsets: Ints
    size: int

    def one(self, number: int) -> _Group:
        """A single block of the group."""
        part = slice(number, number + 1)
        size = self.size // len(self.rows)
        return _Group(
            self.item, self.first_block + number, self.pieces, self.piece_of[part], self.rows[part],
            self.first_offsets[part], size,
        )  # fmt: skip


class Scan:
    """Reads partitions. Made where it is used, on an executor."""

    def __init__(self, options: Options, wanted: Wanted, schema: pa.Schema) -> None:
        self._options, self._wanted, self._schema = options, wanted, schema
        by_record = any(COLUMNS[name].cost is Cost.BLOCK for name in schema.names)
        self._by_block = by_record or wanted.keys is not None

    def read(self, partition: ScanPartition) -> Iterator[pa.RecordBatch]:
        """Batches in the order of the objects. ``Corrupt`` for damage, unless it is to be skipped."""
        place = partition.place
        keys = ArchiveKeys(place.cluster, place.broker)
        objects = ObjectReader(
            shared_provider(place.url), keys, place.archive_id, cache_bytes=TABLE_CACHE_BYTES
        )
        for portion in partition.portions:
            try:
                if self._by_block:
                    yield from self._blocks(place, objects, portion)
                else:
                    yield from self._headers(place, objects, portion)
            except Corrupt as damage:
                self._skip(damage)

    def _skip(self, damage: Corrupt) -> None:
        if self._options.on_damage != "skip":
            raise damage
        log.warning("damaged messages are left out: %s", damage)

    # ---- from the columns section

    def _headers(self, place: Place, objects: ObjectReader, portion: Portion) -> Iterator[pa.RecordBatch]:
        """Rows of a portion whose columns need no record."""
        item = portion.object
        stored = {s for name in self._schema.names for s in COLUMNS[name].stored} | {"store_timestamp"}
        for span in _spans(objects, item, portion.pieces):
            owned_differs = any(p.run.queue_offsets != p.run.rows for p, _, _ in span)
            names = sorted(stored | ({"queue_offsets"} if owned_differs else set()))
            counts = np.array([rows for _, _, rows in span], np.int64)
            columns = objects.columns(item, names, span[0][1], int(counts.sum()))
            pieces = tuple(p for p, _, _ in span)
            piece_of = np.repeat(np.arange(len(span)), counts)
            offsets = _offsets(objects, item, pieces, counts, columns.get("queue_offsets"))
            keep = self._rows(pieces, piece_of, offsets, columns["store_timestamp"])

            def values(
                rows: Rows, columns: dict[str, npt.NDArray[Any]] = columns
            ) -> Callable[[pa.Field], pa.Array]:
                part = {name: column[rows] for name, column in columns.items()}
                return lambda field: _stored_column(objects, item, field, part)

            yield from self._batches(place, pieces, piece_of, offsets, keep, values)

    # ---- from the records

    def _blocks(self, place: Place, objects: ObjectReader, portion: Portion) -> Iterator[pa.RecordBatch]:
        groups = self._groups(objects, portion)
        waiting: deque[tuple[_Group, Future[list[bytes]]]] = deque()
        in_flight = 0
        with ThreadPoolExecutor(self._options.requests, "scan") as pool:
            try:
                coming = next(groups, None)
                while coming is not None or waiting:
                    room = (
                        in_flight + (coming.size if coming is not None else 0)
                        <= self._options.in_flight_bytes
                    )
                    if coming is not None and (
                        not waiting or (room and len(waiting) < self._options.requests)
                    ):
                        end = coming.first_block + len(coming.rows)
                        waiting.append(
                            (coming, pool.submit(objects.block_bytes, coming.item, coming.first_block, end))
                        )
                        in_flight += coming.size
                        coming = next(groups, None)
                        continue
                    group, future = waiting.popleft()
                    yield from self._decoded(place, objects, group, future)
                    in_flight -= group.size
            finally:
                for _, future in waiting:
                    future.cancel()

    def _decoded(
        self, place: Place, objects: ObjectReader, group: _Group, future: Future[list[bytes]]
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._records(place, objects, group, future.result())
        except Corrupt as damage:
            if self._options.on_damage != "skip":
                raise
            if len(group.rows) == 1:
                self._skip(damage)
                return
            for number in range(len(group.rows)):
                single = group.one(number)
                try:
                    data = objects.block_bytes(single.item, single.first_block, single.first_block + 1)
                    yield from self._records(place, objects, single, data)
                except Corrupt as found:
                    self._skip(found)

    def _groups(self, objects: ObjectReader, portion: Portion) -> Iterator[_Group]:
        """Neighbouring blocks that may hold wanted messages."""
        chosen = choose(objects, portion, self._wanted)
        numbers, sizes = chosen.numbers, chosen.raw_bytes
        start = 0
        while start < len(numbers):
            stop, size = start, 0
            while stop < len(numbers) and numbers[stop] - numbers[start] == stop - start:
                if size and size + sizes[stop] > GROUP_BYTES:
                    break
                size += int(sizes[stop])
                stop += 1
            part = slice(start, stop)
            yield _Group(
                portion.object, int(numbers[start]), portion.pieces, chosen.piece_of[part], chosen.rows[part],
                chosen.first_offsets[part], size,
            )  # fmt: skip
            start = stop

    def _records(
        self, place: Place, objects: ObjectReader, group: _Group, blocks: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        records = RecordBlock.parse(data, int(group.rows.sum()), objects.key_of(group.item))
        piece_of = np.repeat(group.piece_of, group.rows)
        begins = np.repeat(group.first_offsets - (np.cumsum(group.rows) - group.rows), group.rows)
        offsets = begins + np.arange(len(piece_of))
        batched = np.array([p.run.queue_offsets != p.run.rows for p in group.pieces])[piece_of]
        if batched.any():
            offsets = np.where(batched, records.headers["queue_offset"], offsets)
        keep = self._rows(group.pieces, piece_of, offsets, records.headers["store_timestamp"])
        if self._wanted.keys is not None:
            keep = keep[records.has_key(self._wanted.keys)[keep]]

        def values(rows: Rows) -> Callable[[pa.Field], pa.Array]:
            block = records if len(rows) == len(records) else records.only(rows)
            return lambda field: block.column(field.name, field.type, decode_body=self._options.decode_body)

        yield from self._batches(place, group.pieces, piece_of, offsets, keep, values)

    # ---- both

    def _batches(
        self,
        place: Place,
        pieces: Sequence[Piece],
        piece_of: Ints,
        offsets: Ints,
        keep: Rows,
        values: Callable[[Rows], Callable[[pa.Field], pa.Array]],
    ) -> Iterator[pa.RecordBatch]:
        """The rows ``keep``; ``values`` gives, for some of them, the columns that are stored with the messages."""
        for first in range(0, len(keep), BATCH_ROWS):
            rows = keep[first : first + BATCH_ROWS]
            stored = values(rows)
            arrays = [
                _queue_column(place, field, pieces, piece_of[rows], offsets[rows])
                if COLUMNS[field.name].cost is Cost.QUEUE or field.name == "queue_offset"
                else stored(field)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)],
                schema=self._schema,
            )

    def _rows(
        self, pieces: Sequence[Piece], piece_of: Ints, offsets: Ints, stored_at: npt.NDArray[Any]
    ) -> Rows:
        """Rows that are alive and stored at a wanted time."""
        low = np.array([p.run.start for p in pieces])[piece_of]
        high = np.array([p.run.end for p in pieces])[piece_of]
        good = (offsets >= low) & (offsets < high)
        good &= (stored_at >= self._wanted.times.low) & (stored_at <= self._wanted.times.high)
        return np.flatnonzero(good)


def read_partition(
    partition: InputPartition, options: Options, wanted: Wanted, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, as Spark's schema says; none of one that is Spark's own, for a plan of none."""
    if isinstance(partition, ScanPartition):
        with plainly():
            yield from Scan(options, wanted, to_arrow_schema(schema, timezone="UTC")).read(partition)


def _stored_column(
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


def _queue_column(
    place: Place, field: pa.Field, pieces: Sequence[Piece], piece_of: Ints, offsets: Ints
) -> pa.Array:
    name = field.name
    if name in ("cluster", "broker"):
        return repeated(getattr(place, name), len(piece_of))
    if name == "topic":
        return chosen([p.run.queue.topic for p in pieces], piece_of)
    if name == "queue_id":
        ids = np.array([p.run.queue.queue_id for p in pieces])
        return pa.array(ids[piece_of])
    return pa.array(offsets)


def _spans(
    objects: ObjectReader, item: ObjectState, pieces: Sequence[Piece]
) -> Iterator[list[tuple[Piece, int, int]]]:
    """Neighbouring pieces with their first row in the object and their rows."""
    span: list[tuple[Piece, int, int]] = []
    end = -1
    for piece in pieces:
        first, rows = piece.run.first_row, piece.run.rows
        if not piece.whole:
            counts = objects.block_table(item)["rows"]
            first += int(counts[piece.run.first_block : piece.first_block].sum())
            rows = int(counts[piece.first_block : piece.end_block].sum())
        if span and first != end:
            yield span
            span = []
        span.append((piece, first, rows))
        end = first + rows
    if span:
        yield span


def _offsets(
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
    begins = np.cumsum(counts) - counts
    found: Ints = np.repeat(starts - begins, counts) + np.arange(int(counts.sum()))
    if owned is not None:
        for i, piece in enumerate(pieces):
            if piece.run.queue_offsets != piece.run.rows:
                rows = slice(int(begins[i]), int(begins[i] + counts[i]))
                mine = owned[rows].astype(np.int64)
                found[rows] = starts[i] + np.cumsum(mine) - mine
    return found
