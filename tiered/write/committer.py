"""From a planned flush to a proven commit: data objects in parallel, then the commit, then the cache, then the hold.

This order is law 1 and law 3: bytes before pointers, the hold released last.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tiered.archive.log.writer import CommitLog, PlannedCommit
from tiered.archive.state.view import dispatch_pairs
from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Invalid, Refused, TieredError, Unavailable
from tiered.model import PhysicalOffset
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own
from tiered.write.planner import Plan, PlannedObject

Settle = Callable[[], tuple[PlannedCommit, Plan | None]]
"""What is left to do of a flush when its turn in the line comes: to plan it on top of the one before."""


@dataclass(slots=True)
class PreparedFlush:
    """A flush on its way. ``next_offset``: what is below it is archived once this is proven. ``messages``: those it archives;
    ``raw_bytes``: its part of the commitlog, excluded records too."""

    commit: PlannedCommit | Settle
    objects: tuple[PlannedObject, ...]
    next_offset: PhysicalOffset
    first_seen: float
    messages: int
    raw_bytes: int
    plan: Plan | None = None
    uploads: list[Future[None]] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether its place in the log and its bytes are fixed."""
        return isinstance(self.commit, PlannedCommit)

    @property
    def planned(self) -> PlannedCommit:
        """Its commit, once settled."""
        if not isinstance(self.commit, PlannedCommit):
            raise RuntimeError("a flush has no commit before its turn in the line")
        return self.commit

    def settle(self) -> None:
        """Plan it against the fold as it is planned by now. After an error it may be tried again."""
        if not isinstance(self.commit, PlannedCommit):
            commit, self.plan = self.commit()
            self.objects = self.plan.objects if self.plan is not None else ()
            self.commit = commit


@dataclass(frozen=True, slots=True)
class Proven:
    """What the committer reports: one flush became real."""

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
        backoff: Backoff,
        give_up: threading.Event,
        release: Callable[[PhysicalOffset], None],
        on_proven: Callable[[Proven], None],
        on_unavailable: Callable[[TieredError], None] = lambda error: None,
    ) -> None:
        self._log = log
        self._provider: Provider = log.reader.provider
        self._keys = log.reader.keys
        self._uploads = uploads
        self._clock = clock
        self._depth = depth
        self._backoff = backoff
        self._give_up = give_up
        self._on_unavailable = on_unavailable
        self._release = release
        self._on_proven = on_proven
        self._line: deque[PreparedFlush] = deque()
        self._unsettled: deque[PreparedFlush] = deque()  # the end of the line
        self._settling = threading.Lock()
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
        """Put a flush in line. It is settled in the pool, after those before it, and its uploads are started then."""
        with self._changed:
            self._line.append(flush)
            self._unsettled.append(flush)
        self._uploads.submit(self._settle_next)

    def wait_settled(self) -> None:
        """Wait until everything submitted has its place in the log: a caller that plans a commit past the line must."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or not self._unsettled)
            self._raise_failure()

    def _settle_next(self) -> None:
        """Settle the oldest flush that is not; as often called as there are flushes."""
        with self._settling:
            flush = self._unsettled[0]
            if self._failed is not None:
                return
            try:
                self._settle(flush)
                for number, item in enumerate(o for o in flush.objects if o.path):
                    flush.uploads.append(self._uploads.submit(self._upload, item, number))
            except BaseException as e:
                self._fail(e)
                raise
            with self._changed:
                self._unsettled.popleft()
                self._changed.notify_all()

    def _settle(self, flush: PreparedFlush) -> None:
        """Plan a flush, for as long as the local fold is away."""
        pauses = self._backoff.pauses()
        while True:
            try:
                flush.settle()
                return
            except Unavailable as e:
                self._on_unavailable(e)
                if self._clock.wait(next(pauses), self._give_up):
                    raise

    def step(self, wait_seconds: float) -> bool:
        """Prove the oldest flush; false if there is none within ``wait_seconds``. Errors are fatal for the pipeline."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or self._oldest_is_ready(), wait_seconds)
            self._raise_failure()
            if not self._oldest_is_ready():
                return False
            flush = self._line[0]
        try:
            if flush.plan is not None:
                pairs = list(dispatch_pairs(*flush.plan.queues))
                self._log.keep(partial(self._log.store.put_many, pairs))
            for upload in flush.uploads:
                upload.result()
            reach(CrashPoint.AFTER_OBJECTS)
            objects = (item for item in flush.objects if item.path)
            again = {self._keys.key(item.path): partial(self._upload, item, 1) for item in objects}
            store_time_ms = self._log.put(flush.planned, again)
            self._release(flush.next_offset)
            reach(CrashPoint.AFTER_RELEASE)
        except BaseException as e:
            raise self._fail(e) from e
        with self._changed:
            self._line.popleft()
            self._changed.notify_all()
        flush.uploads.clear()
        self._on_proven(Proven(flush, store_time_ms))
        return True

    def _upload(self, item: PlannedObject, number: int) -> None:
        """Put one object, for as long as the store is away: giving up would only mean doing the same again."""
        pauses = self._backoff.pauses()
        while True:
            try:
                put_own(self._provider, self._keys.key(item.path), item.encoded.parts)
                break
            except Refused:
                raise
            except (Unavailable, Invalid) as e:  # Invalid too: rights come back, a daemon that ended does not
                self._on_unavailable(e)
                if self._clock.wait(next(pauses), self._give_up):
                    raise
        if number == 0:
            reach(CrashPoint.AFTER_FIRST_OBJECT)

    def _oldest_is_ready(self) -> bool:
        """Whether the oldest flush is settled and its uploads are started."""
        return bool(self._line) and (not self._unsettled or self._unsettled[0] is not self._line[0])

    def _fail(self, error: BaseException) -> BaseException:
        """Nothing goes on after this; returns what to raise."""
        failed = error
        if isinstance(error, Unavailable):
            # Not to be tried again from here: how far the local steps came is not known. A restart reads it from the log.
            failed = TieredError(
                "the committer cannot go on",
                hint="mend the cause; the daemon goes on when it is started again",
                cause=error,
            )
            failed.exit_code = error.exit_code  # but a restart is what helps
        with self._changed:
            self._failed = failed
            self._changed.notify_all()
        return failed

    def _raise_failure(self) -> None:
        if isinstance(self._failed, TieredError):
            raise self._failed
        if self._failed is not None:
            raise RuntimeError("the committer died") from self._failed
