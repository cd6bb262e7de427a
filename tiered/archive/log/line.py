"""The one line of commits: what changes the archive within an epoch stands in it and is made real here, one after the other.

The order of ``_prove`` is law 1 and law 3 of ``docs/DESIGN.md``: bytes before pointers, the hold released last.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tiered.archive.log.flush import DataObject, Flush, LineEvents, Priority, Proven, Riders, Unsettled
from tiered.archive.log.planned import Place, PlannedCommit
from tiered.archive.log.writer import CommitLog
from tiered.archive.state.keys import DISPATCH
from tiered.archive.state.view import ArchiveState, dispatch_pairs
from tiered.codec.format.object import EncodedObject
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Corrupt, Invalid, NotFound, TieredError, Unavailable
from tiered.model import PhysicalOffset
from tiered.provider.resolve import put_own


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What has no place yet. ``done`` is told what became of it. ``offered``: it may fail without ending the line.
    ``overdue``: nothing that comes later goes before it."""

    flush: Unsettled
    done: Future[Proven | None]
    offered: bool
    overdue: bool = False

    @property
    def priority(self) -> Priority:
        """Before whom it gets its place."""
        return Priority.ARCHIVE if self.overdue else self.flush.priority


@dataclass(frozen=True, slots=True)
class _Settled:
    """A flush whose place and bytes are fixed, and its uploads under way."""

    flush: Flush
    commit: PlannedCommit
    uploads: tuple[Future[None], ...]
    done: Future[Proven | None] = field(default_factory=Future)
    offered: bool = False


