"""Blocks on their way to a reader: what a block is called, where it lies, and what it is once loaded."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.format.block import BlockTable, opened
from tiered.codec.record.frame import edges_of, scan
from tiered.codec.record.layout import queue_offsets
from tiered.codec.types import Buffer
from tiered.errors import Corrupt
from tiered.model import MessageQueue

OVERHEAD_BYTES = 1024
"""What the objects around a cached block cost, beside its bytes."""

_FIRST_BATCH, _BATCH = 4, 64  # rows of a table taken at a time; most reads want few


class BlockKey(NamedTuple):
    """A block's name in cache: its queue and generation, the object it lies in and its number there. No group: all share it."""

    topic: str
    queue_id: int
    generation: int
    commit_seq: int
    object_index: int
    block: int


class BlockRef(NamedTuple):
    """A block that can be fetched. Offsets are queue offsets [first, end) of the whole block, live or not."""

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

    @property
    def end_position(self) -> int:
        """Where the next block's bytes begin."""
        return self.position + self.stored_length

    @property
    def dense(self) -> bool:
        """Whether every record owns one queue offset (no inner batches in the run)."""
        return self.run.queue_offsets == self.run.rows

    @property
    def cost_bytes(self) -> int:
        """What it will take in the cache."""
        return self.raw_length + OVERHEAD_BYTES + 4 * (self.rows + 1) + (0 if self.dense else 8 * self.rows)


@dataclass(frozen=True, slots=True)
class LoadedBlock:
    """A block that was checked. ``edges``: where records begin in ``data``, and its end. ``offsets``: the first queue offset of
    each record; ``None`` when they are consecutive from ``first_offset``."""

    key: BlockKey
    queue: MessageQueue
    data: Buffer
    edges: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64] | None
    first_offset: int
    end_offset: int
    cost_bytes: int

    def __len__(self) -> int:
        return len(self.edges) - 1

    def rows_between(self, first: int, end: int) -> tuple[int, int]:
        """Rows that own queue offsets in [first, end): half-open. A batch that contains ``first`` belongs to it."""
        if self.offsets is None:
            low, high = first - self.first_offset, end - self.first_offset
            return max(0, low), min(len(self), max(high, 0))
        low = bisect_right(self.offsets, first) - 1
        return max(0, low), bisect_left(self.offsets, end)

    def offset_of(self, row: int) -> int:
        """First queue offset of a row; behind the last row, the block's end."""
        if row >= len(self):
            return self.end_offset
        return self.first_offset + row if self.offsets is None else int(self.offsets[row])


def blocks_of(
    run: RunState, item: ObjectState, table: BlockTable, offset: int, *, key: str
) -> Iterator[BlockRef]:
    """Blocks of the live part of a run from the one that holds ``offset`` on. ``Corrupt`` if table and fold disagree."""
    first, end = run.first_block, run.first_block + run.block_count
    if end > len(table):
        raise Corrupt("the block table is too short", key=key, expected=end, found=len(table))
    starts = table["first_queue_offset"][first:end]
    if int(starts[0]) != run.first_queue_offset or int(table["rows"][first:end].sum()) != run.rows:
        raise Corrupt(
            "block table and fold disagree on a run",
            key=key, run=run.id, expected=(run.first_queue_offset, run.rows),
            found=(int(starts[0]), int(table["rows"][first:end].sum())),
        )  # fmt: skip
    low = max(
        0, bisect_right(starts, offset) - 1
    )  # numpy's search would let go of the interpreter lock and wait for it
    high = bisect_left(starts, run.end)
    first_row = run.first_row + int(table["rows"][first : first + low].sum())
    run_end = run.first_queue_offset + run.queue_offsets
    queue, ref = run.queue, run.object
    begin, batch = first + low, _FIRST_BATCH
    while begin < first + high:
        stop = min(begin + batch, first + high)
        part = table[begin : min(stop + 1, end)]
        bounds = part["first_queue_offset"].tolist()
        if len(bounds) == stop - begin:
            bounds.append(run_end)
        for number, row in enumerate(part[: stop - begin].tolist()):
            _, first_offset, rows, position, stored, raw, codec, crc, _, _ = row
            name = BlockKey(
                queue.topic, queue.queue_id, run.generation, ref.commit_seq, ref.index, begin + number
            )
            yield BlockRef(
                name, run, item, first_offset, bounds[number + 1], first_row, rows, position, stored, raw, codec, crc
            )  # fmt: skip
            first_row += rows
        begin, batch = stop, _BATCH


def check_block(ref: BlockRef, stored: memoryview, *, key: str) -> LoadedBlock:
    """A block from its stored bytes. ``Corrupt`` with key and position unless CRC and records are what the tables say."""
    data = opened(
        stored, codec=ref.codec, raw_length=ref.raw_length, crc32c=ref.crc32c, key=key, position=ref.position
    )
    if data is stored:
        data = _apart(stored)
    edges = edges_of(data, ref.rows)
    if edges is None:
        frames = scan(data, base=None, max_record_bytes=len(data))
        raise Corrupt(
            "a block's records do not add up",
            key=key, position=ref.position, expected=ref.rows, found=len(frames), detail=frames.detail,
        )  # fmt: skip
    offsets = None if ref.dense else _own_offsets(ref, data, edges[:-1], key)
    return LoadedBlock(
        ref.key,
        ref.run.queue,
        data,
        edges.astype(np.int32),
        offsets,
        ref.first_offset,
        ref.end_offset,
        ref.cost_bytes,
    )


def _apart(stored: memoryview) -> memoryview:
    """A copy, so that a block does not hold the whole answer it came in (unless that is all there was in it). The interpreter
    lock is kept: getting it back from a busy reader takes longer than the copy."""
    whole = memoryview(stored.obj).nbytes == stored.nbytes
    return stored if whole else memoryview(bytes(stored))


def _own_offsets(ref: BlockRef, data: Buffer, starts: npt.NDArray[np.int64], key: str) -> npt.NDArray[Any]:
    """Queue offsets as the records themselves say, compared with what the table says: no column has to be fetched for them."""
    offsets = queue_offsets(data, starts)
    right = offsets[0] == ref.first_offset and offsets[-1] < ref.end_offset
    if not right or (np.diff(offsets) <= 0).any():
        raise Corrupt(
            "a block's records name other queue offsets than its table",
            key=key, position=ref.position, expected=(ref.first_offset, ref.end_offset),
            found=(int(offsets[0]), int(offsets[-1])),
        )  # fmt: skip
    return offsets
