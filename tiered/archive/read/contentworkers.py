"""Objects looked at by processes of their own, one object each: threads share the interpreter's lock, and records of a gigabyte
hold it for longer than the store needs to bring them."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import connection, get_context, parent_process

from tiered.allocator import keep_freed_memory
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.blockwindow import ContentStep
from tiered.archive.read.content import ContentCheck
from tiered.archive.state.values import ObjectState, RunState
from tiered.errors import Unavailable
from tiered.provider.base import Provider

BATCH_BYTES = 64 << 20
"""Small objects are given to a process together, up to this: what comes next is under way while it looks at one."""
_WAITING = 2  # batches for each process that were given out and not told yet

Task = tuple[ObjectState, Sequence[RunState]]


@dataclass(frozen=True, slots=True)
class OpenedElsewhere:
    """What another process needs to look at an archive's objects; travels there by pickle, keys of encryption included.

    ``provider`` opens the store that the archive lies in, as it is to be used by each process: what it may take of a rate is a
    part of the whole. ``ahead``: see ``ContentCheck``.
    """

    provider: Callable[[], Provider]
    keys: ArchiveKeys
    archive_id: bytes
    ahead: int


class ContentWorkers:
    """``ContentCheck.each`` with records, in ``processes``. The first one to look at something starts them.

    Memory: for each process an interpreter with this program, some 100 MiB, and what ``ContentCheck`` says. A process ends
    with the one that started it, however that ends.
    """

    def __init__(self, place: OpenedElsewhere, processes: int) -> None:
        self._place, self._processes = place, processes

    def each(self, objects: Iterable[Task]) -> Iterator[tuple[ObjectState, Iterable[ContentStep] | None]]:
        """``ContentCheck.steps`` of several objects, and ``None`` behind those of each, in order. What a process raises is
        raised here; ``Unavailable`` if one is gone: then not everything was looked at."""
        context = get_context(
            "spawn"
        )  # a fork of a process with threads may wait for locks that nobody holds
        waiting: deque[tuple[list[Task], Future[list[list[ContentStep]]]]] = deque()
        pool = ProcessPoolExecutor(self._processes, context, _begin, (self._place,))
        try:
            for batch in _batches(objects):
                waiting.append((batch, pool.submit(_look, batch)))
                if len(waiting) >= _WAITING * self._processes:
                    yield from _told(*waiting.popleft())
            while waiting:
                yield from _told(*waiting.popleft())
        except BrokenProcessPool as error:
            raise Unavailable(
                "a process that looked at objects ended before it was done, so that not all of them were looked at",
                hint="see whether the system ended it for its memory; fewer processes need less",
                processes=self._processes,
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _batches(objects: Iterable[Task]) -> Iterator[list[Task]]:
    batch: list[Task] = []
    size = 0
    for task in objects:
        if batch and size + task[0].length > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task[0].length
    if batch:
        yield batch


def _told(
    batch: list[Task], looked: Future[list[list[ContentStep]]]
) -> Iterator[tuple[ObjectState, Iterable[ContentStep] | None]]:
    for (item, _), steps in zip(batch, looked.result(), strict=True):
        yield item, steps
        yield item, None


# --- in a process of its own

_place: OpenedElsewhere | None = None  # a pool has no other place for what its processes keep


def _begin(place: OpenedElsewhere) -> None:
    """Once in each process. Nothing here may fail: a pool does not tell why."""
    global _place
    _place = place
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # who interrupts means all: the first process ends the others
    threading.Thread(  # noqa: TID251 - it outlives all else here, and must not keep the process from ending
        target=_end_with_parent, name="parent", daemon=True
    ).start()
    keep_freed_memory()


@cache
def _check() -> ContentCheck:
    place = _place
    assert place is not None, "a pool's process begins with _begin"
    return ContentCheck(
        place.provider(), place.keys, place.archive_id, records=True, ahead=place.ahead, passes_over=True
    )


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)  # nobody hears what it finds


def _look(batch: Sequence[Task]) -> list[list[ContentStep]]:
    check = _check()
    check.expect(check.first_range(item) for item, _ in batch)
    return [list(check.steps(item, runs)) for item, runs in batch]
