"""The budget after everything that can end a load: what is charged is what the cache holds, to the byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import AtOnce
from tests.kit.fetchscene import Scene, pull, scene
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.fetch.fetcher import Fetcher


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        made.send(100)
        yield made


def only_the_cache_is_charged(fetcher: Fetcher) -> None:
    assert (fetcher.budget.used_bytes, fetcher.budget.ahead_bytes) == (fetcher.cache.used_bytes, 0)
    assert fetcher.budget.waiting == 0


class Cancelling(Executor):
    """A pool that works at first, and then is shut down with work in line."""

    def __init__(self) -> None:
        self.works = True
        self.line: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.works:
            return AtOnce().submit(fn, *args, **kwargs)
        self.line.append(Future())
        return self.line[-1]

    def cancel(self) -> None:
        for future in self.line:
            future.cancel()
            future.set_running_or_notify_cancel()


def test_tables_under_way_are_charged_and_given_back(s: Scene) -> None:
    fetcher = s.fetcher()
    seen = []
    s.provider.gate = lambda *_: seen.append(fetcher.budget.used_bytes)
    s.read(fetcher, 0, 1)
    s.provider.gate = lambda *_: None
    assert min(seen) > 0, "a request under way has its bytes charged, that for a table too"
    only_the_cache_is_charged(fetcher)


@pytest.mark.parametrize("error", [Unavailable("away"), Corrupt("damaged"), ZeroDivisionError()])
def test_tables_and_blocks_that_fail_are_given_back(s: Scene, error: Exception) -> None:
    fetcher = s.fetcher()

    def fail(*_: object) -> None:
        raise error

    s.provider.gate = fail
    with pytest.raises(type(error)):
        s.read(fetcher, 0, 1)  # the table
    only_the_cache_is_charged(fetcher)
    s.provider.gate = lambda *_: None
    s.read(fetcher, 0, 1)
    s.provider.gate = fail
    with pytest.raises(type(error)):
        s.read(fetcher, 60, 1)  # a block
    only_the_cache_is_charged(fetcher)


def test_loads_that_the_pool_cancels_are_given_back(s: Scene) -> None:
    pool = Cancelling()
    fetcher = s.fetcher(pool=pool, threads=1)
    s.read(fetcher, 0, 1)
    kept, pool.works = fetcher.budget.used_bytes, False
    reads = [fetcher.read_async(s.state, pull(offset, 1), 1) for offset in (40, 80)]
    assert fetcher.budget.used_bytes > kept
    pool.cancel()
    for read in reads:
        with pytest.raises(Unavailable):
            read.result(10)
    only_the_cache_is_charged(fetcher)


def test_a_read_that_many_wait_for_is_charged_once(s: Scene) -> None:
    with ThreadPoolExecutor(4) as pool:
        fetcher = s.fetcher(pool=pool, threads=4, read_ahead=False)
        s.read(fetcher, 0, 1)
        kept, opened = fetcher.budget.used_bytes, threading.Event()
        s.provider.gate = lambda *_: opened.wait(30)
        reads = [fetcher.read_async(s.state, pull(80, 1), 1) for _ in range(9)]
        charged = fetcher.budget.used_bytes - kept
        opened.set()
        assert {bytes(read.result(30).records[0]) for read in reads} == {s.raws()[80]}
        assert 0 < charged < 64 * 1024, "one block of 4 KiB and its stored bytes, not nine"
        only_the_cache_is_charged(fetcher)


def test_read_ahead_that_somebody_else_was_quicker_with_is_given_back(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = s.fetcher()
    flights = fetcher._loader._flights
    enter = flights.enter

    def late(names: Any, *, foreground: bool, wanted: Any = ()) -> Any:
        return enter(names, foreground=foreground, wanted=wanted) if foreground else None

    monkeypatch.setattr(flights, "enter", late)
    for offset in range(0, 60, 10):
        s.read(fetcher, offset, 10)
    assert fetcher.budget.peak_bytes > fetcher.cache.used_bytes
    only_the_cache_is_charged(fetcher)


def test_reading_ahead_and_closing_leave_nothing(s: Scene) -> None:
    fetcher = s.fetcher()
    for offset in range(0, 60, 10):
        s.read(fetcher, offset, 10)
    only_the_cache_is_charged(fetcher)
    fetcher.close()
    with pytest.raises(TieredError):
        s.read(fetcher, 80, 10)
    assert (fetcher.budget.used_bytes, fetcher.budget.ahead_bytes) == (0, 0)
