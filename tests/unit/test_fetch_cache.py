"""The memory cache: what goes first, what was for nothing, who hears of it."""

from __future__ import annotations

import numpy as np

from tiered.archive.read.runs import BlockKey
from tiered.clock import ManualClock
from tiered.fetch.base import CacheVerdict, PlainExpiry, ReaderId
from tiered.fetch.block import LoadedBlock
from tiered.fetch.cache import BlockCache
from tiered.model import MessageQueue

SIZE = 100


class Known:
    """Verdicts by first offset; everything else is kept and wanted by nobody known."""

    def __init__(self) -> None:
        self.verdicts: dict[int, CacheVerdict] = {}

    def observe(
        self, reader: ReaderId, queue: MessageQueue, offset: int, now: float, *, begin: int | None = None
    ) -> None:
        raise AssertionError("the cache does not observe")

    def verdict(
        self, queue: MessageQueue, first_offset: int, end_offset: int, loaded_at: float, now: float
    ) -> CacheVerdict:
        return self.verdicts.get(first_offset, CacheVerdict(True))


class Heard:
    """An owner that writes down what it hears."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    def block_used(self, key: BlockKey, size: int) -> None:
        self.log.append(("used", key.block))

    def block_wasted(self, key: BlockKey, size: int, stamp: int) -> None:
        self.log.append((f"wasted {stamp}", key.block))


def key(number: int) -> BlockKey:
    return BlockKey("T", 0, 1, 5, 0, number)


def block(number: int, size: int = SIZE) -> LoadedBlock:
    return LoadedBlock(
        key(number), MessageQueue("T", 0), b"x", np.array([0, 1], np.int32), None, number, number + 1, size
    )


class Cached:
    def __init__(self, limit: int = 1000, expiry: object = None) -> None:
        self.clock = ManualClock()
        self.known = Known()
        self.heard = Heard()
        self.cache = BlockCache(limit, expiry or self.known, self.clock.monotonic)  # type: ignore[arg-type]

    def put(self, *numbers: int, ahead: bool = False) -> None:
        for number in numbers:
            kept = self.cache.put(
                block(number), owner=self.heard if ahead else None, stamp=3, stored_length=40, read=not ahead
            )
            assert kept == SIZE

    def here(self) -> list[int]:
        return [number for number in range(20) if key(number) in self.cache]


def test_a_block_is_kept_once_and_weighed() -> None:
    c = Cached()
    c.put(1)
    assert c.cache.put(block(1), owner=None, stamp=0, stored_length=1, read=True) == 0
    assert c.cache.put(block(2, 901), owner=None, stamp=0, stored_length=1, read=True) == 0
    assert (c.cache.used_bytes, len(c.cache), c.here()) == (SIZE, 1, [1])
    found = c.cache.get(key(1))
    assert found is not None
    assert found.first_offset == 1
    assert c.cache.get(key(2)) is None


def test_foreground_evicts_the_least_recently_used() -> None:
    c = Cached()
    c.put(0, 1, 2, 3)
    c.cache.get(key(0))
    assert c.cache.evict(150, ahead=False) == 200
    assert c.here() == [0, 3]
    assert c.cache.evict(10_000, ahead=False) == 200
    assert c.cache.evict(1, ahead=False) == 0


def test_what_is_worth_nothing_or_read_goes_first_then_ahead_then_wanted_latest() -> None:
    c = Cached()
    c.known.verdicts = {0: CacheVerdict(True, 10.0), 1: CacheVerdict(True, 99.0), 4: CacheVerdict(False)}
    c.put(0, 1)
    c.put(2, ahead=True)
    c.put(3, 4)
    gone = []
    while len(c.cache):
        before = set(c.here())
        c.cache.evict(1, ahead=False)
        gone += before - set(c.here())
    assert (set(gone[:2]), gone[2:]) == ({3, 4}, [2, 1, 0])


def test_read_ahead_takes_only_what_was_read_and_nobody_wants() -> None:
    c = Cached()
    c.known.verdicts = {0: CacheVerdict(True, 10.0)}
    c.put(0)
    c.put(1, ahead=True)
    c.put(2)
    assert c.cache.evict(1000, ahead=True) == SIZE
    assert c.here() == [0, 1]
    c.known.verdicts = {1: CacheVerdict(False)}
    c.known.verdicts[0] = CacheVerdict(True, 10.0)
    assert c.cache.evict(1000, ahead=True) == SIZE
    assert c.here() == [0]


def test_an_owner_hears_of_the_first_reading_and_of_waste() -> None:
    c = Cached()
    c.put(1, 2, ahead=True)
    c.cache.get(key(1))
    c.cache.get(key(1))
    c.cache.evict(1000, ahead=False)
    assert sorted(c.heard.log) == [("used", 1), ("wasted 3", 2)]
    assert c.cache.wasted_bytes == 40


def test_review_drops_a_block_that_nobody_will_want() -> None:
    c = Cached()
    c.put(1, 2)
    assert c.cache.review(key(1)) == 0
    c.known.verdicts[1] = CacheVerdict(False)
    assert c.cache.review(key(1)) == SIZE
    assert c.cache.review(key(1)) == 0
    assert c.here() == [2]


def test_plain_expiry_counts_from_the_last_reading() -> None:
    c = Cached(expiry=PlainExpiry(10.0))
    c.put(1, 2)
    c.put(3, ahead=True)
    c.clock.advance(6)
    c.cache.get(key(2))
    c.clock.advance(6)
    assert c.cache.sweep() == 2 * SIZE
    assert c.here() == [2]
    assert c.heard.log == [("wasted 3", 3)]


def test_clearing_blames_nobody() -> None:
    c = Cached()
    c.put(1, 2, ahead=True)
    assert c.cache.clear() == 2 * SIZE
    assert (c.cache.used_bytes, len(c.cache), c.heard.log) == (0, 0, [])
