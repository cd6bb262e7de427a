"""Two lanes into one pool: foreground requests first, by turns of those who wait (``fair``); read-ahead in the rest, and never
in all of its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from tiered.fetch.fair import NOBODY, REQUEST_COST, FairQueue, TenantGroup


@dataclass(eq=False, slots=True)
class FetchJob:
    """Work for a pool thread. ``run`` must not raise; it is told whether to work at all: false when the lanes were closed.
    ``share``: for whom; ``size``: bytes that it fetches."""

    run: Callable[[bool], None]
    foreground: bool
    share: TenantGroup = NOBODY
    size: int = 0


class Lanes:
    """Runs at most ``slots`` jobs at once in ``pool``. Thread-safe; a job may submit jobs."""

    def __init__(self, pool: Executor, slots: int) -> None:
        self._pool = pool
        self._slots = slots
        self._ahead_slots = max(1, slots - max(1, slots // 4))
        self._lock = threading.Lock()
        self._front: FairQueue[FetchJob] = FairQueue()
        self._back: dict[FetchJob, None] = {}
        self._running = 0
        self._running_ahead = 0
        self._closed = False

    def submit(self, job: FetchJob) -> None:
        """Put a job in its lane. After ``close`` the job is told at once, here."""
        with self._lock:
            closed, start = self._closed, None
            if not closed:
                if job.foreground:
                    self._enter(job)
                else:
                    self._back[job] = None
                start = self._start()
        if closed:
            job.run(False)
        elif start is not None:
            self._launch(start)

    def promote(self, job: FetchJob, share: TenantGroup = NOBODY) -> None:
        """A foreground reader waits for this read-ahead: let it pass on the turn of ``share``, if it still is in line."""
        with self._lock:
            if self._back.pop(job, job) is not None:
                return
            job.foreground, job.share = True, share
            self._enter(job)
            start = self._start()
        if start is not None:
            self._launch(start)

    def close(self) -> None:
        """Tell what is in line that it will not run; take no more."""
        with self._lock:
            self._closed = True
            left = [*self._front.drain(), *self._back]
            self._back.clear()
        for job in left:
            job.run(False)

    def _launch(self, job: FetchJob) -> None:
        try:
            place = self._pool.submit(self._work, job)
        except RuntimeError:  # the pool was shut down before us
            self._cancelled(job)
        else:
            place.add_done_callback(lambda done: self._cancelled(job) if done.cancelled() else None)

    def _cancelled(self, job: FetchJob) -> None:
        self.close()
        with self._lock:
            self._leave(job)
            self._running -= 1
        job.run(False)

    def _work(self, job: FetchJob) -> None:
        following: FetchJob | None = job
        while following is not None:
            following.run(True)
            with self._lock:
                self._leave(following)
                following = self._take()
                if following is None:
                    self._running -= 1

    def _start(self) -> FetchJob | None:
        """The job for one more thread, if there may be one."""
        job = self._take() if self._running < self._slots else None
        if job is not None:
            self._running += 1
        return job

    def _enter(self, job: FetchJob) -> None:
        self._front.push(job.share, job.size + REQUEST_COST, job)

    def _leave(self, job: FetchJob) -> None:
        if not job.foreground:
            self._running_ahead -= 1

    def _take(self) -> FetchJob | None:
        if len(self._front):
            return self._front.pop()
        if self._back and self._running_ahead < self._ahead_slots:
            job = next(iter(self._back))
            del self._back[job]
            self._running_ahead += 1
            return job
        return None
