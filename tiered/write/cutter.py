"""From segments to blocks, objects and runs: where to cut, as arrays.

A block is about ``block_bytes`` of one segment; an object about ``object_bytes`` of blocks; a run is a segment's part in one
object. All positions are *sorted positions* (``Routed.order``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiered.codec.format.block import block_starts
from tiered.codec.types import Ints
from tiered.write.router import QueueEnds, RowOffsets, Segments


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks, runs and objects of a flush.

    ``block_start``/``run_start``/``object_block``: first sorted position (of a block, a run) or first block (of an object), one
    more entry at the end. ``block_run``: the run of each block. ``run_block``: first block of each run, plus end.
    ``run_segment``, ``run_object``, ``run_wave``: segment, object and number among its queue's runs. ``byte_start``: exclusive
    running sum of record sizes, one more entry at the end: the position of each record in the gathered bytes.
    """

    byte_start: Ints
    block_start: Ints
    block_run: Ints
    run_start: Ints
    run_block: Ints
    run_segment: Ints
    run_object: Ints
    run_wave: Ints
    object_block: Ints


def _changes(*columns: Ints) -> Ints:
    """Indices where any column differs from the row before; the first row counts."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    differs = np.zeros(len(columns[0]), dtype=bool)
    differs[0] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _ordinals(group: Ints) -> Ints:
    """Number of each entry among those of its group (groups are adjacent)."""
    first = _changes(group)
    return np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))


def cut_rows(sizes: Ints, segments: Segments, *, block_bytes: int, object_bytes: int) -> Cut:
    """Cut sorted rows of the given ``sizes``. ``object_bytes`` = 0 puts everything into one object."""
    byte_start = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=byte_start[1:])
    per_segment = np.diff(segments.start)
    segment = np.repeat(np.arange(len(per_segment)), per_segment)
    block_start = block_starts(byte_start, segments.start[:-1], block_bytes)
    block_segment = segment[block_start]
    block_object = (
        byte_start[block_start] // object_bytes if object_bytes else np.zeros(len(block_start), np.int64)
    )
    object_first = _changes(block_object)
    block_object = np.repeat(
        np.arange(len(object_first)), np.diff(np.append(object_first, len(block_object)))
    )
    run_block = _changes(block_segment, block_object)
    run_segment = block_segment[run_block]
    run_start = block_start[run_block]
    block_run = np.repeat(np.arange(len(run_block)), np.diff(np.append(run_block, len(block_start))))
    return Cut(
        byte_start=byte_start,
        block_start=np.append(block_start, len(sizes)),
        block_run=block_run,
        run_start=np.append(run_start, len(sizes)),
        run_block=np.append(run_block, len(block_start)),
        run_segment=run_segment,
        run_object=block_object[run_block],
        run_wave=_ordinals(segments.group[run_segment]),
        object_block=np.append(object_first, len(block_start)),
    )


def flat_offsets(pieces: Cut, segments: Segments, ends: QueueEnds) -> Ints:
    """First flat offset of each run: the fold's flat end plus the bytes before it in this generation; 0 begins one."""
    byte_start, run_start, run_segment = pieces.byte_start, pieces.run_start[:-1], pieces.run_segment
    group, generation = segments.group, segments.generation
    first = _changes(group, generation)
    count = np.diff(np.append(first, len(group)))
    base_byte = np.repeat(byte_start[segments.start[:-1]][first], count)
    base_flat = np.repeat(np.where(segments.is_new[first], 0, ends.flat_end[group[first]]), count)
    result: Ints = byte_start[run_start] - base_byte[run_segment] + base_flat[run_segment]
    return result


def offsets_covered(cut_: Cut, offsets: RowOffsets) -> tuple[Ints, Ints]:
    """First queue offset and number of queue offsets owned, of each run."""
    first, last = cut_.run_start[:-1], cut_.run_start[1:] - 1
    lead = offsets.queue_offset[first]
    return lead, offsets.queue_offset[last] + offsets.owned[last] - lead
