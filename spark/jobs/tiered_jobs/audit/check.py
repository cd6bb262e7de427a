"""Objects read and checked where tasks run: what is right comes back as ranges of queue offsets, what is wrong by block.

A deep check reads every block: its checksum, the CRC of each body, and that columns, tags and places in the queue are what the
records say. A quick one reads tables and columns, no block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tiered.archive.read.agreement import NAMES, check_block
from tiered.archive.read.objects import BlockSlice, ObjectReader
from tiered.archive.read.runs import row_offsets
from tiered.archive.state.values import ObjectState
from tiered.codec.format.block import BlockTable
from tiered.errors import Corrupt, NotFound
from tiered.model import ObjectRef
from tiered.settings import MIB
from tiered_spark.plan import Piece, Portion, ScanPartition
from tiered_spark.snapshot import ArchivePlace, open_objects

GROUP_BYTES = 4 * MIB
"""Blocks read in one request and held at once, raw; at least one block."""

SCHEMA = (
    "error string, cluster string, broker string, topic string, queue_id int, generation int, start_offset long, "
    "end_offset long, records long, bytes long, blocks long, key string, block int, detail string"
)
"""A row: a range of a queue that is right (``error`` null), or one that is not, or an object's tables (``topic`` null)."""


Columns = dict[str, npt.NDArray[Any]]
Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What one task checks. ``firsts``: objects whose tables no other task checks."""

    partition: ScanPartition
    firsts: frozenset[ObjectRef]


def shares(partitions: Sequence[ScanPartition]) -> list[Share]:
    """One for each partition of one archive's runs."""
    seen: set[ObjectRef] = set()
    made = []
    for partition in partitions:
        mine = partition.objects - seen
        seen |= mine
        made.append(Share(partition, frozenset(mine)))
    return made


def check(share: Share, *, quick: bool) -> Iterator[Row]:
    """Rows of ``SCHEMA``. A store that does not answer is an error of the task, not of the archive."""
    place = share.partition.place
    checker = _Checker(place, open_objects(place), quick=quick)
    for portion in share.partition.portions:
        if portion.object.ref in share.firsts:
            yield from checker.tables(portion.object)
        yield from checker.portion(portion)


