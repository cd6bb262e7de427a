"""From a run of the fold to its blocks, and to its records' places in their queue: the one home of this arithmetic. No I/O.

A run lies in consecutive blocks of one object, in the order of its queue. Each record owns one queue offset, or, as an inner
batch, several: the run is then not dense. A trim or a rewind leaves a part of a run readable, its live part
[``start``, ``end``); its blocks stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.format.block import BlockTable
from tiered.codec.format.sections import SectionKind
from tiered.codec.record.frame import edges_of, scan
from tiered.codec.record.layout import queue_offsets
from tiered.codec.types import Bools, Buffer, Ints
from tiered.errors import Corrupt

KEY_ROW_DTYPE = np.dtype([("queue_id", "<i4"), ("generation", "<i4"), ("queue_offset", "<i8")])
"""A record that may carry a key: its queue, of the topic asked for, and its queue offset."""

COALESCE_BYTES = 8 * 1024 * 1024
"""Largest request made of neighbouring blocks."""

_FIRST_BATCH, _BATCH = 4, 64  # rows of a table taken at a time; most reads want few


class BlockKey(NamedTuple):
    """Which block it is: its queue and generation, the object it lies in and its number there."""

    topic: str
    queue_id: int
    generation: int
    commit_seq: int
    object_index: int
    block: int


class GroupOfBlocks(NamedTuple):
    """The band of a segment that a block lies in: numbers [first, end) of all blocks in it, their rows and raw bytes."""

    first: int
    end: int
    rows: int
    raw_length: int


class BlockRef(NamedTuple):
    """A block of a run and where it lies. Offsets are queue offsets [first, end) of the whole block, live or not; ``first_row``
    counts in the object's columns. In a segment position, stored length and checksum are those of ``group``, which is fetched
    and decoded as a whole; elsewhere that is ``None``."""

    key: BlockKey
    run: RunState
    item: ObjectState
    first_offset: int
    end_offset: int
    first_row: int
    rows: int
    position: int
    stored_length: int
    raw_length: int
    codec: int
    crc32c: int
    group: GroupOfBlocks | None = None

    @property
    def fetched_as(self) -> Hashable:
        """Names what is fetched for it: blocks of the same name come together."""
        group = self.group
        return self.key if group is None else (self.key.commit_seq, self.key.object_index, group.first)

    @property
    def stored_share(self) -> int:
        """Its part of the stored bytes."""
        group = self.group
        return (
            self.stored_length if group is None else self.stored_length * self.raw_length // group.raw_length
        )

    def follows(self, other: BlockRef) -> bool:
        """Whether its stored bytes are the same as those of another block of the object, or lie right behind them."""
        return self.position == other.end_position or self.fetched_as == other.fetched_as

    @property
    def end_position(self) -> int:
        """Where the next block's bytes begin."""
        return self.position + self.stored_length

    @property
    def dense(self) -> bool:
        """Whether every record owns one queue offset."""
        return self.run.dense


def is_segment(item: ObjectState) -> bool:
    """Whether an object is a Parquet segment, which has no tables of our own format."""
    return SectionKind.SEGMENT_FOOTER in item.sections


def blocks_of(
    run: RunState, item: ObjectState, table: BlockTable, offset: int, end: int | None = None, *, key: str
) -> Iterator[BlockRef]:
    """Blocks of a run from the one that holds queue offset ``offset`` on, before ``end``: by default in its live part.

    ``Corrupt`` if table and fold disagree.
    """
    first, end_block = run.first_block, run.end_block
    if end_block > len(table):
        raise Corrupt("the block table is too short", key=key, expected=end_block, found=len(table))
    starts = table["first_queue_offset"][first:end_block]
    if int(starts[0]) != run.first_queue_offset or int(table["rows"][first:end_block].sum()) != run.rows:
        raise Corrupt(
            "block table and fold disagree on a run",
            key=key, run=run.id, expected=(run.first_queue_offset, run.rows),
            found=(int(starts[0]), int(table["rows"][first:end_block].sum())),
        )  # fmt: skip
    # numpy's search would let go of the interpreter lock and wait for it
    low = max(0, bisect_right(starts, offset) - 1)
    high = bisect_left(starts, run.end if end is None else end)
    first_row = run.first_row + rows_before(table, first, first + low)
    queue, ref, positions = run.queue, run.object, table["position"] if is_segment(item) else None
    begin, batch = first + low, _FIRST_BATCH
    while begin < first + high:
        stop = min(begin + batch, first + high)
        part = table[begin : min(stop + 1, end_block)]
        bounds = part["first_queue_offset"].tolist()
        if len(bounds) == stop - begin:
            bounds.append(run.end_offset)
        for number, row in enumerate(part[: stop - begin].tolist()):
            _, first_offset, rows, position, stored, raw, codec, crc, _, _ = row
            name = BlockKey(
                queue.topic, queue.queue_id, run.generation, ref.commit_seq, ref.index, begin + number
            )
            group = None if positions is None else group_at(table, positions, position)
            yield BlockRef(
                name, run, item, first_offset, bounds[number + 1], first_row, rows, position, stored, raw, codec, crc, group
            )  # fmt: skip
            first_row += rows
        begin, batch = stop, _BATCH


def group_at(table: BlockTable, positions: npt.NDArray[Any], position: int) -> GroupOfBlocks:
    """The band that begins at a position of a segment."""
    first, end = bisect_left(positions, position), bisect_right(positions, position)
    return GroupOfBlocks(
        first, end, rows_before(table, first, end), int(table["raw_length"][first:end].sum())
    )


