"""Pages of the newest messages of their keys, for readers that ask for a few at a time (DESIGN.md, "Compaction by key", N6)."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass

import numpy as np
from cachetools import LRUCache

from tiered.archive.read.projection import Projection, newest_projection
from tiered.archive.read.view import View
from tiered.archive.state.values import QueueState
from tiered.clock import Clock
from tiered.codec.types import Ints
from tiered.errors import BadRequest, NotFound
from tiered.model import CompactedPage, MessageQueue
from tiered.settings import MIB, Compaction
from tiered.store.compacted import DecidedMessages, decided_at, records_of
from tiered.store.follower import Follower

KEPT_SECONDS = 60.0
"""What was decided for one page is good for others so long, also if there is more by then."""

BEHIND = 2
"""How much more than makes maintenance renew a projection may have come since: it needs some time for that."""

MOST_BYTES = 256 * MIB
"""Of records behind the projection that are read for one page."""


@dataclass(frozen=True, slots=True)
class _Kept:
    decided: DecidedMessages
    offsets: Ints
    since: float


class CompactedPages:
    """Pages of a store's queues. Thread-safe: one page at a time is decided, whichever queue it is of.

    What is decided for a page is kept for the next ones, of all queues ``memory_bytes`` together. Pages may be of different
    commits: a key that got a newer message meanwhile comes once more, further on, and none is left out.
    """

    def __init__(
        self, follower: Follower, clock: Clock, compaction: Compaction, *, memory_bytes: int
    ) -> None:
        self._follower, self._clock = follower, clock
        self._compaction, self._memory_bytes = compaction, memory_bytes
        self._kept: LRUCache[MessageQueue, _Kept] = LRUCache(
            memory_bytes, getsizeof=lambda kept: max(1, kept.offsets.nbytes)
        )
        self._deciding, self._lock = threading.Lock(), threading.Lock()

    def page(self, queue: MessageQueue, offset: int | None, count: int) -> CompactedPage:
        """At most ``count`` messages from queue offset ``offset`` on; ``None``: from the first.

        ``NotFound`` for a queue that is not archived. ``BadRequest`` where it would have to be read from its beginning, or
        nearly: no projection holds, or too much came since.
        """
        with self._deciding:
            kept = self._good(queue, offset)
            if kept is None:
                kept = self._follower.answered(lambda: self._decide(queue))
                with self._lock:
                    self._kept[queue] = kept
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
            return None
        if known.max_offset == kept.decided.end and known.min_offset == kept.decided.first:
            return kept
        fresh = self._clock.monotonic() - kept.since < KEPT_SECONDS
        return kept if fresh and offset is not None and offset < kept.decided.end else None

    def _decide(self, queue: MessageQueue) -> _Kept:
        view = self._follower.ready()
        known = view.known(queue)
        if known is None or known.generation is None:
            raise NotFound("this queue is not archived", topic=queue.topic, queue=queue.queue_id)
        projection = newest_projection(view, queue)
        self._check(view, known, projection)
        decided, found = decided_at(view, queue, projection, memory_bytes=self._memory_bytes)
        offsets = np.concatenate([np.empty(0, np.int64), *found])
        return _Kept(decided, offsets, self._clock.monotonic())

    def _check(self, view: View, known: QueueState, projection: Projection | None) -> None:
        """``BadRequest`` unless what must be read is bounded."""
        begin = known.min_offset if projection is None else max(known.min_offset, projection.head.end)
        entries = 0 if projection is None else projection.head.entries
        compaction = self._compaction
        most = BEHIND * max(compaction.min_messages, entries * compaction.renew_percent // 100)
        runs = view.state.runs(known.queue, known.generation or 0, from_offset=begin)
        byte_count = sum(run.flat_end - run.first_flat_offset for run in runs)
        behind = known.max_offset - begin
        hint = "tiered read --compacted reads it; "
        if behind > most or byte_count > MOST_BYTES:
            raise BadRequest(
                "no projection of this queue's keys is near its end, and all that it does not know would be read",
                expected=f"at most {most} messages and {MOST_BYTES} bytes", found=f"{behind} messages and {byte_count} bytes",
                topic=known.queue.topic, queue=known.queue.queue_id,
                hint=hint + "compaction.topics of the daemon asks for projections of a topic, and its maintenance makes them",
            )  # fmt: skip
        if (entries + behind) * np.dtype(np.int64).itemsize > self._memory_bytes:
            raise BadRequest(
                "this queue has too many keys for pages", expected=f"fetch.compact_bytes={self._memory_bytes}",
                found=f"{entries} keys", topic=known.queue.topic, queue=known.queue.queue_id,
                hint=hint + "or set fetch.compact_bytes higher",
            )  # fmt: skip