class CommitLine:
    """A bounded line of ``depth`` flushes, each settled on top of the one before it and made real after it.

    ``submit`` has a flush settled in the pool and its uploads started at once (they may overlap with the commits before);
    ``step`` proves the oldest. One thread submits, one steps; ``release`` is called with what the hold need not keep any more.

    Others ``offer``, from any thread: what waits for a quiet moment, may turn out to be pointless when its turn comes, and ends
    nothing but itself when it cannot be planned.
    """

    def __init__(
        self,
        log: CommitLog,
        pool: Executor,
        *,
        depth: int,
        release: Callable[[PhysicalOffset], None],
        events: LineEvents,
        riders: Riders | None = None,
    ) -> None:
        self.log = log
        self._provider = log.reader.provider
        self._keys = log.reader.keys
        self._pool = pool
        self._depth = depth
        self._release = release
        self._events = events
        self._riders = riders
        self._waiting: list[_Waiting] = []
        self._settled: deque[_Settled] = deque()
        self._settling = threading.Lock()
        self._changed = threading.Condition()
        self._alone = False
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
            flushes = [entry.flush for entry in self._entries()]
        return sum(f.messages for f in flushes), sum(f.raw_bytes for f in flushes)

    @property
    def quiet(self) -> bool:
        """Whether what is offered now would be taken."""
        with self._changed:
            self._raise_failure()
            return self._quiet()

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

    def submit(self, flush: Unsettled) -> Future[Proven | None]:
        """Put a flush in line. It is settled in the pool when its turn comes, and its uploads are started then. The future
        tells the proof; of a line that failed it tells nothing."""
        entry = _Waiting(flush, Future(), offered=False)
        with self._changed:
            self._waiting.append(entry)
        self._pool.submit(self._settle_next)
        return entry.done

    def offer(
        self, flush: Unsettled, timeout_seconds: float, *, overdue: bool = False
    ) -> Future[Proven | None] | None:
        """Put in line what is not urgent: only once nothing waits for its place and one more may still follow it.

        ``overdue``: it has waited for that for too long, and takes a place of its own, one more than the line's depth.

        ``None`` if there was no such moment within ``timeout_seconds``. The future tells the proof, ``None`` where the flush
        settled to nothing, or why it could not be planned; that error is its own, and the line goes on.
        """
        entry = _Waiting(flush, Future(), offered=True, overdue=overdue)
        takes = self._has_place if overdue else self._quiet
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or takes(), timeout_seconds)
            self._raise_failure()
            if not takes():
                return None
            self._waiting.append(entry)
        self._pool.submit(self._settle_next)
        return entry.done

    def commit(self, flush: Flush) -> Proven:
        """Make a flush real in the calling thread, for what has to be proven before anything else is submitted.

        Nothing submitted may be in line; what was offered before is waited for, and nothing is taken meanwhile. An error leaves
        the line as it was: after ``CommitLog.follow`` the same may be tried again.
        """
        with self._changed:
            self._raise_failure()
            if any(not entry.offered for entry in self._entries()):
                raise RuntimeError("a commit that is waited for begins with an idle line")
            self._alone = True
        try:
            self._wait_below(1, None)
            settled = self._settle(_Waiting(flush, Future(), offered=False))
            assert settled is not None  # a flush settles to itself
            return self._prove(settled)
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

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
        oldest.done.set_result(proven)
        return True

    def _settle_next(self) -> None:
        """Settle the first of those with the highest priority; as often called as there are flushes."""
        with self._settling:
            with self._changed:
                if self._failed is not None:
                    return
                entry = min(self._waiting, key=lambda waiting: waiting.priority)
            settled, refused = None, None
            try:
                settled = self.log.resending.until_done(partial(self._settle, entry))
            except BaseException as e:
                if not (entry.offered and isinstance(e, Exception)):
                    self._fail(e)
                    raise
                refused = e
            with self._changed:
                self._waiting = [waiting for waiting in self._waiting if waiting is not entry]
                if settled is not None:
                    self._settled.append(settled)
                self._changed.notify_all()
            if refused is not None:
                entry.done.set_exception(refused)
            elif settled is None:
                entry.done.set_result(None)

    def _settle(self, waiting: _Waiting) -> _Settled | None:
        """Fix the flush at the next place of the log, and start its uploads. ``None``: there is nothing to commit any more."""
        with self.log.next_place() as place:
            fold = self.log.planning()
            flush = waiting.flush.settle(place, fold)
            if flush is None:
                return None
            commit = self._plan(place, flush, fold)
        reach(CrashPoint.AFTER_PLAN)
        uploads = [self._pool.submit(self._upload, o, n) for n, o in enumerate(flush.uploads) if not o.there]
        return _Settled(flush, commit, tuple(uploads), waiting.done, waiting.offered)

    def _plan(self, place: Place, flush: Flush, fold: ArchiveState) -> PlannedCommit:
        """The commit of a flush and of what rides on it. What rides must not keep it: refused, it stays behind."""
        riding = () if self._riders is None else self._riders.riding(fold, flush.edits)
        if self._riders is not None and riding:
            try:
                return self.log.plan(place, [*flush.edits, *riding], flush.inline, fold)
            except (Corrupt, Invalid) as error:
                self._riders.refused(error)
        return self.log.plan(place, flush.edits, flush.inline, fold)

    def _prove(self, settled: _Settled) -> Proven:
        """The order of durability: local offsets, objects, commit, local fold, hold."""
        flush = settled.flush
        if flush.dispatch_offsets is not None:
            queues = flush.dispatch_offsets
            pairs = dispatch_pairs(queues.topics, queues.queue_ids, queues.ends)
            self.log.keep(partial(self.log.store.put_many, pairs, (DISPATCH,)))
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
        put = partial(self._put_and_see, self._keys.key(item.path), item.encoded)
        # Invalid too: rights come back, a daemon that ended does not
        self.log.resending.until_done(put, (Unavailable, Invalid))
        if number == 0:
            reach(CrashPoint.AFTER_FIRST_OBJECT)

    def _put_and_see(self, key: str, encoded: EncodedObject) -> None:
        """Put an object and see it there before a commit names it: a success says only what was answered (law 1)."""
        put_own(self._provider, key, encoded.parts)
        found = 0
        with suppress(NotFound):
            found = self._provider.head(key).length
        if found != encoded.length:
            vanished = Unavailable(
                "the store answered that it took an object, and does not have it: it is put again",
                key=key, expected=encoded.length, found=found,
                hint="find out what answers in the store's place, or deletes from the bucket",
            )  # fmt: skip
            self.log.resending.events.not_kept(vanished)
            raise vanished

    def _entries(self) -> list[_Waiting | _Settled]:
        return [*self._settled, *self._waiting]

    def _count(self) -> int:
        return len(self._waiting) + len(self._settled)

    def _quiet(self) -> bool:
        """Whether something that is not urgent may take a place: it must not keep the next flush from being submitted."""
        return not self._alone and not self._waiting and self._count() < max(1, self._depth - 1)

    def _has_place(self) -> bool:
        """Whether something that is overdue may take a place, which is one more than there are for the rest."""
        return not self._alone and self._count() <= self._depth

    def _wait_below(self, count: int, timeout_seconds: float | None) -> bool:
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
                hint="fix the cause and start the daemon again: it goes on where the archive ends",
                cause=error,
            )
            failed.exit_code = error.exit_code  # but a restart is what helps
        with self._changed:
            self._failed = failed
            left = self._entries()
            self._changed.notify_all()
        for entry in left:
            if not entry.done.done():
                entry.done.set_exception(failed)
        return failed

    def _raise_failure(self) -> None:
        if isinstance(self._failed, TieredError):
            raise self._failed
        if self._failed is not None:
            raise RuntimeError("the committer died") from self._failed