def rows_before(table: BlockTable, first_block: int, block: int) -> int:
    """Rows in blocks [``first_block``, ``block``)."""
    return int(table["rows"][first_block:block].sum())


def coalesced(table: BlockTable, first: int, end: int) -> list[tuple[int, int]]:
    """Numbers [first, end) of neighbouring blocks of at most ``COALESCE_BYTES`` stored, at least one block each."""
    ranges: list[tuple[int, int]] = []
    start = first
    while start < end:
        limit = int(table["position"][start]) + COALESCE_BYTES
        ends = table["position"][start:end] + table["stored_length"][start:end]
        stop = start + max(1, int(np.searchsorted(ends, limit, side="right")))
        ranges.append((start, stop))
        start = stop
    return ranges


# ---- records of a block


def record_edges(data: Buffer, rows: int, *, key: str, position: int | None = None) -> Ints:
    """Where the records of a block begin, and its end. ``Corrupt`` unless it is made of exactly ``rows`` records."""
    edges = edges_of(data, rows)
    if edges is None:
        frames = scan(data, base=None, max_record_bytes=len(data))
        where = {} if position is None else {"position": position}
        raise Corrupt(
            "a block's records do not add up",
            hint=None, key=key, **where, expected=rows, found=len(frames), detail=frames.detail,
        )  # fmt: skip
    return edges


def own_offsets(
    data: Buffer, starts: Ints, first_offset: int, end_offset: int, *, key: str, position: int
) -> Ints:
    """First queue offsets of a block's records as they say themselves, compared with what the table says, [first, end): no
    column has to be fetched for them."""
    offsets = queue_offsets(data, starts)
    right = offsets[0] == first_offset and offsets[-1] < end_offset
    if not right or (np.diff(offsets) <= 0).any():
        raise Corrupt(
            "a block's records name other queue offsets than its table",
            key=key, position=position, expected=(first_offset, end_offset),
            found=(int(offsets[0]), int(offsets[-1])),
        )  # fmt: skip
    return offsets


def row_offsets(first_offset: int, rows: int, owned: npt.NDArray[Any] | None = None) -> Ints:
    """First queue offset of each of ``rows`` rows. ``owned``: how many offsets each owns; ``None``: one."""
    if owned is None:
        return np.arange(first_offset, first_offset + rows, dtype=np.int64)
    mine = owned.astype(np.int64)
    found: Ints = first_offset + np.cumsum(mine) - mine
    return found


def rows_between(offsets: Ints | None, first_offset: int, rows: int, first: int, end: int) -> tuple[int, int]:
    """Rows that own queue offsets in [first, end): half-open. A batch that contains ``first`` belongs to it.

    ``offsets``: the first queue offset of each row; ``None`` when they are consecutive from ``first_offset``.
    """
    if offsets is None:
        low, high = first - first_offset, end - first_offset
        return max(0, low), min(rows, max(high, 0))
    return max(0, bisect_right(offsets, first) - 1), bisect_left(offsets, end)


# ---- several runs of one object, as arrays


class SeveralRuns:
    """What is asked of a single run above, asked of blocks and rows of several at once.

    ``run_of`` in the questions is an index into the runs, of each block or row. Arrays are made of what a question needs alone,
    from fields: plans have 100,000 runs, and each property would cost a call.
    """

    __slots__ = ("_runs",)

    def __init__(self, runs: Sequence[RunState]) -> None:
        self._runs = runs

    def block_ends(self, table: BlockTable, numbers: Ints, run_of: Ints) -> Ints:
        """The queue offset behind each block: where the next block of its run begins, or the run's end."""
        following = np.minimum(numbers + 1, len(table) - 1)
        ends = table["first_queue_offset"][following].astype(np.int64)
        last = numbers + 1 == np.array([run.first_block + run.block_count for run in self._runs])[run_of]
        run_ends = np.array([run.first_queue_offset + run.queue_offsets for run in self._runs])[run_of]
        found: Ints = np.where(last, run_ends, ends)
        return found

    def live_blocks(self, firsts: Ints, ends: Ints, run_of: Ints) -> Bools:
        """Which blocks, of queue offsets [first, end), reach into the live part of their run."""
        low, high = self._live(run_of)
        found: Bools = (firsts < high) & (ends > low)
        return found

    def live_rows(self, offsets: Ints, run_of: Ints) -> Bools:
        """Which rows are in the live part of their run."""
        low, high = self._live(run_of)
        found: Bools = (offsets >= low) & (offsets < high)
        return found

    def batched(self) -> Bools:
        """Which runs have inner batches."""
        return np.array([run.queue_offsets != run.rows for run in self._runs], np.bool_)

    def _live(self, run_of: Ints) -> tuple[Ints, Ints]:
        low = np.array([run.start for run in self._runs])
        high = np.array([run.end for run in self._runs])
        return low[run_of], high[run_of]


def stretch_offsets(
    firsts: Ints, counts: Ints, owned: npt.NDArray[Any] | None = None, batched: Bools | None = None
) -> Ints:
    """``row_offsets`` of stretches of rows, one behind the other: each begins at its ``firsts`` and has ``counts`` rows.

    ``owned``, of all rows, counts for those stretches that are ``batched``.
    """
    if owned is None or batched is None or not batched.any():
        begins = np.cumsum(counts) - counts
        return np.repeat(firsts - begins, counts) + np.arange(int(counts.sum()), dtype=np.int64)
    mine = np.where(np.repeat(batched, counts), owned, 1).astype(np.int64)
    before = np.cumsum(mine) - mine
    begins = np.cumsum(counts) - counts
    found: Ints = np.repeat(firsts - np.append(before, 0)[begins], counts) + before
    return found
