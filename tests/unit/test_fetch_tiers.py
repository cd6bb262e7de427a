"""Memory within its bound under a crowd, and the disk tier behind it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.fetchscene import ORDERS, Scene, pull, scene
from tiered.fetch.base import CacheVerdict, FetchedRecords, ReaderId
from tiered.fetch.fetcher import Fetcher
from tiered.model import MessageQueue
from tiered.settings import KIB, MIB


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path / "scene") as made:
        yield made


class Walker:
    """A reader that goes on from each answer to the next, driven by the answers alone."""

    def __init__(self, s: Scene, fetcher: Fetcher, number: int, offset: int, pulls: int) -> None:
        self._s, self._fetcher = s, fetcher
        self._reader = ReaderId(f"group {number}")
        self._left = pulls
        self.offset = self.next = offset
        self.found: list[bytes] = []
        self.done: Future[None] = Future()

    def pull(self) -> None:
        answer = self._fetcher.read_async(self._s.state, pull(self.next, 4, reader=self._reader), 1)
        answer.add_done_callback(self.came)

    def came(self, answer: Future[FetchedRecords]) -> None:
        error = answer.exception()
        if error is not None:
            self.done.set_exception(error)
            return
        got = answer.result()
        self.found += map(bytes, got.records)
        self.next = got.next_offset
        self._left -= 1
        if self._left and got.records:
            self.pull()
        else:
            self.done.set_result(None)


def test_a_thousand_cold_readers_stay_inside_the_budget_and_none_waits_for_ever(tmp_path: Path) -> None:
    with scene(tmp_path, block_bytes=128 * KIB, object_bytes=8 * MIB) as s, ThreadPoolExecutor(8) as pool:
        s.send(600, size=40_000, noise=True)
        fetcher = s.fetcher(pool=pool, threads=8, request_bytes=MIB)
        chance = random.Random(1)
        walkers = [Walker(s, fetcher, n, chance.randrange(580), 2) for n in range(1000)]
        for walker in walkers:
            walker.pull()
        raws = s.raws()
        for walker in walkers:
            walker.done.result(120)
            assert walker.found == raws[walker.offset : walker.next]
            assert len(walker.found) >= min(8, 600 - walker.offset)
        assert fetcher.budget.peak_bytes <= fetcher.budget.limit_bytes == 8 * MIB
        assert fetcher.budget.waiting == 0
        pool.shutdown()
        assert fetcher.budget.used_bytes == fetcher.cache.used_bytes
        assert fetcher.budget.ahead_bytes == 0


def test_sixty_threads_that_wait_themselves(tmp_path: Path) -> None:
    with scene(tmp_path, block_bytes=128 * KIB, object_bytes=8 * MIB) as s, ThreadPoolExecutor(4) as pool:
        s.send(300, size=40_000, noise=True)
        fetcher = s.fetcher(pool=pool, threads=4, request_bytes=MIB)
        raws = s.raws()
        wrong: list[int] = []

        def walk(number: int) -> None:
            offset = number * 4
            for _ in range(5):
                got = s.read(fetcher, offset, 4, reader=ReaderId(f"group {number}"))
                if [bytes(r) for r in got.records] != raws[offset : got.next_offset]:
                    wrong.append(number)
                offset = got.next_offset

        threads = [threading.Thread(target=walk, args=(number,)) for number in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []
        assert fetcher.budget.peak_bytes <= fetcher.budget.limit_bytes


def test_a_block_larger_than_the_budget_is_read_alone(tmp_path: Path) -> None:
    with scene(tmp_path, file_bytes=1 << 22, block_bytes=4096) as s:
        s.send(5)
        s.send(1, size=3_900_000, noise=True)
        s.send(5)
        fetcher = s.fetcher()
        object.__setattr__(fetcher.budget, "limit_bytes", 2 * MIB)
        assert s.read_through(fetcher) == s.raws()
        assert fetcher.budget.used_bytes == fetcher.cache.used_bytes <= 2 * MIB


class Told:
    """An ``Expiry`` that keeps what a test says and notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int | None]] = []
        self.keep = True

    def observe(
        self, reader: ReaderId, queue: MessageQueue, offset: int, now: float, *, begin: int | None = None
    ) -> None:
        self.heard.append((reader.group, offset, begin))

    def verdict(
        self, queue: MessageQueue, first_offset: int, end_offset: int, loaded_at: float, now: float
    ) -> CacheVerdict:
        assert queue == ORDERS
        return CacheVerdict(self.keep)


def test_blocks_that_nobody_wants_after_a_read_are_dropped_at_once(s: Scene) -> None:
    s.send(100)
    told = Told()
    fetcher = s.fetcher(expiry=told, read_ahead=False)
    s.read(fetcher, 3, 40)
    kept = len(fetcher.cache)
    assert kept > 3
    assert told.heard == [("readers", 43, 3)]
    told.keep = False
    s.read(fetcher, 3, 40)
    assert len(fetcher.cache) <= 1, "the block it is in the middle of stays"
    assert fetcher.budget.used_bytes == fetcher.cache.used_bytes


# ---- the disk tier


def test_what_was_fetched_once_is_on_disk_for_the_next_process(s: Scene, tmp_path: Path) -> None:
    s.send(200, noise=True)
    disk = {"disk_directory": str(tmp_path / "tier"), "disk_bytes": 16 * MIB}
    assert s.read_through(s.fetcher(**disk)) == s.raws()
    again = s.fetcher(**disk)
    assert s.read_through(again) == s.raws()
    assert len(s.provider.gets) == 1, "the block table"
    again.refresh_metrics()
    assert (s.metrics.value("tiered_fetch_disk_bytes") or 0) >= sum(map(len, s.raws()))


def test_damage_on_disk_is_a_miss(s: Scene, tmp_path: Path) -> None:
    s.send(200, noise=True)
    disk = {"disk_directory": str(tmp_path / "tier"), "disk_bytes": 16 * MIB}
    s.read_through(s.fetcher(**disk))
    files = sorted(path for path in (tmp_path / "tier").rglob("*-*") if path.is_file())
    for number, path in enumerate(files[:6]):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data if number % 3 == 0 else data[: len(data) // 2] if number % 3 == 1 else b"")
    assert s.read_through(s.fetcher(**disk)) == s.raws()
    assert len(s.provider.gets) <= 1 + 6
    assert len(s.provider.gets) > 1
    assert not s.metrics.value("tiered_fetch_damaged_total")
    assert s.read_through(s.fetcher(**disk)) == s.raws()
    assert len(s.provider.gets) == 1, "and it is mended"


def test_damage_in_the_store_never_reaches_the_disk(s: Scene, tmp_path: Path) -> None:
    s.send(100, noise=True)
    fetcher = s.fetcher(disk_directory=str(tmp_path / "tier"), disk_bytes=16 * MIB)
    s.read(fetcher, 0, 1)
    s.provider.spoil = lambda key, start, data: bytes(len(data))
    got = s.read(fetcher, 0, 100)
    assert [bytes(r) for r in got.records] == s.raws()[: len(got.records)]
    files = [path for path in (tmp_path / "tier").rglob("*-*") if path.is_file()]
    assert len(files) == 1
