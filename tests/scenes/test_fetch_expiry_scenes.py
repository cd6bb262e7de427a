"""Simulated readers on one cache: group progress is better than a plain LRU and a plain time to live, by measured margins."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import cachesim
from tests.kit.cachesim import BLOCK_BYTES, CAPACITY, Outcome, PlainLru, PlainTtl, Product, Reader, group
from tiered.fetch.base import PlainExpiry

pytestmark = [
    pytest.mark.no_cover,  # a hundred thousand pulls through lines that test_fetch_expiry.py visits
    pytest.mark.depends_only_on_imports("tiered/fetch/README.md"),
]
Scene = Callable[[int], list[Reader]]
MIB = 1 << 20
README = Path(cachesim.__file__).parents[2] / "tiered" / "fetch" / "README.md"

# scene: (fewer bytes than either by this factor, more hits than either by this), from measured 0.83, 0.68, 1, 0.86, 0.51, 0.82
MARGINS = {
    cachesim.fast_and_slow: (0.88, 0.015),
    cachesim.behind: (0.75, 0.05),
    cachesim.same_place: (1.0, 0.0),
    cachesim.one_stops: (0.90, 0.015),
    cachesim.broadcast: (0.65, 0.02),
    cachesim.newcomer: (0.88, 0.025),
}


@functools.cache
def outcomes(scene: Scene, seed: int) -> tuple[Outcome, Outcome, Outcome]:
    readers = scene(seed)
    groups, lru, ttl = (cachesim.simulate(make(), readers, seed) for make in cachesim.CACHES.values())
    assert lru.by_reader.keys() == groups.by_reader.keys()
    return groups, lru, ttl


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("scene", list(MARGINS), ids=lambda scene: scene.__name__)
def test_more_hits_and_fewer_bytes_than_lru_and_ttl(scene: Scene, seed: int) -> None:
    groups, lru, ttl = outcomes(scene, seed)
    factor, more = MARGINS[scene]
    assert groups.bytes_fetched <= factor * min(lru.bytes_fetched, ttl.bytes_fetched)
    assert groups.hit_rate >= max(lru.hit_rate, ttl.hit_rate) + more
    assert groups.held < lru.held


@pytest.mark.parametrize("scene", list(MARGINS), ids=lambda scene: scene.__name__)
def test_a_small_cache_too(scene: Scene) -> None:
    readers = scene(1)
    groups = cachesim.simulate(cachesim.product(48), readers, 1)
    for plain in (PlainLru(48), PlainTtl(48)):
        baseline = cachesim.simulate(plain, readers, 1)
        assert groups.bytes_fetched <= 0.95 * baseline.bytes_fetched
        assert groups.hit_rate > baseline.hit_rate


def test_ten_groups_at_one_place_fetch_what_one_would() -> None:
    groups, _, _ = outcomes(cachesim.same_place, 1)
    alone = cachesim.simulate(cachesim.product(), cachesim.alone(cachesim.same_place(1)), 1)
    assert groups.bytes_fetched <= 1.02 * alone.bytes_fetched
    assert groups.held * BLOCK_BYTES < 12 * MIB


def test_the_slow_group_gains_and_the_fast_one_loses_nothing() -> None:
    groups, lru, _ = outcomes(cachesim.fast_and_slow, 1)
    slow, fast = group("slow"), group("fast")
    assert groups.by_reader[slow][1] > lru.by_reader[slow][1] + 30
    assert groups.by_reader[fast][1] >= lru.by_reader[fast][1]


def test_after_a_group_has_stopped_its_blocks_leave_the_cache() -> None:
    cache = cachesim.product()
    cachesim.simulate(cache, [Reader(group("stops"), 1000, 40_000), Reader(group("goes"), 2000, 400_000)], 1)
    assert cache.held() < CAPACITY  # the run took 200 s: 160 s without the group that stopped
    assert all(cachesim.span(block)[1] > 399_000 for block in cache.blocks())


def test_one_reader_alone_holds_little_more_than_its_read_ahead() -> None:
    done = cachesim.simulate(cachesim.product(), [Reader(group("g"), 1000, 100_000)], 1)
    assert done.bytes_fetched == 400 * BLOCK_BYTES
    assert done.held < 10


def test_a_policy_that_knows_no_readers_does_as_a_plain_time_to_live() -> None:
    readers = cachesim.behind(1)
    plain = cachesim.simulate(PlainTtl(), readers, 1)
    product = cachesim.simulate(Product(PlainExpiry(cachesim.EXPIRY_SECONDS)), readers, 1)
    assert product.bytes_fetched == pytest.approx(plain.bytes_fetched, rel=0.02)


def test_the_page_shows_the_figures_of_this_code() -> None:
    page = README.read_text()
    for title, scene in cachesim.SCENES.items():
        (shown,) = [row for row in page.splitlines() if row.startswith(f"| {title} |")]
        found = cachesim.line(title, outcomes(scene, 1))
        assert figures(shown) == pytest.approx(figures(found), rel=0.05, abs=1), found


def figures(row: str) -> list[float]:
    return [float(cell.strip().rstrip("%")) for cell in row.split("|")[2:-1]]
