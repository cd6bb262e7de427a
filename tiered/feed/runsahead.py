"""Runs of an archive in the order in which they are wanted, with the short ones that come next under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from tiered.archive.read.flatfile import FlatMessageFile, Stretch
from tiered.archive.state.values import RunState
from tiered.errors import TieredError
from tiered.feed.base import Follow

_SHORT_BLOCKS = 4
"""Of a run that is read ahead, whole. A longer one is read when it is its turn, as it goes: it is worth its own requests."""


class QueueToRead(NamedTuple):
    """A queue, and from which offset on. ``follow``: how far its follower was; ``anew``: whether it is another queue now."""

    file: FlatMessageFile
    follow: Follow
    anew: bool

    @property
    def first(self) -> int:
        """The first offset that is wanted."""
        return 0 if self.anew else self.follow.next


class RunToRead(NamedTuple):
    """A run of a queue; ``None``: the queue has no more."""

    queue: QueueToRead
    run: RunState | None

    def stretches(self) -> Iterator[Stretch]:
        """Its records."""
        return iter(()) if self.run is None else self.queue.file.read_run(self.run, self.queue.first)


class _Read(NamedTuple):
    """The records of a run, up to where it cannot be read."""

    stretches: list[Stretch]
    error: TieredError | None


def in_turn(queues: Iterator[QueueToRead], ahead: int) -> Iterator[tuple[RunToRead, Iterator[Stretch]]]:
    """Every run of each queue with its records, and what ends the queue. Up to ``ahead`` short runs are under way at once, in
    threads of their own, also of queues that come later; with 1 there are none. An error comes behind what lies before it.
    Memory: ``ahead`` times the records of a few blocks."""
    wanted = _runs(queues)
    if ahead < 2:
        yield from ((each, each.stretches()) for each in wanted)
        return
    pool, waiting = (
        ThreadPoolExecutor(ahead, "feed-ahead"),
        deque[tuple[RunToRead, Future[_Read] | None]](),
    )
    try:
        for each in wanted:
            short = each.run is not None and each.run.block_count <= _SHORT_BLOCKS
            waiting.append((each, pool.submit(_all_of, each) if short else None))
            if len(waiting) >= ahead:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    finally:  # whoever drops this waits for nothing
        pool.shutdown(wait=False, cancel_futures=True)


def _next(waiting: deque[tuple[RunToRead, Future[_Read] | None]]) -> tuple[RunToRead, Iterator[Stretch]]:
    each, read = waiting.popleft()
    return each, each.stretches() if read is None else _given(read.result())


def _given(read: _Read) -> Iterator[Stretch]:
    yield from read.stretches
    if read.error is not None:
        raise read.error


def _all_of(each: RunToRead) -> _Read:
    found: list[Stretch] = []
    try:
        found.extend(each.stretches())
    except TieredError as error:
        return _Read(found, error)
    return _Read(found, None)


def _runs(queues: Iterator[QueueToRead]) -> Iterator[RunToRead]:
    for queue in queues:
        for run in queue.file.runs(max(queue.first, queue.file.min_offset)):
            yield RunToRead(queue, run)
        yield RunToRead(queue, None)
