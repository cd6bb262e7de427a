"""The archive alone as a feed: for a follower that has no commitlog beside it."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.clock import Clock
from tiered.feed.archived import ArchivedFeed
from tiered.feed.base import FeedBatch, FeedPosition
from tiered.model import PhysicalOffset


class RemoteFeed:
    """``MessageFeed`` of an archive that is looked at every ``every_seconds``. Its end is the archive's at the last look."""

    def __init__(
        self, archive: ArchivedFeed, position: FeedPosition, clock: Clock, every_seconds: float
    ) -> None:
        self._archive = archive
        self._position = position
        self._clock = clock
        self._every_seconds = every_seconds
        self._looked: float | None = None
        self._through: Iterator[FeedBatch] | None = None
        self._end = position.physical or PhysicalOffset(0)

    @property
    def waiting(self) -> str | None:
        """See ``MessageFeed``."""
        return None if self._end else "there is no archive of this broker yet"

    def end(self) -> PhysicalOffset:
        """See ``MessageFeed``."""
        return self._end

    def looked_seconds(self) -> float:
        """See ``MessageFeed``: a look at the bucket costs requests, and is not made at each ``poll``."""
        return 0.0 if self._looked is None else self._clock.monotonic() - self._looked

    def poll(self) -> FeedBatch | None:
        """See ``MessageFeed``."""
        if self._through is None and not self._goes_on():
            return None
        assert self._through is not None
        try:
            found = next(self._through)
        except BaseException:
            self._through, self._looked = None, None  # what was given is known to those who took it
            raise
        if found.position.physical is not None:
            self._through, self._position = None, found.position
        return found

    def _goes_on(self) -> bool:
        """Look at the archive, if it is time: whether it has more."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < self._every_seconds:
            return False
        self._end, self._looked = self._archive.look(), now
        if self._end == 0 or self._end == self._position.physical:
            return False
        self._through = self._archive.through()
        return True
