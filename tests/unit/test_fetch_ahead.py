"""Reading on: what is fetched ahead, for whom, and what makes it stop."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.fetchscene import ORDERS, READERS, Scene, pull, scene, window_bytes
from tests.kit.storefakes import Scripted
from tiered.errors import Unavailable
from tiered.fetch.base import ReaderId
from tiered.fetch.window import START_UNITS, UNIT_BYTES
from tiered.provider.wrap import Retrying
from tiered.settings import KIB, MIB


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def demanded(s: Scene) -> float:
    return s.metrics.value("tiered_fetched_bytes_total", why="demand") or 0


def ahead(s: Scene) -> float:
    return s.metrics.value("tiered_fetched_bytes_total", why="ahead") or 0


def test_who_reads_once_gets_nothing_ahead(s: Scene) -> None:
    s.send(300, noise=True)
    fetcher = s.fetcher()
    s.read(fetcher, 0, 1)
    s.read(fetcher, 0, 1)
    s.read(fetcher, 200, 1)
    s.read(fetcher, 100, 1)
    assert ahead(s) == 0
    assert len(s.provider.gets) == 4


def test_who_reads_on_finds_it_there(s: Scene) -> None:
    for _ in range(3):
        s.send(200, noise=True)
    fetcher = s.fetcher()
    assert s.read_through(fetcher, count=8) == s.raws()
    assert demanded(s) <= 3 * 4096
    assert demanded(s) + ahead(s) <= 1.02 * sum(map(len, s.raws()))
    assert s.metrics.value("tiered_fetch_blocks_total", where="away") <= 2
    assert len(s.provider.gets) <= 3 + 10


def test_off_means_every_miss_waits_for_the_store(s: Scene) -> None:
    s.send(300, noise=True)
    fetcher = s.fetcher(read_ahead=False)
    assert s.read_through(fetcher, count=8) == s.raws()
    assert ahead(s) == 0


def test_tables_of_the_next_runs_come_ahead_too(tmp_path: Path) -> None:
    """One short run per commit: what a daemon leaves that flushes every second. No foreground read fetches a table."""
    with scene(tmp_path) as s, ThreadPoolExecutor(8) as pool:
        for _ in range(12):
            s.send(10, noise=True)
        fetcher = s.fetcher(pool=pool, threads=8)
        s.read(fetcher, 0, 5)
        s.read(fetcher, 5, 5)
        wait_until(lambda: len(fetcher.cache) == 24)
        s.provider.gets.clear()
        assert s.read_through(fetcher) == s.raws()
        assert s.provider.gets == []


def wait_until(true: object, seconds: float = 30.0) -> None:
    """Poll something that threads bring about."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if true():  # type: ignore[operator]
            return
        pause.wait(0.005)
    raise AssertionError("it never came about")


def test_a_window_that_is_used_grows(s: Scene) -> None:
    s.send(3500, noise=True)
    fetcher = s.fetcher(budget_bytes=32 * MIB)
    s.read_through(fetcher)
    assert (window_bytes(fetcher, READERS, ORDERS) or 0) >= 2 * START_UNITS * UNIT_BYTES
    assert window_bytes(fetcher, ReaderId("nobody"), ORDERS) is None


def test_read_ahead_that_nobody_reads_expires_and_halves_the_window(s: Scene) -> None:
    s.send(3000, noise=True)
    fetcher = s.fetcher(cache_expiry_ms=10_000)
    s.read(fetcher, 0)
    s.read(fetcher, 32)
    before = window_bytes(fetcher, READERS, ORDERS)
    assert before is not None
    s.clock.advance(11)
    s.read(fetcher, 0, 1, reader=ReaderId("somebody"))
    assert window_bytes(fetcher, READERS, ORDERS) == before // 2
    assert s.metrics.value("tiered_fetch_wasted_bytes_total") == fetcher.cache.wasted_bytes > 0
    assert s.read_through(fetcher, offset=64) == s.raws()[64:]


