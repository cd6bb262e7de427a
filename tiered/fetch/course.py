"""What one read, or one walk ahead of a reader, goes along: the runs of a queue from an offset on."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from cachetools import LRUCache

from tiered.archive.read.runs import BlockRef, blocks_of
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.block import BlockTable
from tiered.errors import Corrupt
from tiered.filter.base import RowFilter
from tiered.model import MessageQueue, RunId

KNOWN_QUEUES, KNOWN_RUNS = 128, 32
"""Queues whose runs are remembered, and runs of each: a reader and the walk ahead of it are usually that near."""

KNOWN_BLOCKS = 2048
"""Blocks whose places are remembered, about 600 bytes each; a run with more than a sixteenth of that is not."""

_RUNS = 16

Leg = tuple[RunState, ObjectState]
"""A run and the object it lies in."""


class _Stretch(NamedTuple):
    """All legs that a look-up from ``begin`` on would find, up to the end of the last one."""

    generation: int
    begin: int
    legs: tuple[Leg, ...]

    @property
    def end(self) -> int:
        return self.legs[-1][0].end


class KnownBlocks:
    """Blocks of runs that were read lately: a read takes a few of a run and comes back for the next. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: LRUCache[tuple[RunId, int, int], tuple[BlockRef, ...]] = LRUCache(
            KNOWN_BLOCKS, getsizeof=len
        )

    def find(
        self, run: RunState, item: ObjectState, table: BlockTable, offset: int, *, key: str
    ) -> Iterable[BlockRef]:
        """As ``blocks_of``."""
        if run.block_count > KNOWN_BLOCKS // 16:
            return blocks_of(run, item, table, offset, key=key)
        name = run.id, run.start, run.end
        with self._lock:
            known = self._runs.get(name)
        if known is None:
            known = tuple(blocks_of(run, item, table, run.start, key=key))
            with self._lock:
                self._runs[name] = known
        low = bisect_right(known, offset, key=_first_of) - 1
        return known[low:] if low > 0 else known

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._runs.clear()


class KnownRuns:
    """Runs that were looked up lately: most reads go on where one has just ended. Thread-safe.

    Of one state at a time, which never changes; a newer one begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: ArchiveState | None = None
        self._stretches: LRUCache[MessageQueue, _Stretch] = LRUCache(KNOWN_QUEUES)
        self.blocks = KnownBlocks()

    def find(self, state: ArchiveState, queue: MessageQueue, generation: int, offset: int) -> tuple[Leg, ...]:
        """Legs that end above ``offset``, ascending and without one left out; empty: look it up."""
        with self._lock:
            stretch = self._stretches.get(queue) if state is self._state else None
        if stretch is None or stretch.generation != generation or not stretch.begin <= offset < stretch.end:
            return ()
        return stretch.legs[bisect_right(stretch.legs, offset, key=_end_of) :]

    def learn(
        self, state: ArchiveState, queue: MessageQueue, generation: int, offset: int, legs: tuple[Leg, ...]
    ) -> None:
        """``legs`` is what a look-up from ``offset`` on found first."""
        if not legs:
            return
        with self._lock:
            if state is not self._state:
                self._stretches.clear()
                self._state = state
            before = self._stretches.get(queue)
            if before is not None and before.generation == generation and before.end == offset:
                legs, offset = before.legs + legs, before.begin
            surplus = len(legs) - KNOWN_RUNS
            if surplus > 0:
                legs, offset = legs[surplus:], legs[surplus - 1][0].end
            self._stretches[queue] = _Stretch(generation, offset, legs)

    def forget(self) -> None:
        """Let go of everything, the state too."""
        with self._lock:
            self._stretches.clear()
            self._state = None
        self.blocks.forget()


def _end_of(leg: Leg) -> int:
    return leg[0].end


def _first_of(ref: BlockRef) -> int:
    return ref.first_offset


@dataclass(frozen=True, slots=True)
class Course:
    """A queue's generation in one state of the archive, and what is wanted of it."""

    state: ArchiveState
    queue: MessageQueue
    generation: int
    row_filter: RowFilter | None
    known: KnownRuns

    def runs(self, offset: int) -> Iterator[Leg]:
        """Live runs that end above ``offset``, ascending, each with its object. A few are looked up at a time."""
        batch = 1
        while True:
            legs = self.known.find(self.state, self.queue, self.generation, offset)
            last = False
            if not legs:
                batch = min(2 * batch, _RUNS)
                legs = self._look_up(offset, batch)
                last = len(legs) < batch
            yield from legs
            if last:
                return
            offset = legs[-1][0].end

    def _look_up(self, offset: int, most: int) -> tuple[Leg, ...]:
        found = []
        for run in islice(self.state.runs(self.queue, self.generation, from_offset=offset), most):
            item = self.state.object(run.object)
            if item is None:
                raise Corrupt(
                    "a run names an object that the fold does not know", queue=run.queue, run=run.id
                )
            found.append((run, item))
        legs = tuple(found)
        self.known.learn(self.state, self.queue, self.generation, offset, legs)
        return legs

    def blocks(
        self, run: RunState, item: ObjectState, table: BlockTable, offset: int, *, key: str
    ) -> Iterable[BlockRef]:
        """Blocks of the live part of a run from the one that holds ``offset`` on: ``blocks_of``, remembered."""
        return self.known.blocks.find(run, item, table, offset, key=key)

    def hole_after(self, offset: int) -> int:
        """Where the archive goes on when nothing begins at ``offset``: behind a hole, or ``offset`` itself."""
        queue = self.state.queue(self.queue)
        current = queue is not None and queue.generation == self.generation
        if queue is not None and current and offset >= queue.max_offset:
            return offset  # at its end, where most reads of small queues come to: nothing to look up
        following = next(iter(self.state.runs(self.queue, self.generation, from_offset=offset)), None)
        if following is not None:
            return max(offset, following.start)
        return offset if queue is None or not current else max(offset, queue.max_offset)
