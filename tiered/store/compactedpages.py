"""Pages of the newest messages of their keys, for readers that ask for a few at a time (DESIGN.md, "Compaction by key", N2)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache

from tiered.archive.state.values import QueueState
from tiered.clock import Clock
from tiered.codec.types import Ints
from tiered.errors import BadRequest, NotFound
from tiered.model import CompactedPage, MessageQueue
from tiered.settings import MIB
from tiered.store.compacted import DecidedMessages, decided_at, records_of
from tiered.store.follower import Follower

KEPT_SECONDS = 60.0
"""What was decided for one page is good for others so long, also if there is more by then."""

MOST_BYTES = 256 * MIB
"""Of a queue whose pages are answered: all its records are read for the first one."""

TIERED_READ = "tiered read --compacted reads any queue"


@dataclass(frozen=True, slots=True)
class _Kept:
    """``start``: what was decided begins there."""

    decided: DecidedMessages
    start: int
    offsets: Ints
    since: float


class CompactedPages:
    """Pages of a store's queues. Thread-safe: one page at a time is decided, whichever queue it is of.

    What is decided for a page is kept for the next ones, of all queues ``memory_bytes`` together. Pages may be of different
    commits: a key that got a newer message meanwhile comes once more, further on, and none is left out.
    """

    def __init__(self, follower: Follower, clock: Clock, *, memory_bytes: int) -> None:
        self._follower, self._clock = follower, clock
        self._memory_bytes = memory_bytes
        self._kept: LRUCache[MessageQueue, _Kept] = LRUCache(
            memory_bytes, getsizeof=lambda kept: max(1, kept.offsets.nbytes)
        )
        self._deciding, self._lock = threading.Lock(), threading.Lock()

    def page(self, queue: MessageQueue, offset: int | None, count: int) -> CompactedPage:
        """At most ``count`` messages from queue offset ``offset`` on; ``None``: from the first.

        ``NotFound`` for a queue that is not archived. ``BadRequest`` for one that has more than ``MOST_BYTES`` of records, or
        more keys than there is memory for.
        """
        with self._deciding:
            kept = self._good(queue, offset)
            if kept is None:
                kept = self._follower.answered(lambda: self._decide(queue, offset or 0))
                self._keep(queue, kept)
        begin = 0 if offset is None else int(np.searchsorted(kept.offsets, offset))
        some = kept.offsets[begin : begin + count]
        decided = copy.copy(kept.decided)  # it goes on to newer views while it is read
        records = records_of(self._follower, decided, some)
        last = begin + count >= len(kept.offsets)
        following = decided.end if last else int(some[-1]) + 1
        return CompactedPage(decided.commit, decided.first, following, last, records)

    def _good(self, queue: MessageQueue, offset: int | None) -> _Kept | None:
        """What was decided before, unless the queue lost its end since, or there is more by now and it is old, or ends before
        what is asked for."""
        with self._lock:
            kept = self._kept.get(queue)
        if kept is None:
            return None
        view = self._follower.ready()
        known = view.known(queue)
        if known is None or not kept.decided.stands(view):
            with self._lock:
                self._kept.pop(queue, None)
            return None
        if kept.start > max(offset or 0, known.min_offset):
            return None
        if known.max_offset == kept.decided.end and known.min_offset == kept.decided.first:
            return kept
        fresh = self._is_fresh(kept)
        return kept if fresh and offset is not None and offset < kept.decided.end else None

    def _is_fresh(self, kept: _Kept) -> bool:
        return self._clock.monotonic() - kept.since < KEPT_SECONDS

    def _keep(self, queue: MessageQueue, kept: _Kept) -> None:
        """For the next pages; but what is good for pages before it stays."""
        with self._lock:
            before = self._kept.get(queue)
            if before is None or kept.start <= before.start or not self._is_fresh(before):
                self._kept[queue] = kept

    def _decide(self, queue: MessageQueue, offset: int) -> _Kept:
        view = self._follower.ready()
        known = view.known(queue)
        if known is None or known.generation is None:
            raise NotFound("this queue is not archived", topic=queue.topic, queue=queue.queue_id)
        _check_bytes(known)
        start = max(offset, known.min_offset)
        decided, found = decided_at(view, queue, memory_bytes=self._memory_bytes, start=start)
        return _Kept(decided, start, self._bounded(queue, found), self._clock.monotonic())

    def _bounded(self, queue: MessageQueue, found: Iterator[Ints]) -> Ints:
        """All these offsets. ``BadRequest`` if they are more than there is memory for."""
        pieces, count = [np.empty(0, np.int64)], 0
        for some in found:  # to its end, which takes local files away
            count += len(some)
            if count * some.itemsize <= self._memory_bytes:
                pieces.append(some)
        if count * pieces[0].itemsize > self._memory_bytes:
            raise BadRequest(
                "this queue has too many keys for pages", expected=f"fetch.compact_bytes={self._memory_bytes}",
                found=f"{count} keys", topic=queue.topic, queue=queue.queue_id,
                hint=f"{TIERED_READ}; or set fetch.compact_bytes higher",
            )  # fmt: skip
        return np.concatenate(pieces)


def _check_bytes(known: QueueState) -> None:
    """``BadRequest`` unless what must be read is bounded."""
    if known.bytes > MOST_BYTES:
        raise BadRequest(
            "this queue is too long for pages of its newest messages: all of it would be read",
            expected=f"at most {MOST_BYTES} bytes", found=f"{known.bytes} bytes",
            topic=known.queue.topic, queue=known.queue.queue_id, hint=TIERED_READ,
        )  # fmt: skip
