"""The newest message of each key of a queue, for a reader that lasts longer than the objects of its view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from tiered.archive.read.compaction import CompactedQueue, archived_by, straddling_offset
from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.view import View
from tiered.codec.types import Ints
from tiered.errors import NotFound, Unavailable
from tiered.model import MessageQueue
from tiered.store.follower import Follower


class CompactedMessages:
    """What compaction keeps of a queue's current generation at one commit (DESIGN.md, "Compaction by key"), read with looks at
    the log where an object of the view is gone (V1 to V4). Of one thread.

    Which messages are kept is decided on one view; where that cannot be read to its end, all of it is decided anew on the next.
    Their records may come from later views, as long as these hold the same messages. What retention takes meanwhile is left out
    and counted; where the broker loses the queue's end meanwhile, the answer is ``Unavailable``, and right when asked again.

    ``memory_bytes``: see ``CompactedQueue``. ``progress`` hears how many offsets of the queue were read.
    """

    def __init__(
        self,
        follower: Follower,
        queue: MessageQueue,
        *,
        memory_bytes: int,
        progress: Callable[[int], None] = lambda offsets: None,
    ) -> None:
        self._follower = follower
        self._queue = queue
        self._memory_bytes = memory_bytes
        self._progress = progress
        self.without_key = 0
        """See ``CompactedQueue.without_key``; known when ``records`` gave its first."""
        self.went = 0
        """Messages that were kept, and that retention took before they were read."""

    def records(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """The records that are kept, from queue offset ``start`` on, each with its first offset."""
        decided, found = self._follower.answered(self._decide)
        self.without_key = decided.found.without_key
        for offsets in found:
            yield from records_of(self._follower, decided, offsets[offsets >= start], self._note)

    def _note(self, went: int) -> None:
        self.went += went

    def _decide(self) -> tuple[DecidedMessages, Iterator[Ints]]:
        view = self._follower.ready()
        return decided_at(view, self._queue, memory_bytes=self._memory_bytes, progress=self._progress)


def decided_at(
    view: View,
    queue: MessageQueue,
    *,
    memory_bytes: int,
    start: int = 0,
    progress: Callable[[int], None] = lambda offsets: None,
) -> tuple[DecidedMessages, Iterator[Ints]]:
    """What is kept of a queue from ``start`` on, at the commit of a view: how to read it, and its offsets, some at a time. What
    has to be read to know that is read by then."""
    found = CompactedQueue(view, queue, memory_bytes=memory_bytes, start=start, progress=progress)
    offsets = found.offsets()
    first = next(offsets, None)
    return DecidedMessages(view, queue, found), offsets if first is None else chain((first,), offsets)


def records_of(
    follower: Follower, decided: DecidedMessages, left: Ints, went: Callable[[int], None] = lambda count: None
) -> Iterator[tuple[int, bytes]]:
    """Records at some of the offsets: where one cannot be read, it and those behind it are asked of the next view. ``went``
    hears how many retention took."""
    items: Iterator[tuple[int, bytes]] | None = None
    given = 0

    def step() -> tuple[int, bytes] | None:
        nonlocal left, items, given
        if items is None:
            behind = left[given:]
            left, given = decided.still_there(follower.ready(), behind), 0
            went(len(behind) - len(left))
            items = decided.found.records(left) if len(left) else iter(())
        try:
            item = next(items, None)
        except NotFound:
            items = None
            raise
        given += 1
        return item

    while (item := follower.answered(step)) is not None:
        yield item


class DecidedMessages:
    """Which messages are kept at ``commit``, of those of ``generation`` from ``first`` to ``end``; and the view that their
    records are read from. Of one thread."""

    def __init__(self, view: View, queue: MessageQueue, found: CompactedQueue) -> None:
        known = view.known(queue)
        self.generation = None if known is None else known.generation
        self.first, self.end = (0, 0) if known is None else (known.min_offset, known.max_offset)
        self.commit = -1 if view.head is None else view.head.seq
        self._view, self._queue = view, queue
        self.found = found

    def stands(self, view: View) -> bool:
        """Whether the queue neither began anew since, nor lost its end: it may end where it did and hold other messages."""
        known = view.known(self._queue)
        if known is None or known.generation is None or known.generation != self.generation:
            return False
        return not view.state.lost_its_end(self._queue, known.generation, self.commit)

    def still_there(self, view: View, offsets: Ints) -> Ints:
        """Those of ``offsets`` whose messages a view still has; they are read from it from now on.

        ``Unavailable`` if other messages may be in their place: a rewind cuts a queue at its end, and what comes there comes
        with a later commit; so if the last message is what it was, all are.
        """
        if view is self._view or not len(offsets):
            return offsets
        known = view.known(self._queue)
        if known is None or known.generation != self.generation:
            raise self._began_anew()
        run = next(view.state.runs(self._queue, known.generation or 0), None)
        if run is None or run.start >= self.end:
            return offsets[:0]
        archived = archived_by(view, self._queue, run.generation, self.end)
        if archived is None or archived > self.commit:
            raise self._began_anew()
        begins = straddling_offset(RunReader(view.state, view.objects), run)
        self.found, self._view = CompactedQueue(view, self._queue, memory_bytes=0), view
        kept: Ints = np.maximum(offsets[offsets >= begins], run.start)
        return kept

    def _began_anew(self) -> Unavailable:
        return Unavailable(
            "the broker lost the end of the queue while it was read",
            hint="read again",
            topic=self._queue.topic,
            queue=self._queue.queue_id,
        )
