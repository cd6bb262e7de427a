"""From a planned flush to a proven commit: data objects in parallel, then the commit, then the cache, then the hold.

This order is law 1 and law 3 of ``archive.md`` section 6: bytes before pointers, the hold released last.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from tiered.archive.log import CommitLog, PlannedCommit
from tiered.archive.state import dispatch_pairs
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.dispatch.planner import Plan, PlannedObject
from tiered.errors import TieredError, Unavailable
from tiered.model import PhysicalOffset
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own

RETRY_MAX_SECONDS = 30.0


@dataclass(slots=True)
class PreparedFlush:
    """A flush on its way. ``next_offset``: what is below it is archived once this is proven."""

    planned: PlannedCommit
    objects: tuple[PlannedObject, ...]
    next_offset: PhysicalOffset
    first_seen: float
    messages: int
    raw_bytes: int
    plan: Plan | None = None
    uploads: list[Future[None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Proven:
    """What the committer tells whoever counts: one flush became real."""

    flush: PreparedFlush
    store_time_ms: int


class Committer:
    """A bounded line of prepared flushes, made real one after the other.

    ``submit`` starts the uploads at once (they may overlap with the commits before); ``step`` proves the oldest. One thread
    submits, one steps.
    """

    def __init__(
        self,
        log: CommitLog,
        uploads: ThreadPoolExecutor,
        *,
        clock: Clock,
        depth: int,
        retry_seconds: float,
        give_up: threading.Event,
        release: Callable[[PhysicalOffset], None],
        on_proven: Callable[[Proven], None],
        on_unavailable: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._provider: Provider = log.reader.provider
        self._keys = log.reader.keys
        self._uploads = uploads
        self._clock = clock
        self._depth = depth
        self._retry_seconds = retry_seconds
        self._give_up = give_up
        self._on_unavailable = on_unavailable
        self._release = release
        self._on_proven = on_proven
        self._line: deque[PreparedFlush] = deque()
        self._changed = threading.Condition()
        self._failed: BaseException | None = None

    @property
    def room(self) -> bool:
        """Whether another flush may be submitted."""
        with self._changed:
            self._raise_failure()
            return len(self._line) < self._depth

    def pending(self) -> tuple[int, int]:
        """Messages and raw bytes planned and not yet proven."""
        with self._changed:
            return sum(f.messages for f in self._line), sum(f.raw_bytes for f in self._line)

    @property
    def idle(self) -> bool:
        """Nothing in flight."""
        with self._changed:
            self._raise_failure()
            return not self._line

    def wait_for_room(self, timeout_seconds: float) -> bool:
        """Wait until a flush may be submitted."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failed is not None or len(self._line) < self._depth, timeout_seconds
            )
            self._raise_failure()
            return len(self._line) < self._depth

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until everything submitted is proven."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or not self._line, timeout_seconds)
            self._raise_failure()
            return not self._line

    def submit(self, flush: PreparedFlush) -> None:
        """Put a flush in line and start its uploads."""
        for number, item in enumerate(o for o in flush.objects if o.path):
            flush.uploads.append(self._uploads.submit(self._upload, item, number))
        with self._changed:
            self._line.append(flush)
            self._changed.notify_all()

    def step(self, wait_seconds: float) -> bool:
        """Prove the oldest flush; false if there is none within ``wait_seconds``. Errors are fatal for the pipeline."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._line), wait_seconds)
            if not self._line:
                return False
            flush = self._line[0]
        try:
            if flush.plan is not None:
                self._log.store.put_many(dispatch_pairs(*flush.plan.queues))
            for upload in flush.uploads:
                upload.result()
            reach(CrashPoint.AFTER_OBJECTS)
            store_time_ms = self._log.put(flush.planned)
            self._release(flush.next_offset)
            reach(CrashPoint.AFTER_RELEASE)
        except BaseException as e:
            with self._changed:
                self._failed = e
                self._changed.notify_all()
            raise
        with self._changed:
            self._line.popleft()
            self._changed.notify_all()
        flush.uploads.clear()
        self._on_proven(Proven(flush, store_time_ms))
        return True

    def _upload(self, item: PlannedObject, number: int) -> None:
        """Put one object, for as long as the store is away: giving up would only mean doing the same again."""
        pause = self._retry_seconds
        while True:
            try:
                put_own(self._provider, self._keys.key(item.path), item.encoded.parts)
                break
            except Unavailable:
                self._on_unavailable()
                if self._clock.wait(pause, self._give_up):
                    raise
                pause = min(2 * pause, RETRY_MAX_SECONDS)
        if number == 0:
            reach(CrashPoint.AFTER_FIRST_OBJECT)

    def _raise_failure(self) -> None:
        if isinstance(self._failed, TieredError):
            raise self._failed
        if self._failed is not None:
            raise RuntimeError("the committer died") from self._failed