def test_a_store_that_pushes_back_slows_read_ahead_and_fails_nobody(s: Scene) -> None:
    s.send(3000, noise=True)
    fetcher = s.fetcher()
    s.read(fetcher, 0)

    def busy(key: str, start: int, length: int) -> None:
        raise Unavailable("slow down")

    s.provider.gate = busy
    got = s.read(fetcher, 32, 1)
    assert got.next_offset == 33, "that block was in memory"
    assert window_bytes(fetcher, READERS, ORDERS) == UNIT_BYTES
    with pytest.raises(Unavailable):
        s.read(fetcher, 1000, 1)
    s.provider.gate = lambda *_: None
    assert s.read_through(fetcher, offset=33) == s.raws()[33:]


def test_a_refusal_that_a_second_try_hides_slows_read_ahead_too(s: Scene) -> None:
    s.send(3000, noise=True)
    fetcher = s.fetcher()
    s.read(fetcher, 0)
    s.provider.gets.clear()
    busy_once = Scripted(s.provider.inner, [Unavailable("503 SlowDown")])
    s.provider.inner = Retrying(busy_once, s.clock, random.Random(1), attempts=4, base_ms=100, max_ms=1000)
    s.read(fetcher, 32, 1)
    assert len(busy_once.calls) == len(s.provider.gets) + 1 >= 2, "one of them was made twice"
    assert window_bytes(fetcher, READERS, ORDERS) == UNIT_BYTES
    assert s.read_through(fetcher, offset=33) == s.raws()[33:]
    assert (window_bytes(fetcher, READERS, ORDERS) or 0) > UNIT_BYTES, "it grows again"


def test_who_jumps_starts_anew(s: Scene) -> None:
    s.send(3000, noise=True)
    fetcher = s.fetcher()
    offset = 0
    for _ in range(60):
        offset = s.read(fetcher, offset).next_offset
    assert (window_bytes(fetcher, READERS, ORDERS) or 0) > START_UNITS * UNIT_BYTES
    s.read(fetcher, 0, 1)
    assert window_bytes(fetcher, READERS, ORDERS) == START_UNITS * UNIT_BYTES


def test_foreground_never_waits_behind_read_ahead(tmp_path: Path) -> None:
    """All read-ahead hangs; a reader elsewhere is served all the same: a thread and memory are left for it."""
    with scene(tmp_path) as s, ThreadPoolExecutor(4) as pool:
        s.send(4000, noise=True)
        s.send(200, noise=True, queue_id=1)
        fetcher = s.fetcher(pool=pool, threads=4, request_bytes=256 * KIB)
        s.read(fetcher, 0)
        opened = threading.Event()

        def gate(key: str, start: int, length: int) -> None:
            if length > 64 * KIB:
                opened.wait(60)

        s.provider.gate = gate
        s.read(fetcher, 32)
        try:
            wait_until(lambda: s.provider.flying >= 3)
            other = type(ORDERS)("Orders", 1)
            got = s.read(fetcher, 100, 5, queue=other, reader=ReaderId("other"))
            assert [bytes(r) for r in got.records] == s.raws(other)[100:105]
        finally:
            opened.set()


def test_a_block_that_a_reader_waits_for_passes_read_ahead_in_line(tmp_path: Path) -> None:
    with scene(tmp_path) as s, ThreadPoolExecutor(2) as pool:
        s.send(2000, noise=True)
        fetcher = s.fetcher(pool=pool, threads=2)
        s.read(fetcher, 0)
        opened, first = threading.Event(), threading.Event()

        def gate(key: str, start: int, length: int) -> None:
            if not first.is_set():
                first.set()
                opened.wait(60)

        s.provider.gate = gate
        s.provider.gets.clear()
        s.read(fetcher, 32, 1)
        wait_until(first.is_set)
        line = [start for _, start, _ in s.provider.gets]
        got = fetcher.read_async(s.state, pull(1200, 1), 1)
        try:
            assert [bytes(r) for r in got.result(30).records] == s.raws()[1200:1201]
            assert line == [s.provider.gets[0][1]]
            assert len(s.provider.gets) == 2, "the second request was the one waited for"
        finally:
            opened.set()
