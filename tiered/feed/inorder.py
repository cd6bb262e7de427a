"""What the archive holds of many queues, in the order in which the broker stored it: queues are read side by side, and as much
is given at a time as no queue can have anything before.

Memory is bounded in bytes of records (``LogOrder``), whatever a queue's blocks are: of a larger one the beginning is kept, and
it is read again for what follows. Most of the bound is shared evenly; the rest goes to queues that need more, so that those
which have most of the messages are read in the largest pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from tiered.archive.read.flatfile import READ_BYTES, Stretch
from tiered.archive.state.values import RunState
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.layout import physical_offsets
from tiered.codec.types import Ints
from tiered.errors import BadRequest
from tiered.feed.runsahead import QueueToRead

MAX_QUEUES = 1024
"""Side by side: each is asked, and held, for itself."""

_LINEAGE = 1 << 50
"""More than any physical offset: what a later lineage has comes behind what an earlier one had."""


class LogOrder(NamedTuple):
    """Bytes of records that are ``held`` of all queues together, and that are given at a time; a record may be larger."""

    held_bytes: int
    batch_bytes: int


class _Head:
    """Where the reading of a queue is: records that were not given yet."""

    def __init__(self, queue: QueueToRead) -> None:
        self.queue = queue
        self.next = queue.first
        """The first queue offset that is not held or given."""
        self._runs = queue.file.runs(max(queue.first, int(queue.file.min_offset)))
        self._run = next(self._runs, None)
        self._parts: deque[tuple[Stretch, Ints]] = deque()
        self._at = 0
        """Of the first of them: records that were given."""
        self.held_bytes = 0

    @property
    def holds(self) -> bool:
        """Whether something is there to give."""
        return bool(self._parts)

    @property
    def left_bytes(self) -> int | None:
        """That are there to give, of one that may have more; ``None``: all that it has is held."""
        if self._run is None:
            return None
        return self.held_bytes - (int(self._parts[0][0].starts[self._at]) if self._parts else 0)

    @property
    def last(self) -> int:
        """Place of the last record that is held."""
        return int(self._parts[-1][1][-1])

    def upto(self, bound: int) -> Iterator[tuple[Ints, Ints]]:
        """Of what is held up to a place: places, and sizes in bytes."""
        at = self._at
        for stretch, places in self._parts:
            end = int(np.searchsorted(places, bound, "right"))
            yield places[at:end], stretch.sizes[at:end]
            if end < len(places):
                return
            at = 0

    def fill(self, most_bytes: int) -> None:
        """Read on, until about so many bytes are held; then nothing is held only at the end."""
        if self._at:
            self._let_go()
        while self._run is not None and (not self._parts or most_bytes - self.held_bytes >= most_bytes // 2):
            found = self.queue.file.read_some(self._run, self.next, most_bytes - self.held_bytes)
            if not found:
                self._run = next(self._runs, None)
            for stretch in found:
                if not self._hold(stretch, self._run, most_bytes):
                    return

    def _let_go(self) -> None:
        """What was given of the first stretch is held no longer."""
        stretch, places = self._parts[0]
        rest = _alone(stretch.cut(self._at, len(stretch)))
        self._parts[0] = rest, places[self._at :]
        self.held_bytes -= len(stretch.data) - len(rest.data)
        self._at = 0

    def _hold(self, stretch: Stretch, run: RunState | None, most_bytes: int) -> bool:
        """Keep a stretch, or its beginning; false: what comes behind it does not fit."""
        assert run is not None
        room = most_bytes - self.held_bytes
        whole = len(stretch.data) <= room
        if not whole:
            fit = int(np.searchsorted(stretch.starts + stretch.sizes, room, "right"))
            if fit == 0 and self._parts:
                return False
            stretch = stretch.cut(0, max(1, fit))
        stretch = _alone(stretch)
        places = physical_offsets(stretch.data, stretch.starts) + run.lineage * _LINEAGE
        self._parts.append((stretch, places))
        self.held_bytes += len(stretch.data)
        self.next = int(stretch.next_offset)
        return whole

    def take(self, bound: int) -> Iterator[tuple[Stretch, Ints]]:
        """The records up to a place, and their places."""
        while self._parts:
            stretch, places = self._parts[0]
            first, end = self._at, int(np.searchsorted(places, bound, "right"))
            if end > first:
                yield stretch.cut(first, end), places[first:end]
            if end < len(places):
                self._at = end
                return
            self._parts.popleft()
            self.held_bytes -= len(stretch.data)
            self._at = 0


class LogReading:
    """Records of queues from where they are wanted, in the broker's order. ``Invalid`` for more than ``MAX_QUEUES``."""

    def __init__(self, queues: Sequence[QueueToRead], order: LogOrder, ahead: int) -> None:
        """Up to ``ahead`` queues are read at once."""
        if len(queues) > MAX_QUEUES:
            raise BadRequest(
                "the order of a whole log is kept of no more queues than this", expected=f"≤ {MAX_QUEUES}", found="more",
                hint="tiered sink topics gives fewer topics to it, or add a sink that keeps each queue's order alone",
            )  # fmt: skip
        self.heads = [_Head(queue) for queue in queues]
        self._order = order
        self._ahead = ahead

    def through(self) -> Iterator[tuple[bytes, Frames]]:
        """All of them: stretches, each with the frames in that order."""
        heads = self.heads
        pool = ThreadPoolExecutor(self._ahead, "feed-ahead")
        try:
            while heads:
                self._fill(heads, pool)
                heads = [head for head in heads if head.holds]
                for bound in _bounds(heads, self._order.batch_bytes) if heads else ():
                    yield _merged([part for head in heads for part in head.take(bound)])
        finally:  # whoever drops this waits for nothing
            pool.shutdown(wait=False, cancel_futures=True)

    def _fill(self, heads: Sequence[_Head], pool: ThreadPoolExecutor) -> None:
        """Those of which nothing is left read on, and with them those of which little is: so all are asked now and then, and
        not one after each batch."""
        even = even_bytes(self._order.held_bytes, len(heads))
        waiting = [head for head in heads if (left := head.left_bytes) is not None and left <= even // 2]
        held = [head.held_bytes for head in heads]
        most = min(even + more_bytes(self._order.held_bytes, held, len(waiting)), READ_BYTES)
        list(pool.map(_Head.fill, waiting, repeat(most)))


def even_bytes(most_bytes: int, queues: int) -> int:
    """What each of these queues may have in any case."""
    return (most_bytes - most_bytes // 4) // queues


def more_bytes(most_bytes: int, held: Sequence[int], waiting: int) -> int:
    """What each of ``waiting`` queues may have beyond that now, so that all together hold no more than ``most_bytes``.
    ``held``: what each of all queues has."""
    even = even_bytes(most_bytes, len(held))
    beyond = sum(max(0, each - even) for each in held)
    # Not all of it at once: others may want more before it comes back.
    return max(0, most_bytes // 4 - beyond) // (2 * max(1, waiting))


def _bounds(heads: Sequence[_Head], most_bytes: int) -> list[int]:
    """Up to where is given at a time, about so many bytes each. The last: up to where nothing is missing, since what a queue
    may still have lies behind the last that is held of it."""
    last = min(head.last for head in heads)
    held = [part for head in heads for part in head.upto(last)]
    places = np.concatenate([places for places, _ in held])
    sizes = np.concatenate([sizes for _, sizes in held])
    order = np.argsort(places, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    edges = np.flatnonzero(np.diff(before // most_bytes))
    return [*places[order][edges].tolist(), last]


def _alone(stretch: Stretch) -> Stretch:
    """With bytes of its own, so that the block they come from is not held along."""
    return replace(stretch, data=memoryview(bytes(stretch.data)))


def _merged(parts: Sequence[tuple[Stretch, Ints]]) -> tuple[bytes, Frames]:
    bases = np.cumsum([0, *(len(stretch.data) for stretch, _ in parts[:-1])])
    data = b"".join(stretch.data for stretch, _ in parts)
    starts = np.concatenate([s.starts + base for (s, _), base in zip(parts, bases, strict=True)])
    sizes = np.concatenate([stretch.sizes for stretch, _ in parts])
    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
    return data, Frames(starts[order], sizes[order], len(data), Stop.END)
