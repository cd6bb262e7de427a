"""The consume-queue index beside archiving: filled in a thread of its own, never a reason for archiving to wait or to end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from tiered.clock import Clock
from tiered.consumequeue.layout import IndexedRange, stamp_of
from tiered.consumequeue.place import index_directory
from tiered.errors import TieredError, Unavailable
from tiered.metadata.open import open_redo
from tiered.metrics import Metrics
from tiered.opening.open import Opened
from tiered.service import AGAIN, DONE, Next, Service, pause
from tiered.settings import ConsumeQueue, Settings
from tiered.write.draft import Draft
from tiered.write.indexing import IndexedLog, IndexFeed

log = logging.getLogger("tiered.daemon")

IDLE_SECONDS = 0.1
FORGET_SECONDS = 3600.0


class Indexing:
    """One step of the index's service. ``finished``: nothing comes any more, and what is left is to be written.

    ``limit_seconds``: how long it may stay where it is although more was submitted, before that is said.
    """

    def __init__(
        self,
        feed: IndexFeed,
        settings: ConsumeQueue,
        clock: Clock,
        finished: Callable[[], bool],
        limit_seconds: float,
    ) -> None:
        self._feed = feed
        self._clock = clock
        self._finished = finished
        self._limit = limit_seconds
        self._flush_seconds = settings.flush_ms / 1000
        self._keep_ms = settings.keep_ms
        self._flushed = self._forgot = clock.monotonic()
        self._failed: Unavailable | None = None
        self._failing: tuple[float, str] | None = None
        """Since when it was not made durable although that was tried, and why."""
        self._moved = clock.monotonic()
        self._seen: int | None = None

    def services(self, metrics: Metrics) -> list[Service]:
        """What fills it."""
        return [Service("index", self.step, self._clock, finish=self.finish, metrics=metrics)]

    def submitted(self, draft: Draft) -> None:
        """See ``IndexFeed.submitted``."""
        self._feed.submitted(draft)

    def step(self) -> Next:
        """Take what is noted; write it when its time has come."""
        try:
            if self._failed is not None:
                self._feed.reopen()
                self._failed = None
            busy = self._feed.step()
            self._look_after(self._clock.monotonic())
            if busy:
                return AGAIN
            if self._finished():
                self._feed.flush()
                return DONE
        except Unavailable as error:
            self._failed = error
            self._failing = (self._failing or (self._clock.monotonic(),))[0], str(error)
            raise
        return pause(IDLE_SECONDS)

    def _look_after(self, now: float) -> None:
        if now - self._forgot >= FORGET_SECONDS:
            self._forgot = now
            self._feed.forget(self._clock.now_ms() - self._keep_ms)
        if now - self._flushed >= self._flush_seconds:
            self._feed.flush()
            self._flushed, self._failing = now, None

    def finish(self) -> None:
        """Write what was taken; what was not is read again at the next start."""
        try:
            self._feed.flush()
        except Unavailable as error:
            log.warning("the consume-queue index was not written to its end", extra={"error": str(error)})

    def lag_bytes(self) -> int:
        """Bytes of the log that were submitted to the archive and are not in the index yet."""
        covered = self._feed.covered
        return max(0, self._feed.submitted_end - (0 if covered is None else covered.end))

    def standstill(self) -> str | None:
        """Why the index does not move, if it should and did not for too long. For one thread, which asks now and then."""
        now, covered, failing = self._clock.monotonic(), self._feed.covered, self._failing
        if failing is not None and now - failing[0] >= self._limit:
            return f"the consume-queue index could not be written for {now - failing[0]:.0f} s: {failing[1]}"
        end = None if covered is None else covered.end
        if not self.lag_bytes() or end != self._seen:
            self._moved, self._seen = now, end
        seconds = now - self._moved
        if seconds < self._limit:
            return None
        why = "its thread does not come back" if failing is None else failing[1]
        return f"the consume-queue index has not moved for {seconds:.0f} s, {self.lag_bytes()} bytes behind: {why}"

    def show(self, metrics: Metrics) -> None:
        """Set its gauges. It asks the store for its size: not for callers that may not hang."""
        covered, size = self._feed.covered, self._feed.size()
        metrics.index(
            applied=0 if covered is None else covered.end, lag=self.lag_bytes(), messages=self._feed.messages,
            keys=size.keys, size=size.bytes, begun_anew=self._feed.begun_anew,
        )  # fmt: skip

    def status(self) -> Mapping[str, object]:
        """What it covers, for ``/status``."""
        covered: IndexedRange | None = self._feed.covered
        said: dict[str, object] = {
            "problem": None if self._failed is None else str(self._failed),
            "lag_bytes": self.lag_bytes(),
            "messages_since_start": self._feed.messages,
            "begun_anew": self._feed.begun_anew,
        }
        if covered is not None:
            said |= {"lineage": covered.lineage, "begin": covered.begin, "end": covered.end}
        return said


class NoIndexing:
    """Stands for an index that was asked for and could not be opened: it says so for as long as the process lives."""

    def __init__(self, why: str) -> None:
        self._why = f"the consume-queue index cannot be opened: {why}"

    def services(self, metrics: Metrics) -> list[Service]:
        """None."""
        return []

    def submitted(self, draft: Draft) -> None:
        """Nobody keeps it."""

    def standstill(self) -> str | None:
        """See ``Indexing``."""
        return self._why

    def show(self, metrics: Metrics) -> None:
        """See ``Indexing``: there is nothing to show."""

    def status(self) -> Mapping[str, object]:
        """See ``Indexing``."""
        return {"problem": self._why}


def open_indexing(
    settings: Settings,
    archive_id: bytes,
    source: IndexedLog,
    clock: Clock,
    excluded: Callable[[str], bool],
    opened: Opened,
    finished: Callable[[], bool],
    stack: ExitStack,
    *,
    lost: Callable[[int], Iterable[tuple[int, int]]],
) -> Indexing | NoIndexing | None:
    """The index that the settings ask for; ``None`` for none. ``lost``: see ``IndexFeed``."""
    own = settings.consumequeue
    if not own.enabled:
        return None
    directory = index_directory(settings.state_directory)
    try:
        store = open_redo("rocksdb", directory, own.cache_bytes, stamp=stamp_of(archive_id))
    except TieredError as error:
        log.warning(
            "the consume-queue index cannot be opened: archiving goes on without it", extra=error.fields
        )
        return NoIndexing(str(error))
    stack.callback(store.close)
    feed = IndexFeed(
        store,
        source,
        buffer_rows=own.buffer_messages,
        max_record_bytes=settings.source.max_record_bytes,
        excluded=excluded,
        lost=lost,
    )
    feed.opened(opened.lineage, opened.mark.offset)
    return Indexing(feed, own, clock, finished, settings.watchdog.stall_ms / 1000)
