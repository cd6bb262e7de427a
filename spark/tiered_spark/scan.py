"""One task's reading: portions of objects as Arrow batches, requests running ahead within a budget."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tiered.allocator import keep_freed_memory
from tiered.archive.read.runs import SeveralRuns, is_segment, rows_before, stretch_offsets
from tiered.archive.state.values import ObjectState
from tiered.codec.types import Buffer
from tiered.errors import Corrupt
from tiered.settings import MIB
from tiered_spark.columns import KNOWN, arrow_schema, needs_records
from tiered_spark.errors import plainly
from tiered_spark.groups import BlockGroup, groups_of
from tiered_spark.headers import Span, spans, stored_column
from tiered_spark.noted import note
from tiered_spark.options import Options
from tiered_spark.plan import Portion, ScanPartition
from tiered_spark.pruning import KeptBlocks, prune, tagged
from tiered_spark.records import RecordBlock
from tiered_spark.rows import ObjectRows, RowNumbers
from tiered_spark.snapshot import open_objects, requests
from tiered_spark.wanted import Wanted

log = logging.getLogger("tiered.spark")

BATCH_ROWS = 65_536

HELD_BYTES = 64 * MIB
"""Batches that are kept until all of their group are made, where damage is skipped."""

INFLATED_BYTES = 32 * MIB
"""Of the bodies of one batch that clients compressed; at least one body."""

KEPT_BYTES = 64 * MIB
"""Freed memory that a worker keeps for what it reads next: twice what a task has in flight by default."""

COMMIT = "commit_seq"

T = TypeVar("T")

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of one batch, and what gives of them a column that is stored with the messages."""

    rows: RowNumbers
    stored: Callable[[pa.Field], pa.Array]


