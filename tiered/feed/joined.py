"""The archive and the live log as one feed.

The live log is read as long as it has what comes next. Where it has not, because its broker deleted it, or it cannot be read
there, the archive is read up to its head, and the log again from where that commit ends: all messages below that place
are archived and none above, so nothing is left out and nothing comes twice.

That holds of an archive of this very log. While it has the tail that a broker lost, which the daemon takes back when it
sees the broker again, nothing is taken from it: whoever joins the two waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from tiered.errors import NotFound
from tiered.feed.archived import NOTHING, ArchivedFeed, reached
from tiered.feed.base import FeedBatch, FeedPosition, LogAnchor
from tiered.feed.live import LiveFeed, LogGap
from tiered.model import PhysicalOffset

log = logging.getLogger("tiered.feed")


class JoinedFeed:
    """``MessageFeed`` from ``position`` on. Without an ``archive``, what the log no longer has is passed over: followers see by
    the offsets of the next message of a queue that some are missing, and this process's log says where. ``LogCut`` (of
    ``live``): it is not the log that was followed; make another feed, from the beginning."""

    def __init__(self, live: LiveFeed, archive: ArchivedFeed | None, position: FeedPosition) -> None:
        self._live = live
        self._archive = archive
        self._position = position
        self._through: Iterator[FeedBatch] | None = None
        self._waiting: str | None = None
        self._joined = False
        self._anchor: LogAnchor | None = None
        """Of the log where the archive that is read ends, from before it is read: a tail lost meanwhile shows."""

    @property
    def waiting(self) -> str | None:
        """See ``MessageFeed``."""
        return self._waiting

    @property
    def position(self) -> FeedPosition:
        """Behind what was given last."""
        return self._position

    def end(self) -> PhysicalOffset:
        """See ``MessageFeed``."""
        return self._live.end()

    def looked_seconds(self) -> float:
        """See ``MessageFeed``: the log is looked at by each ``poll``."""
        return 0.0

    def poll(self) -> FeedBatch | None:
        """See ``MessageFeed``."""
        self._waiting = None
        if self._through is None and not self._joined and not self._join():
            return None
        if self._through is not None:
            return self._archived(self._through)
        try:
            found = self._live.poll(self._position)
        except LogGap as gap:
            return self._over(gap)
        if found is None:
            self._waiting = self._live.waiting
            return None
        self._position = found.position
        return found

    def _join(self) -> bool:
        """Find out where what comes next is; false while it is nowhere."""
        wanted = self._position.physical
        begins = self._live.begins()
        if begins is None:
            self._waiting = None if self._archive is None else "the broker has written nothing yet"
            return False
        if begins <= (wanted or 0):
            self._position = self._position if wanted is not None else FeedPosition(begins, None)
            self._joined = True
            return True
        if self._archive is None:
            if wanted is not None:
                log.warning("a part of the log is gone", extra={"from": wanted, "to": begins})
            self._position = FeedPosition(begins, None, begins)
            self._joined = True
            return True
        return self._from_archive(max(begins, wanted or 0))

    def _from_archive(self, needed: int) -> bool:
        assert self._archive is not None
        try:
            progress = self._archive.progress()
        except NotFound as error:
            self._waiting = f"{error.message}: it is needed for what the broker's log no longer has"
            return False
        if progress is None or progress.physical_offset < needed:
            self._waiting = f"the archive ends at {reached(progress)}, before {needed}, where the broker's log can be read"
            return False
        parted = self._live.parted(progress)
        if parted is not None:
            self._waiting = f"{parted}; it goes on when the daemon (tiered run) has taken that back"
            return False
        self._anchor = self._live.anchor(PhysicalOffset(progress.physical_offset))
        self._joined, self._through = True, self._archive.through()
        return True

    def _archived(self, through: Iterator[FeedBatch]) -> FeedBatch:
        try:
            found = next(through)
        except BaseException:
            self._through, self._joined = None, False  # what was given is known to those who took it
            raise
        if found.position.physical is not None:
            found = replace(found, position=replace(found.position, anchor=self._anchor))
            self._through = None
            self._joined = self._live.has(found.position.physical)  # type: ignore[arg-type]
        self._position = found.position
        return found

    def _over(self, gap: LogGap) -> FeedBatch | None:
        """Bytes that can never be read here."""
        if self._archive is not None:
            self._joined = False
            return self.poll() if self._from_archive(gap.following) else None
        log.error(
            "a part of the broker's log cannot be read, and no archive is named: messages in it are missing",
            extra={"from": self._position.physical, "to": gap.following, "reason": gap.reason},
        )
        self._position = FeedPosition(gap.following, None, gap.following)
        return FeedBatch(NOTHING, self._position)
