"""One task's reading: portions of objects as Arrow batches, requests running ahead within a budget."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tiered.allocator import keep_freed_memory
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import SeveralRuns, rows_before, stretch_offsets
from tiered.archive.state.values import ObjectState
from tiered.codec.types import Ints
from tiered.errors import Corrupt
from tiered.settings import MIB
from tiered_spark.choose import Chosen, choose, tagged
from tiered_spark.columns import KNOWN, RECORD, ColumnCost, arrow_schema, needs_records
from tiered_spark.errors import plainly
from tiered_spark.headers import places, queue_column, queue_offsets, spans, stored_column
from tiered_spark.noted import note
from tiered_spark.options import Options
from tiered_spark.plan import Piece, Portion, ScanPartition
from tiered_spark.ranges import Range
from tiered_spark.records import RecordBlock
from tiered_spark.snapshot import ArchivePlace, open_objects, requests
from tiered_spark.wanted import Wanted

log = logging.getLogger("tiered.spark")

GROUP_BYTES = 8 * MIB
"""Blocks decoded together, raw, and one Arrow batch; at least one block."""

BATCH_ROWS = 65_536

HELD_BYTES = 64 * MIB
"""Batches that are kept until all of their group are made, where damage is skipped."""

INFLATED_BYTES = 32 * MIB
"""Of the bodies of one batch that clients compressed; at least one body."""

KEPT_BYTES = 64 * MIB
"""Freed memory that a worker keeps for what it reads next: twice what a task has in flight by default."""

COMMIT = "commit_seq"

T = TypeVar("T")

Rows = npt.NDArray[np.intp]

Batches = Iterable[pa.RecordBatch]

Part = tuple[Rows, Callable[[pa.Field], pa.Array]]
"""Rows of one batch, and what gives of these rows a column that is stored with the messages."""


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
        self._by_block = needs_records(schema.names) or wanted.keys is not None
        self._inflate = options.decode_body and "body" in schema.names
        self._commits: Range | None = None

    def read(self, partition: ScanPartition) -> Iterator[pa.RecordBatch]:
        """Batches in the order of the objects. ``Corrupt`` for damage, unless it is to be skipped."""
        keep_freed_memory(KEPT_BYTES)
        place = partition.place
        self._commits = partition.commits
        objects = open_objects(place)
        with ThreadPoolExecutor(self._options.requests, "scan") as pool:
            if self._by_block:
                yield from self._blocks(place, objects, partition.portions, pool)
            else:
                calls = (partial(self._headers, place, objects, p) for p in partition.portions)
                for batches in self._results(calls, pool):
                    yield from batches

    def _results(self, calls: Iterable[Callable[[], T]], pool: ThreadPoolExecutor) -> Iterator[T]:
        """Results in the order of the calls, as many ahead as there are requests; without those that met damage, if so told."""
        waiting: deque[Future[T]] = deque()
        rest = iter(calls)
        try:
            while True:
                waiting.extend(
                    pool.submit(call) for call in islice(rest, self._options.requests - len(waiting))
                )
                if not waiting:
                    return
                try:
                    found = waiting.popleft().result()
                except Corrupt as damage:
                    self._skip(damage)
                else:
                    yield found
        finally:
            for future in waiting:
                future.cancel()

    def _skip(self, damage: Corrupt) -> None:
        if self._options.on_damage != "skip":
            raise damage
        log.warning("damaged messages are left out: %s", damage)

    # ---- from the columns section

    def _headers(self, place: ArchivePlace, objects: ObjectReader, portion: Portion) -> list[pa.RecordBatch]:
        """Rows of a portion whose columns need no record."""
        found: list[pa.RecordBatch] = []
        for span in spans(objects, portion.object, portion.pieces):
            try:
                found += self._span(place, objects, portion.object, span)
            except Corrupt as damage:
                self._skip(damage)
        return found

    def _span(
        self,
        place: ArchivePlace,
        objects: ObjectReader,
        item: ObjectState,
        span: Sequence[tuple[Piece, int, int]],
    ) -> Iterator[pa.RecordBatch]:
        stored = {s for name in self._schema.names for s in KNOWN[name].stored} | {"store_timestamp"}
        if self._some_commits(item):
            stored.add(COMMIT)
        if self._wanted.tags is not None:
            stored.add("tag")
        owned_differs = not all(p.run.dense for p, _, _ in span)
        names = sorted(stored | ({"queue_offsets"} if owned_differs else set()))
        counts = np.array([rows for _, _, rows in span], np.int64)
        columns = objects.columns(item, names, span[0][1], int(counts.sum()))
        pieces = tuple(p for p, _, _ in span)
        piece_of = np.repeat(np.arange(len(span)), counts)
        offsets = queue_offsets(objects, item, pieces, counts, columns.get("queue_offsets"))
        keep = self._rows(place, pieces, piece_of, offsets, columns["store_timestamp"], columns.get(COMMIT))
        if self._wanted.tags is not None:
            keep = keep[tagged(objects.directory(item), self._wanted.tags)[columns["tag"][keep]]]

        def part(rows: Rows) -> Part:
            some = {name: column[rows] for name, column in columns.items()}
            return rows, lambda field: stored_column(objects, item, field, some)

        yield from self._batches(place, item, span[0][1], pieces, piece_of, offsets, map(part, _pages(keep)))

    # ---- from the records

    def _blocks(
        self,
        place: ArchivePlace,
        objects: ObjectReader,
        portions: Sequence[Portion],
        pool: ThreadPoolExecutor,
    ) -> Iterator[pa.RecordBatch]:
        groups = self._groups(place, objects, portions, pool)
        waiting: deque[tuple[_Group, Future[list[bytes]]]] = deque()
        in_flight = 0
        try:
            coming = next(groups, None)
            while coming is not None or waiting:
                if coming is not None and self._room(len(waiting), in_flight + coming.size):
                    end = coming.first_block + len(coming.rows)
                    fetched = pool.submit(objects.block_bytes, coming.item, coming.first_block, end)
                    waiting.append((coming, fetched))
                    in_flight += coming.size
                    coming = next(groups, None)
                    continue
                group, future = waiting.popleft()
                yield from self._decoded(place, objects, group, future)
                in_flight -= group.size
        finally:
            for _, future in waiting:
                future.cancel()

    def _room(self, waiting: int, size: int) -> bool:
        """Whether one more group may be asked for; one always may."""
        return not waiting or (waiting < self._options.requests and size <= self._options.in_flight_bytes)

    def _decoded(
        self, place: ArchivePlace, objects: ObjectReader, group: _Group, future: Future[list[bytes]]
    ) -> Iterator[pa.RecordBatch]:
        if self._options.on_damage != "skip":
            yield from self._records(place, objects, group, future.result())
            return
        try:
            batches = _whole(partial(self._records, place, objects, group, future.result()))
        except Corrupt as damage:
            if len(group.rows) == 1:
                self._skip(damage)
                return
        else:
            yield from batches
            return
        for number in range(len(group.rows)):
            single = group.one(number)
            try:
                data = objects.block_bytes(single.item, single.first_block, single.first_block + 1)
                batches = _whole(partial(self._records, place, objects, single, data))
            except Corrupt as damage:
                self._skip(damage)
            else:
                yield from batches

    def _groups(
        self,
        place: ArchivePlace,
        objects: ObjectReader,
        portions: Sequence[Portion],
        pool: ThreadPoolExecutor,
    ) -> Iterator[_Group]:
        """Neighbouring blocks that may hold wanted messages; the tables of later objects are asked for meanwhile."""

        def choice(portion: Portion) -> tuple[Portion, Chosen]:
            return portion, choose(objects, place.broker, portion, self._wanted)

        for portion, chosen in self._results((partial(choice, p) for p in portions), pool):
            yield from _neighbours(portion, chosen)

    def _records(
        self, place: ArchivePlace, objects: ObjectReader, group: _Group, blocks: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        records = RecordBlock.parse(data, int(group.rows.sum()), objects.key_of(group.item))
        piece_of = np.repeat(group.piece_of, group.rows)
        offsets = stretch_offsets(group.first_offsets, group.rows)
        batched = SeveralRuns([p.run for p in group.pieces]).batched()
        if batched.any():
            offsets = np.where(batched[piece_of], records.headers["queue_offset"], offsets)
        commits = None
        first_row = rows_before(objects.block_table(group.item), 0, group.first_block)
        if self._some_commits(group.item):
            commits = objects.columns(group.item, (COMMIT,), first_row, len(records))[COMMIT]
        keep = self._rows(place, group.pieces, piece_of, offsets, records.headers["store_timestamp"], commits)
        if self._wanted.keys is not None:
            keep = keep[records.has_key(self._wanted.keys)[keep]]
        if self._wanted.tags is not None:
            keep = keep[records.has_tag(self._wanted.tags)[keep]]

        parts = self._parts(records, keep)
        yield from self._batches(place, group.item, first_row, group.pieces, piece_of, offsets, parts)

    def _parts(self, records: RecordBlock, keep: Rows) -> Iterator[Part]:
        """Batches of some records: what compresses well is cut by what it inflates to."""
        for rows in _pages(keep):
            block = records if len(rows) == len(records) else records.only(rows)
            first = 0
            for part in block.inflated(INFLATED_BYTES) if self._inflate else (block,):
                yield rows[first : first + len(part)], partial(_column, part)
                first += len(part)

    # ---- both

    def _batches(
        self,
        place: ArchivePlace,
        item: ObjectState,
        first_row: int,
        pieces: Sequence[Piece],
        piece_of: Ints,
        offsets: Ints,
        parts: Iterable[Part],
    ) -> Iterator[pa.RecordBatch]:
        """A batch of each part, whose rows count from ``first_row`` of the object."""
        for rows, stored in parts:
            arrays = [
                queue_column(place, field, pieces, piece_of[rows], offsets[rows])
                if KNOWN[field.name].cost is ColumnCost.QUEUE or field.name == "queue_offset"
                else places(item, first_row + rows, field.type)
                if field.name == RECORD
                else stored(field)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)],
                schema=self._schema,
            )

    def _some_commits(self, item: ObjectState) -> bool:
        """Whether each message of an object has to be looked at for its commit: one that is not merged is of one commit."""
        return self._commits is not None and item.level > 0

    def _rows(
        self,
        place: ArchivePlace,
        pieces: Sequence[Piece],
        piece_of: Ints,
        offsets: Ints,
        stored_at: npt.NDArray[Any],
        commits: npt.NDArray[Any] | None,
    ) -> Rows:
        """Rows that are alive, at a wanted offset, stored at a wanted time, and appended by a wanted commit."""
        good = SeveralRuns([p.run for p in pieces]).live_rows(offsets, piece_of)
        first, last, early, late = self._wanted.limits(place.broker, [p.run.queue for p in pieces])[
            :, piece_of
        ]
        good &= (offsets >= first) & (offsets <= last) & (stored_at >= early) & (stored_at <= late)
        if commits is not None and self._commits is not None:
            good &= (commits >= self._commits.low) & (commits <= self._commits.high)
        return np.flatnonzero(good)


def read_partition(
    partition: InputPartition, options: Options, wanted: Wanted, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, as Spark's schema says; none of one that is Spark's own, for a plan of none."""
    if not isinstance(partition, ScanPartition):
        return
    before, rows = requests.so_far(), 0
    with plainly():
        for batch in Scan(options, wanted, arrow_schema(schema)).read(partition):
            rows += len(batch)
            yield batch
    asked, received = np.subtract(requests.so_far(), before).tolist()
    note("read", partition.place, rows=rows, requests=asked, bytes=received)


def _whole(make: Callable[[], Batches]) -> Batches:
    """All that ``make`` makes, or ``Corrupt`` before the first of it: what is left out, or read again, must not have been given
    in part. Batches are kept while they are made; more than ``HELD_BYTES`` of them are let go, and made a second time."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in make():
        size += batch.nbytes
        if size > HELD_BYTES:
            held.clear()
        else:
            held.append(batch)
    return held if size <= HELD_BYTES else make()


def _pages(rows: Rows) -> Iterator[Rows]:
    return (rows[first : first + BATCH_ROWS] for first in range(0, len(rows), BATCH_ROWS))


def _column(block: RecordBlock, field: pa.Field) -> pa.Array:
    return block.column(field.name, field.type)


def _neighbours(portion: Portion, chosen: Chosen) -> Iterator[_Group]:
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
        first, last = int(chosen.piece_of[start]), int(chosen.piece_of[stop - 1])
        yield _Group(
            portion.object, int(numbers[start]), portion.pieces[first : last + 1], chosen.piece_of[part] - first,
            chosen.rows[part], chosen.first_offsets[part], size,
        )  # fmt: skip
        start = stop
