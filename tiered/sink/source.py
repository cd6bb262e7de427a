"""What a sink is given to run with: where its messages come from, and how often it is flushed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.feed.base import FeedPosition, Follow, MessageFeed
from tiered.model import MessageQueue
from tiered.provider.wrap import TokenBucket
from tiered.sink.choosing import Chooser


@dataclass(frozen=True, slots=True)
class SinkPace:
    """A flush when ``flush_bytes`` of messages are written, or when the oldest of them is ``flush_seconds`` old, and
    ``backfill_seconds`` while the archive is read: nobody waits for these. At the end of what there is sooner:
    ``flush_seconds`` after the last flush.
    ``poll_seconds``: pause where nothing is new. ``idle_seconds``: how often a position that moved without messages is
    flushed. ``backfill_bytes_per_second``: most of the archive; 0: no bound."""

    flush_bytes: int
    flush_seconds: float
    backfill_seconds: float
    poll_seconds: float
    idle_seconds: float
    backfill_bytes_per_second: int = 0

    def bucket(self, clock: Clock) -> TokenBucket | None:
        """What bounds the rate at which the archive is given, however often the destination is opened anew."""
        rate = self.backfill_bytes_per_second
        return TokenBucket(rate, clock) if rate else None


@dataclass(frozen=True, slots=True)
class SinkSource:
    """Where a sink's messages come from. ``fold``: the archive's newest proven state. ``feed``: from a position on, with or
    without the order of the whole log where the archive is read.
    ``system``: whether a topic is RocketMQ's own. ``backlog``: how many messages the archive has for it. ``find``: of topics
    where messages stored at a time or later begin. ``counts_inner``: as of ``Life``. ``ahead``: whether the feed gives more
    than the archive has."""

    fold: Callable[[], ArchiveState]
    feed: Callable[[FeedPosition, Chooser, bool], MessageFeed]
    system: Callable[[str], bool]
    backlog: Callable[[Chooser], int]
    find: Callable[[ArchiveState, Callable[[str], bool], int], dict[MessageQueue, Follow]]
    counts_inner: Callable[[str, int], bool]
    ahead: bool = False
