"""Blocks on their way to a reader: what they cost, and what they are once loaded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.read.runs import BlockKey, BlockRef, own_offsets, record_edges, rows_between
from tiered.codec.format.block import opened
from tiered.codec.types import Buffer
from tiered.model import MessageQueue

OVERHEAD_BYTES = 1024
"""What the objects around a cached block cost, beside its bytes."""


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
        return rows_between(self.offsets, self.first_offset, len(self.edges) - 1, first, end)

    def offset_of(self, row: int) -> int:
        """First queue offset of a row; behind the last row, the block's end."""
        if row >= len(self):
            return self.end_offset
        return self.first_offset + row if self.offsets is None else int(self.offsets[row])


def cost_bytes(ref: BlockRef) -> int:
    """What a block will take in the cache."""
    return ref.raw_length + OVERHEAD_BYTES + 4 * (ref.rows + 1) + (0 if ref.dense else 8 * ref.rows)


def opened_block(ref: BlockRef, stored: memoryview, *, key: str) -> LoadedBlock:
    """A block from its stored bytes. ``Corrupt`` with key and position unless CRC and records are what the tables say."""
    data = opened(
        stored, codec=ref.codec, raw_length=ref.raw_length, crc32c=ref.crc32c, key=key, position=ref.position
    )
    if data is stored:
        data = _apart(stored)
    edges = record_edges(data, ref.rows, key=key, position=ref.position)
    offsets = None if ref.dense else own_offsets(ref, data, edges[:-1], key=key)
    return LoadedBlock(
        ref.key,
        ref.run.queue,
        data,
        edges.astype(np.int32),
        offsets,
        ref.first_offset,
        ref.end_offset,
        cost_bytes(ref),
    )


def _apart(stored: memoryview) -> memoryview:
    """A copy, so that a block does not hold the whole answer it came in (unless that is all there was in it). The interpreter
    lock is kept: getting it back from a busy reader takes longer than the copy."""
    whole = memoryview(stored.obj).nbytes == stored.nbytes
    return stored if whole else memoryview(bytes(stored))
