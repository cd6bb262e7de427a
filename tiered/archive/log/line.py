"""The one line of commits: what changes the archive within an epoch stands in it and is made real here, one after the other.

The order of ``_prove`` is law 1 and law 3 of ``docs/DESIGN.md``: bytes before pointers, the hold released last.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial

from tiered.archive.log.flush import DataObject, Flush, LineEvents, Proven, Unsettled
from tiered.archive.log.writer import CommitLog, PlannedCommit
from tiered.archive.state.view import dispatch_pairs
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Invalid, TieredError, Unavailable
from tiered.model import PhysicalOffset
from tiered.provider.resolve import put_own


@dataclass(frozen=True, slots=True)
class _Settled:
    """A flush whose place and bytes are fixed, and its uploads under way."""

    flush: Flush
    commit: PlannedCommit
    uploads: tuple[Future[None], ...]


class CommitLine:
    """A bounded line of ``depth`` flushes, each settled on top of the one before it and made real after it.

    ``submit`` has a flush settled in the pool and its uploads started at once (they may overlap with the commits before);
    ``step`` proves the oldest. One thread submits, one steps; ``release`` is called with what the hold need not keep any more.
    """

    def __init__(
        self,
        log: CommitLog,
        pool: Executor,
        *,
        depth: int,
        release: Callable[[PhysicalOffset], None],
        events: LineEvents,
    ) -> None:
        self.log = log
        self._provider = log.reader.provider
        self._keys = log.reader.keys
        self._pool = pool
        self._depth = depth
        self._release = release
        self._events = events
        self._waiting: list[Unsettled] = []
        self._settled: deque[_Settled] = deque()
        self._settling = threading.Lock()
        self._changed = threading.Condition()
        self._failed: BaseException | None = None

    @property
    def room(self) -> bool:
        """Whether another flush may be submitted."""
        with self._changed:
            self._raise_failure()
            return self._count() < self._depth

    def pending(self) -> tuple[int, int]:
        """Messages and raw bytes submitted and not yet proven."""
        with self._changed:
            flushes: list[Unsettled] = [*(entry.flush for entry in self._settled), *self._waiting]
        return sum(f.messages for f in flushes), sum(f.raw_bytes for f in flushes)

    @property
    def idle(self) -> bool:
        """Nothing in flight."""
        with self._changed:
            self._raise_failure()
            return not self._count()

    def wait_for_room(self, timeout_seconds: float) -> bool:
        """Wait until a flush may be submitted."""
        return self._wait_below(self._depth, timeout_seconds)

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until everything submitted is proven."""
        return self._wait_below(1, timeout_seconds)

    def submit(self, flush: Unsettled) -> None:
        """Put a flush in line. It is settled in the pool when its turn comes, and its uploads are started then."""
        with self._changed:
            self._waiting.append(flush)
        self._pool.submit(self._settle_next)

    def commit(self, flush: Flush) -> Proven:
        """Make a flush real in the calling thread, for what has to be proven before anything else is submitted.

        The line must be idle. An error leaves it as it was: after ``CommitLog.follow`` the same may be tried again.
        """
        if not self.idle:
            raise RuntimeError("a commit that is waited for begins with an idle line")
        return self._prove(self._settle(flush))

    def step(self, wait_seconds: float) -> bool:
        """Prove the oldest flush; false if there is none within ``wait_seconds``. Errors are fatal for the line."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or bool(self._settled), wait_seconds)
            self._raise_failure()
            if not self._settled:
                return False
            oldest = self._settled[0]
        try:
            proven = self._prove(oldest)
        except BaseException as e:
            raise self._fail(e) from e
        with self._changed:
            self._settled.popleft()
            self._changed.notify_all()
        self._events.proven(proven)
        return True

    def _settle_next(self) -> None:
        """Settle the first of those with the highest priority; as often called as there are flushes."""
        with self._settling:
            with self._changed:
                if self._failed is not None:
                    return
                flush = min(self._waiting, key=lambda waiting: waiting.priority)
            try:
                settled = self.log.resending.until_done(partial(self._settle, flush))
            except BaseException as e:
                self._fail(e)
                raise
            with self._changed:
                self._waiting = [waiting for waiting in self._waiting if waiting is not flush]
                self._settled.append(settled)
                self._changed.notify_all()

    def _settle(self, waiting: Unsettled) -> _Settled:
        """Fix the flush at the next place of the log, and start its uploads."""
        with self.log.next_place() as place:
            flush = waiting.settle(place, self.log.planned())
            commit = self.log.plan(place, flush.edits, flush.inline)
        reach(CrashPoint.AFTER_PLAN)
        uploads = [self._pool.submit(self._upload, o, n) for n, o in enumerate(flush.uploads)]
        return _Settled(flush, commit, tuple(uploads))

    def _prove(self, settled: _Settled) -> Proven:
        """The order of durability: local offsets, objects, commit, local fold, hold."""
        flush = settled.flush
        if flush.dispatch_offsets is not None:
            queues = flush.dispatch_offsets
            pairs = list(dispatch_pairs(queues.topics, queues.queue_ids, queues.ends))
            self.log.keep(partial(self.log.store.put_many, pairs))
        for upload in settled.uploads:
            upload.result()
        reach(CrashPoint.AFTER_OBJECTS)
        again = {self._keys.key(item.path): partial(self._upload, item, 1) for item in flush.uploads}
        store_time_ms = self.log.put(settled.commit, again)  # BEFORE_COMMIT, AFTER_COMMIT, AFTER_METADATA
        if flush.next_offset is not None:
            self._release(flush.next_offset)
        reach(CrashPoint.AFTER_RELEASE)
        return Proven(flush, settled.commit, store_time_ms)

    def _upload(self, item: DataObject, number: int) -> None:
        """Put one object, for as long as the store is away."""
        put = partial(put_own, self._provider, self._keys.key(item.path), item.encoded.parts)
        # Invalid too: rights come back, a daemon that ended does not
        self.log.resending.until_done(put, (Unavailable, Invalid))
        if number == 0:
            reach(CrashPoint.AFTER_FIRST_OBJECT)

    def _count(self) -> int:
        return len(self._waiting) + len(self._settled)

    def _wait_below(self, count: int, timeout_seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or self._count() < count, timeout_seconds)
            self._raise_failure()
            return self._count() < count

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