class PartitionScan:
    """The reading of one partition, made on an executor."""

    def __init__(self, partition: ScanPartition, options: Options, wanted: Wanted, schema: pa.Schema) -> None:
        self._options, self._wanted, self._schema = options, wanted, schema
        self._place, self._portions, self._commits = partition.place, partition.portions, partition.commits
        self._objects = open_objects(partition.place)
        self._by_block = needs_records(schema.names) or wanted.keys is not None
        self._inflate = options.decode_body and "body" in schema.names

    def read(self) -> Iterator[pa.RecordBatch]:
        """Batches in the order of the objects. ``Corrupt`` for damage, unless it is to be skipped."""
        keep_freed_memory(KEPT_BYTES)
        with ThreadPoolExecutor(self._options.requests, "scan") as pool:
            # Of a segment a row group is read whole, so that its checksum can be compared, whichever columns are wanted.
            whole = [p for p in self._portions if self._by_block or is_segment(p.object)]
            tables = [p for p in self._portions if not (self._by_block or is_segment(p.object))]
            for batches in self._results((partial(self._headers, p) for p in tables), pool):
                yield from batches
            yield from self._blocks(whole, pool)

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

    def _headers(self, portion: Portion) -> list[pa.RecordBatch]:
        """Rows of a portion whose columns need no record."""
        found: list[pa.RecordBatch] = []
        for span in spans(self._objects, portion.object, portion.pieces):
            try:
                found += self._span(portion.object, span)
            except Corrupt as damage:
                self._skip(damage)
        return found

    def _span(self, item: ObjectState, span: Span) -> Iterator[pa.RecordBatch]:
        stored = {s for name in self._schema.names for s in KNOWN[name].stored} | {"store_timestamp"}
        if self._some_commits(item):
            stored.add(COMMIT)
        if self._wanted.tags is not None:
            stored.add("tag")
        if not span.dense:
            stored.add("queue_offsets")
        columns = self._objects.columns(item, sorted(stored), span.first_row, int(span.counts.sum()))
        rows = span.rows(self._place, self._objects, item, columns.get("queue_offsets"))
        keep = rows.wanted(self._wanted, columns["store_timestamp"], columns.get(COMMIT), self._commits)
        if self._wanted.tags is not None:
            keep = keep[tagged(self._objects.directory(item), self._wanted.tags)[columns["tag"][keep]]]

        def page(numbers: RowNumbers) -> Page:
            some = {name: column[numbers] for name, column in columns.items()}
            return Page(numbers, lambda field: stored_column(self._objects, item, field, some))

        yield from self._batches(rows, map(page, _pages(keep)))

    # ---- from the records

    def _blocks(self, portions: Sequence[Portion], pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
        groups = self._groups(portions, pool)
        waiting: deque[tuple[BlockGroup, Future[list[Buffer]]]] = deque()
        in_flight = 0
        try:
            coming = next(groups, None)
            while coming is not None or waiting:
                if coming is not None and self._room(len(waiting), in_flight + coming.raw_bytes):
                    fetched = pool.submit(
                        self._objects.block_bytes, coming.item, coming.first_block, coming.end_block
                    )
                    waiting.append((coming, fetched))
                    in_flight += coming.raw_bytes
                    coming = next(groups, None)
                    continue
                group, future = waiting.popleft()
                yield from self._decoded(group, future)
                in_flight -= group.raw_bytes
        finally:
            for _, future in waiting:
                future.cancel()

    def _room(self, waiting: int, size: int) -> bool:
        """Whether one more group may be asked for; one always may."""
        return not waiting or (waiting < self._options.requests and size <= self._options.in_flight_bytes)

    def _decoded(self, group: BlockGroup, future: Future[list[Buffer]]) -> Iterator[pa.RecordBatch]:
        if self._options.on_damage != "skip":
            yield from self._records(group, future.result())
            return
        try:
            batches = _whole(partial(self._records, group, future.result()))
        except Corrupt as damage:
            if len(group.rows) == 1:
                self._skip(damage)
                return
        else:
            yield from batches
            return
        for single in map(group.block, range(len(group.rows))):
            try:
                data = self._objects.block_bytes(single.item, single.first_block, single.end_block)
                batches = _whole(partial(self._records, single, data))
            except Corrupt as damage:
                self._skip(damage)
            else:
                yield from batches

    def _groups(self, portions: Sequence[Portion], pool: ThreadPoolExecutor) -> Iterator[BlockGroup]:
        """Neighbouring blocks that may hold wanted messages; the tables of later objects are asked for meanwhile."""

        def pruned(portion: Portion) -> tuple[Portion, KeptBlocks]:
            return portion, prune(self._objects, self._place.broker, portion, self._wanted)

        for portion, kept in self._results((partial(pruned, p) for p in portions), pool):
            yield from groups_of(portion, kept)

    def _records(self, group: BlockGroup, blocks: Sequence[Buffer]) -> Iterator[pa.RecordBatch]:
        data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        records = RecordBlock.parse(data, int(group.rows.sum()), self._objects.key_of(group.item))
        piece_of = np.repeat(group.piece_of, group.rows)
        offsets = stretch_offsets(group.first_offsets, group.rows)
        batched = SeveralRuns([p.run for p in group.pieces]).batched()
        if batched.any():
            offsets = np.where(batched[piece_of], records.headers["queue_offset"], offsets)
        commits = None
        first_row = rows_before(self._objects.block_table(group.item), 0, group.first_block)
        if self._some_commits(group.item):
            commits = self._objects.columns(group.item, (COMMIT,), first_row, len(records))[COMMIT]
        rows = ObjectRows(self._place, group.item, first_row, group.pieces, piece_of, offsets)
        keep = rows.wanted(self._wanted, records.headers["store_timestamp"], commits, self._commits)
        if self._wanted.keys is not None:
            keep = keep[records.has_key(self._wanted.keys)[keep]]
        if self._wanted.tags is not None:
            keep = keep[records.has_tag(self._wanted.tags)[keep]]
        yield from self._batches(rows, self._inflated_pages(records, keep))

    def _inflated_pages(self, records: RecordBlock, keep: RowNumbers) -> Iterator[Page]:
        """Batches of some records: what compresses well is cut by what it inflates to."""
        for numbers in _pages(keep):
            block = records if len(numbers) == len(records) else records.only(numbers)
            first = 0
            for part in block.inflated(INFLATED_BYTES) if self._inflate else (block,):
                yield Page(numbers[first : first + len(part)], partial(_column, part))
                first += len(part)

    # ---- both

    def _batches(self, rows: ObjectRows, pages: Iterable[Page]) -> Iterator[pa.RecordBatch]:
        """A batch of each page."""
        for page in pages:
            arrays = [
                rows.column(field, page.rows) if rows.knows(field.name) else page.stored(field)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)],
                schema=self._schema,
            )

    def _some_commits(self, item: ObjectState) -> bool:
        """Whether each message of an object has to be looked at for its commit: one that is not merged is of one commit."""
        return self._commits is not None and item.level > 0


def read_partition(
    partition: InputPartition, options: Options, wanted: Wanted, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, as Spark's schema says. Spark makes a partition of its own for an empty plan: it has no rows."""
    if not isinstance(partition, ScanPartition):
        return
    before, rows = requests.so_far(), 0
    with plainly():
        for batch in PartitionScan(partition, options, wanted, arrow_schema(schema)).read():
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


def _pages(rows: RowNumbers) -> Iterator[RowNumbers]:
    return (rows[first : first + BATCH_ROWS] for first in range(0, len(rows), BATCH_ROWS))


def _column(block: RecordBlock, field: pa.Field) -> pa.Array:
    return block.column(field.name, field.type)
