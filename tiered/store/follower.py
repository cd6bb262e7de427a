"""When an archive's reader looks for new commits: when a read asks for something that is not there yet, and not too often."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from tiered.archive.log.asof import oldest_whole
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.clock import Clock
from tiered.errors import Corrupt, NotFound, TieredError, Unavailable
from tiered.fetch.steps import Steps, done, run_later
from tiered.metrics import Metrics
from tiered.model import Past
from tiered.store.gone import LOOKS, GoneObjects

Answer = TypeVar("Answer")

log = logging.getLogger("tiered.store")

CHECK_SECONDS = 3600.0
"""A fold brought to the end of the log longer ago than this is compared with the bucket again before it is followed."""

_SEEN: Future[bool] = Future()
"""Nothing to wait for, and nothing new: asked for with each pull, and never changed."""
_SEEN.set_result(False)


class Follower:
    """Looks for new commits, at most one look at a time and at most every ``every_seconds``. Thread-safe.

    ``reader`` is this follower's own; those who ask get frozen views, so that a fold under way is never seen. ``pool`` runs the
    looks of those who do not wait. ``as_of``: the archive stays as it was then.
    """

    def __init__(
        self,
        reader: ArchiveReader,
        clock: Clock,
        *,
        every_seconds: float,
        pool: Executor,
        metrics: Metrics,
        as_of: Past | None = None,
    ) -> None:
        self.reader = reader
        self._clock = clock
        self._every_seconds = every_seconds
        self._pool = pool
        self._metrics = metrics
        self._as_of = Past() if as_of is None else as_of
        self._lock = threading.Lock()
        self._look: Future[bool] | None = None
        self._error: TieredError | None = None
        self._looked: float | None = None
        self._checked: float | None = None
        self._closed = False

    def lost(self, gone: NotFound) -> TieredError:
        """What it means that an object which the newest view names is not there: damage; or, of an archive as it was, most
        likely that it was deleted since (DESIGN.md, "Readers of an older view", V4)."""
        fields = {name: value for name, value in gone.fields.items() if name != "hint"}
        if self._as_of == Past():
            return Corrupt("an object of the archive is missing", hint=None, **fields)
        view = self.view()
        seq = -1 if view.head is None else view.head.seq
        try:
            hint = f"commit {oldest_whole(view.log, seq)} is the oldest that can be chosen"
        except TieredError as error:
            log.warning("the oldest commit that can be read was not found", extra={"error": str(error)})
            hint = "choose a later commit"
        return NotFound(
            "the archive as it was then cannot be read any more: an object that it named is not there",
            hint=f"{hint}: what was the head within gc.snapshot_retention_ms can be read",
            as_of=seq, **fields,
        )  # fmt: skip

    def answered(self, ask: Callable[[], Answer]) -> Answer:
        """What ``ask`` answers of the newest view. Where an object that this names is gone, after a look at what became of it
        (``GoneObjects``).

        ``Corrupt`` if the newest view still names it, ``Unavailable`` if nobody can say.
        """
        gone = GoneObjects(self.lost)
        while True:
            try:
                return ask()
            except NotFound as error:
                if "key" not in error.fields:
                    raise
                gone.met(error)
            self.follow(force=True)

    def open(self) -> View:
        """The first look. ``NotFound`` (naming what is there), ``Refused``, ``Corrupt``, ``Unavailable``."""
        self.follow(force=True)
        return self.ready()

    def view(self) -> View:
        """What is known now, without a look. ``Unavailable`` while the archive has never been opened."""
        return self.reader.opened or self._opened(None)

    def whole(self) -> View:
        """``ready`` for a question about all queues: a reader that keeps a copy of the fold fills it first."""
        while self.reader.want_all():
            self.follow(force=True)
        return self.ready()

    def grow(self) -> None:
        """Have the reader's copy filled beside the reads, if so much was asked for; not more often than there are looks."""
        if self.reader.outgrown:
            self.follow_async()

    def ready(self) -> View:
        """What is known now. While the archive has never been opened: a look, and ``Unavailable`` if it is still away."""
        return self.reader.opened or self._opened(None if self._closed else self.follow_async(here=True))

    def ready_async(self) -> Future[View]:
        """``ready`` without waiting."""
        if self.reader.opened is None and not self._closed:
            return run_later(self._first_view())
        return done(self.ready)()

    def _first_view(self) -> Steps[View]:
        look = self.follow_async()
        yield look
        return self.ready() if look.exception() is None else self._opened(None)

    def _opened(self, look: Future[bool] | None) -> View:
        """The view after the first look, or ``Unavailable`` with what that look met."""
        error = self._error if look is None else look.exception()
        view = self.reader.opened
        if view is not None:
            return view
        if self._closed:
            raise Unavailable("the reader is closed")
        raise Unavailable(
            "the archive cannot be opened yet",
            hint="archive.url, source.cluster and source.broker say which one; the cause says why",
            archive=self.reader.provider.url,
            cause=error,
        )

    def follow(self, *, force: bool = False) -> bool:
        """Look for new commits, or share the look under way; whether there were any. Waits, and raises what the look met.

        Not more often than every ``every_seconds``, counted from the end of the last look: in between that one counts, and its
        error is raised again. ``force`` looks regardless.
        """
        return self.follow_async(force=force, here=True).result()

    def follow_async(self, *, force: bool = False, here: bool = False) -> Future[bool]:
        """``follow`` without waiting, or, with ``here``, in this thread."""
        mine, look = self._claim(force)
        if mine and here:
            self._run(look)
        elif mine:
            try:
                self._pool.submit(self._run, look)
            except RuntimeError:  # the pool was shut down meanwhile
                with self._lock:
                    self._look = None
                look.set_exception(Unavailable("the reader is closed"))
        return look

    def follow_if_older(self, seconds: float, *, here: bool = False) -> Future[bool]:
        """``follow_async``, but nothing to wait for if the end of the log was seen in the last ``seconds``."""
        with self._lock:
            seen = self._checked
        if seen is None or self._clock.monotonic() - seen >= seconds:
            return self.follow_async(here=here)
        return _SEEN

    def reach_async(self, seq: int) -> Future[bool]:
        """Come to commit ``seq`` or a later one, of which somebody else knows: whether it could be, now. Looks for it however
        short ago the last look was."""
        return run_later(self._reach(seq))

    def _reach(self, seq: int) -> Steps[bool]:
        for _ in range(LOOKS):  # one that was under way may have begun before that commit
            if self._has(seq):
                return True
            look = self.follow_async(force=True)
            yield look
            look.result()
        return self._has(seq)

    def _has(self, seq: int) -> bool:
        view = self.reader.opened
        return view is not None and view.head is not None and view.head.seq >= seq

    def close(self) -> None:
        """Let go of the last view, so that the metadata store can be closed."""
        with self._lock:
            self.reader.close()
            self._closed = True

    def _claim(self, force: bool) -> tuple[bool, Future[bool]]:
        """The look that answers this asker, and whether the asker has to run it."""
        with self._lock:
            if self._look is not None:
                return False, self._look
            if self._closed:
                self._error = Unavailable("the reader is closed")
            due = self._looked is None or self._clock.monotonic() - self._looked >= self._every_seconds
            look: Future[bool] = Future()
            look.set_running_or_notify_cancel()
            if (due or force) and not self._closed:
                self._look = look
                return True, look
            if self._error is not None:
                look.set_exception(self._error.with_traceback(None))  # else it grows with every asker
            else:
                look.set_result(False)
            return False, look

    def _run(self, look: Future[bool]) -> None:
        """One look; the outcome goes to all who wait for it."""
        error: TieredError | None = None
        changed = False
        try:
            changed = self._fold()
        except TieredError as e:
            error = e
        except BaseException as e:
            with self._lock:
                self._look = None
            look.set_exception(e)
            raise
        now = self._clock.monotonic()
        self._metrics.follows.labels(type(error).__name__ if error else "new" if changed else "same").inc()
        with self._lock:
            if error is not None and self._error is None and self.reader.opened is not None:
                log.warning(
                    "new commits cannot be read, what is known stays readable", extra={"error": str(error)}
                )
            self._look, self._looked, self._error = None, now, error
            if error is None:
                self._checked = now
            elif not isinstance(error, Unavailable):
                self._checked = None
        if error is not None:
            look.set_exception(error)
        else:
            look.set_result(changed)

    def _fold(self) -> bool:
        """Bring the reader to the end of the log; whether it moved. Only one thread is ever in here."""
        before = self.reader.opened
        fresh = self._checked is not None and self._clock.monotonic() - self._checked < CHECK_SECONDS
        view = (
            self.reader.follow() if fresh else self.reader.at(self._as_of.commit, time_ms=self._as_of.time_ms)
        )
        if view is before or self._closed:
            return False
        self._metrics.read_seq.set(-1 if view.head is None else view.head.seq)
        return True


def is_away(error: TieredError) -> bool:
    """Whether an archive may still appear: its store is away, or nothing is there yet."""
    return isinstance(error, Unavailable | NotFound)
