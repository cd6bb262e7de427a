"""What the rooms of this floor agree on: who reads, how rows are refused, what a read gives, who judges cached blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from tiered.model import MessageQueue, QueueOffset, Records


class ReaderId(Struct, frozen=True, gc=False):
    """Who reads: a consumer group or, for broadcasting consumers, one ``client`` of it, each with a position of its own."""

    group: str
    client: str | None = None


class FetchedRecords(Struct, frozen=True):
    """Records verbatim in queue order with their (first) queue offsets.

    ``next_offset`` is where to go on: behind the last record looked at and behind any hole found there. ``examined``: records
    looked at, those that a filter refused included.
    """

    records: Records
    queue_offsets: tuple[QueueOffset, ...]
    next_offset: QueueOffset
    examined: int


@dataclass(frozen=True, slots=True)
class CacheVerdict:
    """Whether a cached block is worth its memory; ``wanted_at``: when a known reader will reach it, on the clock of ``now``."""

    keep: bool
    wanted_at: float | None = None


class Expiry(Protocol):
    """Who will read what, learnt from who read what. Thread-safe and quick: asked under the cache's lock.

    All times are seconds of ``Clock.monotonic``.
    """

    def observe(
        self, reader: ReaderId, queue: MessageQueue, offset: int, now: float, *, begin: int | None = None
    ) -> None:
        """``reader`` has read ``queue`` up to ``offset``, from ``begin`` if that is known."""
        ...

    def verdict(
        self, queue: MessageQueue, first_offset: int, end_offset: int, loaded_at: float, now: float
    ) -> CacheVerdict:
        """About a cached block that holds [first_offset, end_offset); ``loaded_at``: when it was loaded or last read."""
        ...


class PlainExpiry:
    """Knows nothing of readers: a block stays ``expiry_seconds`` after it was loaded or last read."""

    def __init__(self, expiry_seconds: float) -> None:
        self._expiry_seconds = expiry_seconds

    def observe(
        self, reader: ReaderId, queue: MessageQueue, offset: int, now: float, *, begin: int | None = None
    ) -> None:
        """Forgets it."""

    def verdict(
        self, queue: MessageQueue, first_offset: int, end_offset: int, loaded_at: float, now: float
    ) -> CacheVerdict:
        """By age alone."""
        return CacheVerdict(now - loaded_at < self._expiry_seconds)
