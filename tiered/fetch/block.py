"""Blocks on their way to a reader: what they cost, and what they are once loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiered.archive.read.runs import BlockKey, BlockRef, own_offsets, record_edges, rows_between
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.block import opened
from tiered.codec.types import Buffer
from tiered.model import MessageQueue

if TYPE_CHECKING:
    from tiered.archive.read.segments import SealedTables

OVERHEAD_BYTES = 1024
"""What the objects around a cached block cost, beside its bytes."""

DECODING = 3
"""A band takes about so many times its records while it is decoded: as columns, and laid down once more."""


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


def charge_bytes(refs: Sequence[BlockRef]) -> int:
    """What a load of these blocks takes until they are in the cache: of a segment, whole bands on their way through its
    columns."""
    whole = {ref.fetched_as: ref for ref in refs}
    return sum(ref.stored_length + _opening_bytes(ref) for ref in whole.values())


def _opening_bytes(ref: BlockRef) -> int:
    group = ref.group
    if group is None:
        return cost_bytes(ref)
    blocks = group.end - group.first
    return DECODING * group.raw_length + blocks * (OVERHEAD_BYTES + 4) + 12 * group.rows


def opened_band(
    tables: SealedTables, ref: BlockRef, stored: memoryview, head: Buffer | None
) -> Iterator[LoadedBlock]:
    """All blocks of the band that a block lies in, from the band's stored bytes and the head of its row group. ``Corrupt``
    unless every checksum is right. Each keeps its own records alone in memory."""
    directory, segment = tables.segment.directory, tables.segment
    number = int(tables.band_of[ref.key.block])
    found = tables.records(number, stored, head)
    parts = directory.parts_of(number)
    first = ref.group.first if ref.group is not None else 0
    names = ["first_row", "rows", "first_queue_offset", "queue_offsets", "queue_id", "generation"]
    whole = len(parts) == 1
    for block, part in enumerate(parts[names].tolist(), first):
        row, rows, first_offset, owned, queue_id, generation = part
        starts = found.edges[row : row + rows + 1]
        begin, end = int(starts[0]), int(starts[-1])
        data = found.buffer[begin:end]
        if not whole:
            data = memoryview(bytes(data))
        starts = starts - begin
        offsets = None
        if owned != rows:
            offsets = own_offsets(
                data, starts[:-1], first_offset, first_offset + owned, key=segment.key, position=ref.position
            )
        queue = MessageQueue(directory.topic, queue_id)
        key = ref.key._replace(queue_id=queue_id, generation=generation, block=block)
        cost = len(data) + OVERHEAD_BYTES + 4 * len(starts) + (0 if offsets is None else 8 * len(offsets))
        yield LoadedBlock(
            key, queue, data, starts.astype(np.int32), offsets, first_offset, first_offset + owned, cost
        )


def opened_block(
    ref: BlockRef, stored: memoryview, *, key: str, dictionary: Dictionary | None = None
) -> LoadedBlock:
    """A block from its stored bytes. ``Corrupt`` with key and position unless CRC and records are what the tables say."""
    data = opened(
        stored, codec=ref.codec, raw_length=ref.raw_length, crc32c=ref.crc32c, key=key, position=ref.position,
        dictionary=dictionary,
    )  # fmt: skip
    if data is stored:
        data = _apart(stored)
    edges = record_edges(data, ref.rows, key=key, position=ref.position)
    offsets = (
        None
        if ref.dense
        else own_offsets(data, edges[:-1], ref.first_offset, ref.end_offset, key=key, position=ref.position)
    )
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