class _Checker:
    """Of one archive."""

    def __init__(self, place: ArchivePlace, objects: ObjectReader, *, quick: bool) -> None:
        self._place, self._objects, self._quick = place, objects, quick

    def tables(self, item: ObjectState) -> Iterator[Row]:
        """Footer and, deep, every section and the index of keys."""
        key = self._objects.key_of(item)
        try:
            self._objects.check_footer(item)
            if not self._quick:
                self._objects.check_sections(item)
                self._objects.directory(item)
                self._objects.check_keys(item)
        except (Corrupt, NotFound) as error:
            here = (self._place.cluster, self._place.broker)
            yield (error.message, *here, None, None, None, None, None, 0, 0, 0, key, None, _detail(error))

    def portion(self, portion: Portion) -> Iterator[Row]:
        """Every piece of one object's runs."""
        item = portion.object
        for piece in portion.pieces:
            try:
                table = self._objects.block_table(item)
            except (Corrupt, NotFound) as error:
                # Where a piece begins and ends inside its run is in the table: the first piece answers for the whole run.
                first = piece.first_block == piece.run.first_block
                yield self._bad(
                    piece, item, (piece.run.start, piece.run.end) if first else (None, None), error
                )
                continue
            yield from self._piece(piece, item, table)

    def _piece(self, piece: Piece, item: ObjectState, table: BlockTable) -> Iterator[Row]:
        run, first = piece.run, piece.first_block
        rows_before = table["rows"][run.first_block : first].sum()
        first_row, rows = run.first_row + int(rows_before), int(table["rows"][first : piece.end_block].sum())
        try:
            columns = self._objects.columns(item, NAMES, first_row, rows)
        except (Corrupt, NotFound) as error:
            yield self._bad(piece, item, _offsets(piece, table, first, piece.end_block), error)
            return
        if self._quick:
            start = int(table["first_queue_offset"][first])
            yield self._good(piece, item, _Good(piece, 0).grown(start, columns, 0))
            return
        good = _Good(piece, 1)
        for block, read in self._blocks(piece, item, table):
            offsets = _offsets(piece, table, block, block + 1)
            if offsets[0] >= offsets[1]:  # cut off, by retention or a rewind: no reader gets it
                continue
            if not isinstance(read, BlockSlice):
                yield self._bad(piece, item, offsets, read, block)
                continue
            at = read.first_row - first_row
            part = {name: values[at : at + read.rows] for name, values in columns.items()}
            wrong = self._wrong(piece, item, read, part)
            if wrong is not None:
                yield self._bad(piece, item, offsets, wrong, block)
                continue
            if good.end not in (None, read.first_queue_offset):
                yield self._good(piece, item, good)
                good = _Good(piece, 1)
            good.grown(read.first_queue_offset, part, len(read.data))
        if good.end is not None:
            yield self._good(piece, item, good)

    def _blocks(
        self, piece: Piece, item: ObjectState, table: BlockTable
    ) -> Iterator[tuple[int, BlockSlice | Corrupt | NotFound]]:
        """Blocks of a piece in order; those of a request that fails are asked for one by one."""
        for first, end in _groups(table, piece):
            try:
                yield from enumerate(self._objects.blocks(item, piece.run, first, end - first), first)
                continue
            except (Corrupt, NotFound) as error:
                if end - first == 1:
                    yield first, error
                    continue
            for block in range(first, end):
                try:
                    (one,) = self._objects.blocks(item, piece.run, block, 1)
                    yield block, one
                except (Corrupt, NotFound) as error:
                    yield block, error

    def _wrong(self, piece: Piece, item: ObjectState, read: BlockSlice, columns: Columns) -> Corrupt | None:
        try:
            check_block(read, columns, piece.run.queue, self._objects.key_of(item))
        except Corrupt as error:
            return error
        return None

    # ---- rows

    def _good(self, piece: Piece, item: ObjectState, good: _Good) -> Row:
        key = self._objects.key_of(item)
        return (
            None,
            *self._queue(piece),
            good.start,
            good.end,
            good.records,
            good.bytes,
            good.blocks,
            key,
            None,
            None,
        )

    def _bad(
        self, piece: Piece, item: ObjectState, offsets: tuple[int | None, int | None], error: Corrupt | NotFound,
        block: int | None = None,
    ) -> Row:  # fmt: skip
        key = self._objects.key_of(item)
        return (error.message, *self._queue(piece), *offsets, 0, 0, 0, key, block, _detail(error))

    def _queue(self, piece: Piece) -> Row:
        queue = piece.run.queue
        return self._place.cluster, self._place.broker, queue.topic, queue.queue_id, piece.run.generation


class _Good:
    """A range of a run that is right, as its records say; it grows block by block. Live offsets and records are counted."""

    def __init__(self, piece: Piece, blocks: int) -> None:
        self._run, self._blocks_each = piece.run, blocks
        self._begin: int | None = None
        self.end: int | None = None
        self.records = self.bytes = self.blocks = 0

    @property
    def start(self) -> int | None:
        """First live queue offset."""
        return None if self._begin is None else max(self._begin, self._run.start)

    def grown(self, first: int, columns: Columns, size: int) -> _Good:
        """With rows that begin at queue offset ``first``; ``size``: bytes of theirs that were read."""
        rows = len(columns["size"])
        owned = None if self._run.dense else columns["queue_offsets"]
        offsets = row_offsets(first, rows, owned)
        self._begin = first if self._begin is None else self._begin
        self.end = max(
            self._run.start, min(first + (rows if owned is None else int(owned.sum())), self._run.end)
        )
        self.records += int(((offsets >= self._run.start) & (offsets < self._run.end)).sum())
        self.bytes += size
        self.blocks += self._blocks_each
        return self


def _groups(table: BlockTable, piece: Piece) -> Iterator[tuple[int, int]]:
    """[first, end) of blocks that are read together."""
    first, size = piece.first_block, 0
    for block in range(piece.first_block, piece.end_block):
        raw = int(table["raw_length"][block])
        if size and size + raw > GROUP_BYTES:
            yield first, block
            first, size = block, 0
        size += raw
    yield first, piece.end_block


def _offsets(piece: Piece, table: BlockTable, first: int, end: int) -> tuple[int, int]:
    """Live queue offsets of blocks [first, end) of a run, by the table."""
    run, starts = piece.run, table["first_queue_offset"]
    stop = run.end if end == run.end_block else int(starts[end])
    return max(run.start, int(starts[first])), min(run.end, stop)


def _detail(error: Corrupt | NotFound) -> str:
    return ", ".join(f"{name}={value}" for name, value in error.fields.items() if name != "key")
