"""One queue as the archive holds it: RocketMQ's flat commitlog and consume queue, projected from runs and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import (
    BlockRef,
    blocks_of,
    is_segment,
    own_offsets,
    record_edges,
    row_offsets,
    rows_between,
)
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.chunks import ROWS_PER_CHUNK
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, NotFound
from tiered.model import BoundaryType, MessageQueue, QueueOffset

READ_BLOCKS, READ_BYTES = 64, 16 * 1024 * 1024
"""Blocks, and about as many bytes of records, asked of a run at once while a queue is read through: bounds memory."""


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


class _Span(NamedTuple):
    """Consecutive rows of an object, and the queue offsets [first, end) that they own."""

    first_row: int
    rows: int
    first_offset: int
    end_offset: int


class RunReader:
    """Records of single runs, live or closed, of any generation."""

    def __init__(self, state: ArchiveState, objects: ObjectReader) -> None:
        self._state = state
        self._objects = objects

    def stretches(self, run: RunState, first: int, end: int) -> Iterator[Stretch]:
        """Records of one run that own queue offsets in [first, end)."""
        for some in self._requests(run, first, end, READ_BYTES):
            yield from some

    def some(self, run: RunState, first: int, end: int, most_bytes: int) -> list[Stretch]:
        """The first of ``stretches``: about so many bytes, at least a block; none where there are none."""
        return next(filter(None, map(list, self._requests(run, first, end, most_bytes))), [])

    def _requests(self, run: RunState, first: int, end: int, most_bytes: int) -> Iterator[Iterator[Stretch]]:
        """``stretches`` by the request that they come with."""
        item = self._objects_of(run)
        key, table = self._objects.key_of(item), self._objects.block_table(item)
        for some in _batches(blocks_of(run, item, table, first, end, key=key), most_bytes):
            yield self._request(item, key, some, first, end)

    def _request(
        self, item: ObjectState, key: str, some: Sequence[BlockRef], first: int, end: int
    ) -> Iterator[Stretch]:
        for ref, data in zip(some, self._blocks(item, some), strict=True):
            stretch = _stretch(ref, data, key)
            a, b = rows_between(stretch.queue_offsets, ref.first_offset, ref.rows, first, end)
            if b > a:
                yield stretch.cut(a, b)

    def _blocks(self, item: ObjectState, some: Sequence[BlockRef]) -> Iterable[Buffer]:
        """Neighbouring blocks in one request; one by one where that fails, so that what lies before damage is read."""
        first, end = some[0].key.block, some[-1].key.block + 1
        try:
            return self._objects.block_bytes(item, first, end)
        except Corrupt:
            if len(some) == 1:
                raise
            return (self._objects.block_bytes(item, block, block + 1)[0] for block in range(first, end))

    def columns(self, run: RunState, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Columns of all rows of the run (``ROW_DTYPE`` names), also those that a trim or a rewind cut off."""
        return self._objects.columns(self._objects_of(run), names, run.first_row, run.rows)

    def times(
        self, run: RunState, first: int | None = None, end: int | None = None, *, late_ms: int | None = None
    ) -> Iterator[tuple[Ints, Ints]]:
        """First queue offsets and store times of rows of the run, in order, also of those that a trim or a rewind cut off.

        All rows that own queue offsets in [first, end), perhaps more. Of a segment a band at a time, and from the first on
        that has a record stored at ``late_ms`` or after.
        """
        for span in self._spans(run, first, end, late_ms):
            yield self._span_times(run, span)

    def time_of(self, run: RunState, offset: int) -> int:
        """Store time of the record that owns a queue offset of the run: one row, where each record owns one offset."""
        if run.dense:
            row, item = run.first_row + offset - run.first_queue_offset, self._objects_of(run)
            return int(self._objects.columns(item, ("store_timestamp",), row, 1)["store_timestamp"][0])
        return int(self.times_of(run, np.array([offset], np.int64))[0])

    def times_of(self, run: RunState, offsets: Ints) -> Ints:
        """Store times of the records that own these queue offsets (ascending, inside the run)."""
        found = np.zeros(len(offsets), np.int64)
        for span in self._spans(run, int(offsets[0]), int(offsets[-1]) + 1):
            low, high = np.searchsorted(offsets, (span.first_offset, span.end_offset)).tolist()
            if low < high:
                rows, times = self._span_times(run, span)
                found[low:high] = times[np.searchsorted(rows, offsets[low:high], side="right") - 1]
        return found

    def commit_of(self, run: RunState, offset: int) -> int:
        """The commit that archived the record that owns a queue offset of the run."""
        return int(self.commits_of(run, np.array([offset], np.int64))[0])

    def commits_of(self, run: RunState, offsets: Ints) -> Ints:
        """The commits that archived the records that own these queue offsets (ascending, inside the run)."""
        item = self._objects_of(run)
        if item.level == 0:
            return np.full(len(offsets), run.object.commit_seq, np.int64)
        found = np.zeros(len(offsets), np.int64)
        for span in self._spans(run, int(offsets[0]), int(offsets[-1]) + 1):
            low, high = np.searchsorted(offsets, (span.first_offset, span.end_offset)).tolist()
            if low < high:
                names = ("queue_offsets", "commit_seq")
                columns = self._objects.columns(item, names, span.first_row, span.rows)
                rows = row_offsets(span.first_offset, span.rows, columns["queue_offsets"])
                at = np.searchsorted(rows, offsets[low:high], side="right") - 1
                found[low:high] = columns["commit_seq"][at]
        return found

    def offset_of(self, run: RunState, row: int) -> int:
        """First queue offset of a row of the run, counted from its first."""
        if run.dense:
            return run.first_queue_offset + row
        at = run.first_row + row
        span = next(s for s in self._spans(run) if s.first_row <= at < s.first_row + s.rows)
        owned = self._objects.columns(
            self._objects_of(run), ("queue_offsets",), span.first_row, at - span.first_row
        )
        return span.first_offset + int(owned["queue_offsets"].sum())

    def _spans(
        self, run: RunState, first: int | None = None, end: int | None = None, late_ms: int | None = None
    ) -> Iterator[_Span]:
        """Stretches of rows whose columns are read together: of a segment, whose columns are read band by band, its
        blocks; of any other object the run, or, of a long one that is searched by time, also its blocks."""
        item = self._objects_of(run)
        short = late_ms is None or run.rows <= ROWS_PER_CHUNK
        if not is_segment(item) and (short or self._objects.columns_come_at_once(item)):
            yield _Span(run.first_row, run.rows, run.first_queue_offset, run.end_offset)
            return
        table, late = self._objects.block_table(item), late_ms is None
        low = run.first_queue_offset if first is None else first
        high = run.end_offset if end is None else end
        for ref in blocks_of(run, item, table, low, high, key=self._objects.key_of(item)):
            late = late or int(table["max_store_time"][ref.key.block]) >= (late_ms or 0)
            if late:
                yield _Span(ref.first_row, ref.rows, ref.first_offset, ref.end_offset)

    def _span_times(self, run: RunState, span: _Span) -> tuple[Ints, Ints]:
        names = ("store_timestamp",) if run.dense else ("store_timestamp", "queue_offsets")
        columns = self._objects.columns(self._objects_of(run), names, span.first_row, span.rows)
        offsets = row_offsets(span.first_offset, span.rows, columns.get("queue_offsets"))
        return offsets, columns["store_timestamp"].astype(np.int64)

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


