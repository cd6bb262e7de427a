"""Two lanes into one pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from tiered.fetch.lanes import FetchJob, Lanes


class Held(Executor):
    """A pool whose work waits for ``go``."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def go(self) -> None:
        """Run what waits, one after the other, as threads would in turn."""
        while self.waiting:
            self.waiting.pop(0)[1]()


def job(log: list[str], name: str, *, foreground: bool) -> FetchJob:
    return FetchJob(lambda alive: log.append(name if alive else f"{name} dropped"), foreground)


def test_foreground_passes_read_ahead() -> None:
    pool, log = Held(), list[str]()
    lanes = Lanes(pool, 1)
    for name in ("ahead 1", "ahead 2"):
        lanes.submit(job(log, name, foreground=False))
    for name in ("front 1", "front 2"):
        lanes.submit(job(log, name, foreground=True))
    assert len(pool.waiting) == 1
    pool.go()
    assert log == ["ahead 1", "front 1", "front 2", "ahead 2"]


def test_read_ahead_never_has_all_threads() -> None:
    pool, log = Held(), list[str]()
    lanes = Lanes(pool, 4)
    for number in range(10):
        lanes.submit(job(log, f"ahead {number}", foreground=False))
    assert len(pool.waiting) == 3
    lanes.submit(job(log, "front", foreground=True))
    assert len(pool.waiting) == 4
    pool.go()
    assert len(log) == 11


def test_a_job_that_somebody_waits_for_passes() -> None:
    pool, log = Held(), list[str]()
    lanes = Lanes(pool, 4)
    jobs = [job(log, f"ahead {number}", foreground=False) for number in range(6)]
    for each in jobs:
        lanes.submit(each)
    assert len(pool.waiting) == 3
    lanes.promote(jobs[5])
    assert len(pool.waiting) == 4, "the thread that read-ahead may not have is there for it"
    lanes.promote(jobs[5])
    lanes.promote(jobs[0])
    pool.waiting.pop()[1]()
    assert log == ["ahead 5"]
    pool.go()
    assert sorted(log) == [f"ahead {number}" for number in range(6)]


def test_closing_tells_those_in_line() -> None:
    pool, log = Held(), list[str]()
    lanes = Lanes(pool, 1)
    for name in "abc":
        lanes.submit(job(log, name, foreground=name == "b"))
    lanes.close()
    assert log == ["b dropped", "c dropped"]
    lanes.submit(job(log, "d", foreground=True))
    pool.go()
    assert log == ["b dropped", "c dropped", "d dropped", "a"]


def test_a_pool_that_was_shut_down_is_no_end_without_a_word() -> None:
    log: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        held, entered = threading.Event(), threading.Event()

        def block() -> None:
            entered.set()
            held.wait()

        pool.submit(block)
        assert entered.wait(10)
        lanes = Lanes(pool, 2)
        lanes.submit(job(log, "cancelled", foreground=True))
        pool.shutdown(wait=False, cancel_futures=True)
        held.set()
    assert log == ["cancelled dropped"]
    lanes.submit(job(log, "late", foreground=True))
    gone = Lanes(pool, 2)
    gone.submit(job(log, "never", foreground=False))
    assert log == ["cancelled dropped", "late dropped", "never dropped"]
