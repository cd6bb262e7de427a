"""Which cached blocks are worth their memory, judged by the progress of those who read the queue. Pure: times are passed in.

For a block of a queue with known readers:

* some live reader has it before it: the block is wanted when the first of them will reach it, by position and rate. If that is
  within ``fetch.wanted_ms`` it stays, however long nobody has touched it; otherwise it goes at once;
* every live reader has passed it: it goes at once. Only while readers are arriving (the newest is younger than
  ``fetch.cache_expiry_ms``) it lingers for its age, because groups that start together do not start at one instant.

With nobody known, or nobody whose rate is known yet, age decides alone, as with a plain time to live. A consumer group is one
reader; of a broadcasting group each client is one, so a block goes when all live clients have passed it.

``wanted_at`` ranks what stays: when memory is short, blocks that nobody is known to want go first, least recently used first,
then the one wanted last.
"""

from __future__ import annotations

import math
import threading

from tiered.fetch.base import CacheVerdict, ReaderId
from tiered.fetch.groups import GroupProgress, ReaderPosition
from tiered.model import MessageQueue
from tiered.settings import Fetch

NEAREST = 16
"""Readers asked per block: those nearest behind it. More would not change much and cost the cache's lock."""


KEEP, DROP = CacheVerdict(True), CacheVerdict(False)


class GroupExpiry:
    """The ``Expiry`` of ``fetch.base`` by group progress. Thread-safe; never calls out under its lock."""

    def __init__(
        self,
        *,
        expiry_seconds: float,
        wanted_seconds: float,
        live_seconds: float,
        most_positions: int,
    ) -> None:
        self._expiry_seconds = expiry_seconds
        self._wanted_seconds = wanted_seconds
        self._progress = GroupProgress(live_seconds=live_seconds, most_positions=most_positions)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, settings: Fetch) -> GroupExpiry:
        """As the settings say."""
        return cls(
            expiry_seconds=settings.cache_expiry_ms / 1000,
            wanted_seconds=settings.wanted_ms / 1000,
            live_seconds=settings.live_ms / 1000,
            most_positions=settings.positions,
        )

    def observe(
        self, reader: ReaderId, queue: MessageQueue, offset: int, now: float, *, begin: int | None = None
    ) -> None:
        """``reader`` has read ``queue`` up to ``offset``, from ``begin`` if that is known (it tells seeks from reading)."""
        with self._lock:
            self._progress.observe(reader, queue, offset, now, begin=begin)

    def heard(self, reader: ReaderId, queue: MessageQueue, offset: int, now: float) -> None:
        """``reader`` committed ``offset``, wherever it read: it is live, and there or ahead of it."""
        with self._lock:
            self._progress.heard(reader, queue, offset, now)

    def alive(self, reader: ReaderId, now: float) -> None:
        """A heartbeat of ``reader``: its positions stay live although it reads nothing."""
        with self._lock:
            self._progress.alive(reader, now)

    def forget(self, reader: ReaderId) -> None:
        """``reader`` said good-bye."""
        with self._lock:
            self._progress.forget(reader)

    def verdict(
        self, queue: MessageQueue, first_offset: int, end_offset: int, loaded_at: float, now: float
    ) -> CacheVerdict:
        """About a cached block that holds [first_offset, end_offset); ``loaded_at``: when it was loaded or last read."""
        young = now - loaded_at < self._expiry_seconds
        with self._lock:
            behind, arrived = self._progress.standing(queue, end_offset, now, NEAREST)
            if behind:
                return self._awaited(behind, first_offset, young, now)
        if not young:
            return DROP
        return KEEP if arrived is None or now - arrived < self._expiry_seconds else DROP

    def _awaited(
        self, behind: list[ReaderPosition], first_offset: int, young: bool, now: float
    ) -> CacheVerdict:
        first, unknown = math.inf, False
        for position in behind:
            arrival = position.arrival(first_offset, now)
            if arrival is None:
                unknown = True
            elif arrival < first:
                first = arrival
        if first - now <= self._wanted_seconds:
            return CacheVerdict(True, first)
        return KEEP if young and unknown else DROP

    def positions(self) -> list[tuple[ReaderId, MessageQueue, int, float | None]]:
        """Every position known, with its rate in offsets a second: for status pages and tests."""
        with self._lock:
            return [(p.reader, p.queue, p.offset, p.rate) for p in self._progress]