def search_times(
    stretches: Iterable[tuple[Ints, Ints]], store_time_ms: int, boundary: BoundaryType
) -> int | None:
    """What ``FlatMessageFile.offset_by_time`` says, of stretches of queue offsets and store times; ``None``: all are older."""
    last: int | None = None
    for offsets, times in stretches:
        if last is None:
            late = np.flatnonzero(times >= store_time_ms)
            if not len(late):
                continue
            first = int(late[0])
            if boundary is BoundaryType.LOWER or times[first] != store_time_ms:
                return int(offsets[first])
            offsets, times = offsets[first:], times[first:]
        other = np.flatnonzero(times != store_time_ms)
        same = int(other[0]) if len(other) else len(times)
        if same:
            last = int(offsets[same - 1])
        if len(other):
            break
    return last


class TimeIndex(Protocol):
    """Store times of archived messages, known without asking the store; perhaps not of all."""

    def first_since(self, run: RunState, store_time_ms: int) -> int | None:
        """The first queue offset in the live part of a run that was stored at or after a time; ``None`` if that is not known
        here, or none was."""
        ...


class FlatMessageFile:
    """A queue's current generation. Offsets are queue offsets; a gap inside [min, max) is simply not there."""

    def __init__(
        self,
        state: ArchiveState,
        objects: ObjectReader,
        queue: MessageQueue,
        times: TimeIndex | None = None,
    ) -> None:
        """``times``: asked before the columns of objects are."""
        found = state.queue(queue)
        if found is None or found.generation is None:
            raise NotFound(
                "the archive has no such queue",
                hint="tiered queues lists the archived queues",
                topic=queue.topic,
                queue=queue.queue_id,
            )
        self._state = state
        self._times = times
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

    def runs(self, offset: int) -> Iterator[RunState]:
        """Runs that have records from ``offset`` on, in order."""
        for run in self._state.runs(self.queue, self.generation, from_offset=max(0, offset)):
            if run.start >= self.max_offset:
                return
            yield run

    def read_run(self, run: RunState, offset: int) -> Iterator[Stretch]:
        """What ``read`` gives of one of ``runs``; any thread may ask."""
        return self._runs.stretches(run, max(offset, run.start), min(self.max_offset, run.end))

    def read_some(self, run: RunState, offset: int, most_bytes: int) -> list[Stretch]:
        """The first of ``read_run``, about so many bytes, at least a block; none where the run has none. Any thread."""
        first, end = max(offset, run.start), min(self.max_offset, run.end)
        return self._runs.some(run, first, end, most_bytes) if first < end else []

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
        known = self._known(store_time_ms) if boundary is BoundaryType.LOWER else None
        if known is not None:
            return known
        found = search_times(self._times_from(store_time_ms), store_time_ms, boundary)
        return self.max_offset if found is None else QueueOffset(found)

    def _known(self, store_time_ms: int) -> QueueOffset | None:
        """What the index says of the first run that may have such a message: in those before it there is none."""
        if self._times is None:
            return None
        runs = self._state.runs(self.queue, self.generation)
        run = next((run for run in runs if run.max_store_time >= store_time_ms), None)
        found = None if run is None else self._times.first_since(run, store_time_ms)
        return None if found is None else QueueOffset(found)

    def _times_from(self, store_time_ms: int) -> Iterator[tuple[Ints, Ints]]:
        """Queue offsets and store times of live messages, in order, from a place on before which none was stored at that time
        or after."""
        late = False
        for run in self._state.runs(self.queue, self.generation):
            if not late and run.max_store_time < store_time_ms:
                continue
            late_ms = None if late else store_time_ms
            for offsets, times in self._runs.times(run, run.start, run.end, late_ms=late_ms):
                live = (offsets >= run.start) & (offsets < run.end)
                late = late or bool((times[live] >= store_time_ms).any())
                yield offsets[live], times[live]


def _batches(refs: Iterator[BlockRef], most_bytes: int) -> Iterator[list[BlockRef]]:
    """Consecutive blocks, as many as are asked for at once; at least one."""
    some: list[BlockRef] = []
    size = 0
    for ref in refs:
        if some and (len(some) == READ_BLOCKS or size + ref.raw_length > most_bytes):
            yield some
            some, size = [], 0
        some.append(ref)
        size += ref.raw_length
    if some:
        yield some


def _stretch(ref: BlockRef, data: Buffer, key: str) -> Stretch:
    """The records of a block, checked against what the tables say."""
    edges = record_edges(data, ref.rows, key=key)
    starts = edges[:-1]
    if ref.dense:
        offsets = row_offsets(ref.first_offset, ref.rows)
    else:
        offsets = own_offsets(data, starts, ref.first_offset, ref.end_offset, key=key, position=ref.position)
    return Stretch(memoryview(data).cast("B"), starts, np.diff(edges), offsets, QueueOffset(ref.end_offset))
