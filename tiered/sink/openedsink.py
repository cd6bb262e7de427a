"""A destination that is open, and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.feed.base import FeedPosition, MessageFeed
from tiered.sink.base import Sink
from tiered.sink.choosing import Chooser
from tiered.sink.source import SinkPace


@dataclass(slots=True)
class OpenedSink:
    """``since``: when the oldest message was written that is not flushed. ``unheard``: nothing is given before the archive has
    ``looked``. ``took``: it was flushed since, or there was nothing to flush. ``backfills``: the feed reads the archive.
    ``goes_on_at``: when it is given more of that, where its rate is bounded."""

    sink: Sink
    chooser: Chooser
    feed: MessageFeed
    looked: int
    lineage: int
    log: FeedPosition
    flushed_log: FeedPosition
    pending_bytes: int = 0
    since: float | None = None
    flushed_at: float = 0.0
    unheard: bool = False
    took: bool = False
    backfills: bool = False
    goes_on_at: float = 0.0

    def is_due(self, pace: SinkPace, now: float, *, at_end: bool = False) -> bool:
        """Whether it is time for a flush; where nothing was written, to have the destination hear how far the log is.
        ``at_end``: there is nothing more to write now, so that waiting gathers nothing: only flushes in a row keep their
        distance."""
        if self.since is None:
            moved = bool(self.chooser.changed) or self.log != self.flushed_log
            return moved and now - self.flushed_at >= pace.idle_seconds
        if at_end and now - self.flushed_at >= pace.flush_seconds:
            return True
        most = max(pace.flush_seconds, pace.backfill_seconds) if self.backfills else pace.flush_seconds
        return self.pending_bytes >= pace.flush_bytes or now - self.since >= most
