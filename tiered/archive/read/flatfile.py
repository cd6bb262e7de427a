"""One queue as the archive holds it: RocketMQ's flat commitlog and consume queue, projected from runs and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockRef, blocks_of, record_edges, row_offsets, rows_between
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Ints
from tiered.errors import Corrupt, NotFound
from tiered.model import BoundaryType, MessageQueue, QueueOffset

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
        key, table = self._objects.key_of(item), self._objects.block_table(item)
        owned = self._owned(run)
        refs = blocks_of(run, item, table, first, end, key=key)
        while some := list(islice(refs, READ_BLOCKS)):
            blocks = self._objects.block_bytes(item, some[0].key.block, some[-1].key.block + 1)
            for ref, data in zip(some, blocks, strict=True):
                stretch = _stretch(ref, data, owned, key)
                a, b = rows_between(stretch.queue_offsets, ref.first_offset, ref.rows, first, end)
                if b > a:
                    yield stretch.cut(a, b)

    def _owned(self, run: RunState) -> Ints | None:
        """Queue offsets owned by each record of a run; ``None`` when each owns one."""
        if run.dense:
            return None
        return self.columns(run, ("queue_offsets",))["queue_offsets"].astype(np.int64)

    def columns(self, run: RunState, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Columns of all rows of the run (``ROW_DTYPE`` names), also those that a trim or a rewind cut off."""
        return self._objects.columns(self._objects_of(run), names, run.first_row, run.rows)

    def times(self, run: RunState) -> tuple[Ints, Ints]:
        """First queue offset and store time of every row of the run, also of those that a trim or a rewind cut off."""
        columns = self.columns(run, ("store_timestamp", "queue_offsets"))
        offsets = row_offsets(run.first_queue_offset, run.rows, columns["queue_offsets"])
        return offsets, columns["store_timestamp"].astype(np.int64)

    def time_of(self, run: RunState, offset: int) -> int:
        """Store time of the record that owns a queue offset of the run: one row, where each record owns one offset."""
        if run.dense:
            row = run.first_row + offset - run.first_queue_offset
            return int(
                self._objects.columns(self._objects_of(run), ("store_timestamp",), row, 1)["store_timestamp"][
                    0
                ]
            )
        offsets, times = self.times(run)
        return int(times[np.searchsorted(offsets, offset, side="right") - 1])

    def offset_of(self, run: RunState, row: int) -> int:
        """First queue offset of a row of the run, counted from its first."""
        owned = self._owned(run)
        return run.first_queue_offset + (row if owned is None else int(owned[:row].sum()))

    def records(self, run: RunState, offsets: Ints, *, reverse: bool = False) -> Iterator[tuple[int, bytes]]:
        """The records that own these queue offsets (ascending, inside the run), each with its first one; from the end with
        ``reverse``. A block is fetched once, when it is reached."""
        table = self._objects.block_table(self._objects_of(run))
        starts = table["first_queue_offset"][run.first_block : run.end_block]
        blocks = np.searchsorted(starts, offsets, side="right")
        wanted = np.unique(blocks)
        for block in wanted[::-1] if reverse else wanted:
            mine = offsets[blocks == block]
            found: list[tuple[int, bytes]] = []
            for stretch in self.stretches(run, int(mine[0]), int(mine[-1]) + 1):
                rows = np.unique(np.searchsorted(stretch.queue_offsets, mine, side="right") - 1)
                found.extend(
                    (int(stretch.queue_offsets[i]), bytes(stretch.record(i))) for i in rows if i >= 0
                )
            yield from reversed(found) if reverse else found

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
                hint="tiered queues lists the archived queues",
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

    def time_of(self, offset: int) -> int | None:
        """Store time of the message at ``offset``; ``None`` where none is."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        run = next(iter(self._state.runs(self.queue, self.generation, from_offset=offset)), None)
        return None if run is None or run.start > offset else self._runs.time_of(run, offset)

    def offset_by_time(self, store_time_ms: int, boundary: BoundaryType = BoundaryType.LOWER) -> QueueOffset:
        """The smallest queue offset whose store time is at or after ``store_time_ms``; the maximum when there is none.

        ``UPPER``: the last of the messages from there on that were stored at that very time; ``LOWER`` when none was.
        Store times inside a queue are not monotone: bounds of runs narrow, then the columns decide.
        """
        last: int | None = None
        for run in self._state.runs(self.queue, self.generation):
            if last is None and run.max_store_time < store_time_ms:
                continue
            offsets, times = self._runs.times(run)
            live = (offsets >= run.start) & (offsets < run.end)
            offsets, times = offsets[live], times[live]
            if last is None:
                late = np.flatnonzero(times >= store_time_ms)
                if not len(late):
                    continue
                first = int(late[0])
                if boundary is BoundaryType.LOWER or times[first] != store_time_ms:
                    return QueueOffset(int(offsets[first]))
                offsets, times = offsets[first:], times[first:]
            other = np.flatnonzero(times != store_time_ms)
            same = int(other[0]) if len(other) else len(times)
            if same:
                last = int(offsets[same - 1])
            if len(other):
                break
        return self.max_offset if last is None else QueueOffset(last)


def _stretch(ref: BlockRef, data: bytes, owned: Ints | None, key: str) -> Stretch:
    """The records of a block, checked against what the tables say. ``owned``: of the whole run."""
    edges = record_edges(data, ref.rows, key=key)
    at = ref.first_row - ref.run.first_row
    mine = None if owned is None else owned[at : at + ref.rows]
    offsets = row_offsets(ref.first_offset, ref.rows, mine)
    following = ref.first_offset + (ref.rows if mine is None else int(mine.sum()))
    return Stretch(memoryview(data), edges[:-1], np.diff(edges), offsets, QueueOffset(following))
