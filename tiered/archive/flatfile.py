"""One queue as the archive holds it: RocketMQ's flat commitlog and consume queue, projected from runs and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.entities import ObjectState, RunState
from tiered.archive.objects import BlockSlice, ObjectReader
from tiered.archive.state import ArchiveState
from tiered.codec.frame import scan
from tiered.errors import Corrupt, NotFound
from tiered.model import MessageQueue, QueueOffset

Ints = npt.NDArray[np.int64]

READ_BLOCKS = 64
"""Blocks asked of a run at once while a queue is read through: bounds memory to that many blocks."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of one queue, verbatim. ``data`` holds them back to back; ``starts``/``sizes`` count in it.

    ``queue_offsets`` is the (first) queue offset of each record, ``next_offset`` what follows the last.
    """

    data: memoryview
    starts: Ints
    sizes: Ints
    queue_offsets: Ints
    next_offset: QueueOffset

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, i: int) -> memoryview:
        """The bytes of one record."""
        start = int(self.starts[i])
        return self.data[start : start + int(self.sizes[i])]

    def cut(self, first: int, end: int) -> Stretch:
        """Records [first, end) of this stretch."""
        if first == 0 and end == len(self):
            return self
        base = int(self.starts[first])
        stop = int(self.starts[end - 1] + self.sizes[end - 1])
        following = self.next_offset if end == len(self) else QueueOffset(int(self.queue_offsets[end]))
        return Stretch(
            self.data[base:stop],
            self.starts[first:end] - base,
            self.sizes[first:end],
            self.queue_offsets[first:end],
            following,
        )


class RunReader:
    """Records of single runs, live or closed, of any generation."""

    def __init__(self, state: ArchiveState, objects: ObjectReader) -> None:
        self._state = state
        self._objects = objects

    def stretches(self, run: RunState, first: int, end: int) -> Iterator[Stretch]:
        """Records of one run that own queue offsets in [first, end)."""
        item = self._objects_of(run)
        table = self._objects.block_table(item)
        starts = table["first_queue_offset"][run.first_block : run.first_block + run.block_count]
        lo = max(0, int(np.searchsorted(starts, first, side="right")) - 1)
        hi = int(np.searchsorted(starts, end, side="left"))
        owned = self._owned(run)
        for block in range(lo, hi, READ_BLOCKS):
            count = min(READ_BLOCKS, hi - block)
            for piece in self._objects.blocks(item, run, run.first_block + block, count):
                stretch = _stretch(run, piece, owned, self._objects.key_of(item))
                following = np.append(stretch.queue_offsets[1:], stretch.next_offset)
                a = int(np.searchsorted(following, first, side="right"))
                b = int(np.searchsorted(stretch.queue_offsets, end, side="left"))
                if b > a:
                    yield stretch.cut(a, b)

    def _owned(self, run: RunState) -> Ints | None:
        """Queue offsets owned by each record of a run; ``None`` when each owns one."""
        if run.queue_offsets == run.rows:
            return None
        return self.columns(run, ("queue_offsets",))["queue_offsets"].astype(np.int64)

    def columns(self, run: RunState, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Columns of all rows of the run (``ROW_DTYPE`` names), also those that a trim or a rewind cut off."""
        return self._objects.columns(self._objects_of(run), names, run.first_row, run.rows)

    def _objects_of(self, run: RunState) -> ObjectState:
        item = self._state.object(run.object)
        if item is None:
            raise Corrupt("a run names an object that the fold does not know", queue=run.queue, run=run.id)
        return item


class FlatMessageFile:
    """A queue's current generation. Offsets are queue offsets; a gap inside [min, max) is simply not there."""

    def __init__(self, state: ArchiveState, objects: ObjectReader, queue: MessageQueue) -> None:
        found = state.queue(queue)
        if found is None or found.generation is None:
            raise NotFound(
                "the archive has no such queue",
                hint="tiered queues lists what there is",
                topic=queue.topic,
                queue=queue.queue_id,
            )
        self._state = state
        self._runs = RunReader(state, objects)
        self.queue = queue
        self.generation = found.generation
        self.min_offset = QueueOffset(found.min_offset)
        self.max_offset = QueueOffset(found.max_offset)

    def read(
        self, offset: int, max_messages: int | None = None, *, end: int | None = None
    ) -> Iterator[Stretch]:
        """Records from ``offset`` on, in order, block by block. An inner batch that contains ``offset`` comes whole."""
        left = max_messages
        stop = self.max_offset if end is None else min(end, self.max_offset)
        for run in self._state.runs(self.queue, self.generation, from_offset=max(0, offset)):
            if run.start >= stop or left == 0:
                return
            for stretch in self._runs.stretches(run, max(offset, run.start), min(stop, run.end)):
                taken = stretch if left is None else stretch.cut(0, min(left, len(stretch)))
                yield taken
                if left is not None:
                    left -= len(taken)
                    if left == 0:
                        return

    def offset_by_time(self, store_time_ms: int) -> QueueOffset:
        """The smallest queue offset whose store time is at or after ``store_time_ms``; the maximum when there is none.

        Store times inside a queue are not monotone: bounds of runs narrow, then the columns decide.
        """
        for run in self._state.runs(self.queue, self.generation):
            if run.max_store_time < store_time_ms:
                continue
            columns = self._runs.columns(run, ("store_timestamp", "queue_offsets"))
            offsets = run.first_queue_offset + np.cumsum(columns["queue_offsets"]) - columns["queue_offsets"]
            late = np.flatnonzero(
                (columns["store_timestamp"] >= store_time_ms) & (offsets >= run.start) & (offsets < run.end)
            )
            if len(late):
                return QueueOffset(int(offsets[late[0]]))
        return self.max_offset


def _stretch(run: RunState, piece: BlockSlice, owned: Ints | None, key: str) -> Stretch:
    """Record boundaries of a block, checked against what the tables say."""
    frames = scan(piece.data, base=None, max_record_bytes=len(piece.data))
    if len(frames.starts) != piece.rows or frames.end != len(piece.data):
        raise Corrupt(
            "a block's records do not add up",
            key=key,
            expected=piece.rows,
            found=len(frames.starts),
            detail=frames.detail,
        )
    if owned is None:
        offsets = np.arange(piece.first_queue_offset, piece.first_queue_offset + piece.rows, dtype=np.int64)
        following = piece.first_queue_offset + piece.rows
    else:
        mine = owned[piece.first_row - run.first_row : piece.first_row - run.first_row + piece.rows]
        offsets = piece.first_queue_offset + np.cumsum(mine) - mine
        following = piece.first_queue_offset + int(mine.sum())
    return Stretch(memoryview(piece.data), frames.starts, frames.sizes, offsets, QueueOffset(following))
