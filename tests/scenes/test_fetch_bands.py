"""Bands fetched ahead of everybody: asked for where readers of several queues come to one after the other, else not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import merge_all
from tests.kit.sealing import after_midnight, seal_all
from tiered.archive.read.runs import BlockKey, BlockRef, blocks_of
from tiered.clock import ManualClock
from tiered.fetch.allowance import Account, Shares
from tiered.fetch.bands import BANDS_AHEAD, REST, BandsAhead
from tiered.fetch.base import ReaderId
from tiered.fetch.cache import BlockCache
from tiered.fetch.loader import Loader
from tiered.model import MessageQueue
from tiered.settings import KIB, Tenants

QUEUES = [MessageQueue("Orders", number) for number in range(24)]
ROWS = 6


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("bands")) as made:
        for number in range(ROWS * len(QUEUES)):
            made.broker.send("Orders", number % len(QUEUES), b"%d" % number * 200)
        made.daemon.settle()
        merge_all(made.daemon)
        after_midnight(made)
        seal_all(made.daemon, row_group_bytes=12 * KIB)
        yield made


@pytest.fixture
def bands(sealed: Scene) -> list[list[BlockRef]]:
    """Blocks by the band that they lie in."""
    found: dict[object, list[BlockRef]] = {}
    objects = sealed.objects()
    for queue in QUEUES:
        for run in sealed.state.runs(queue, 1):
            item = sealed.state.object(run.object)
            assert item is not None
            for ref in blocks_of(run, item, objects.block_table(item), run.start, key="k"):
                found.setdefault(ref.fetched_as, []).append(ref)
    assert len(found) > 6
    assert all(len({ref.key.queue_id for ref in refs}) > 1 for refs in found.values())
    return list(found.values())


NOBODYS = Shares(Tenants(), ManualClock()).account(ReaderId("g"), "Orders")


class Asked:
    """A loader that only hears what is asked for, and a cache that holds what it is told."""

    def __init__(self, sealed: Scene) -> None:
        self.refs: list[BlockRef] = []
        self.held: set[BlockKey] = set()
        self.room = True
        objects = sealed.objects()
        for item in sealed.state.objects():
            if item.level == 2:
                objects.block_table(item)
        self.ahead_of_all = self.made(sealed, enabled=True)

    def made(self, sealed: Scene, *, enabled: bool) -> BandsAhead:
        objects = sealed.objects()
        for item in sealed.state.objects():
            if item.level == 2:
                objects.block_table(item)
        return BandsAhead(objects, cast("Loader", self), cast("BlockCache", self.held), enabled=enabled)

    def find(self, ref: BlockRef) -> None:
        return None

    def ahead(self, refs: Sequence[BlockRef], account: Account, owner: object, stamp: int) -> bool:
        self.refs += refs
        return self.room


def test_behind_a_band_that_another_queue_led_to(sealed: Scene, bands: list[list[BlockRef]]) -> None:
    asked = Asked(sealed)
    asked.ahead_of_all.reached(bands[1][0], NOBODYS)
    assert asked.refs == []
    asked.ahead_of_all.reached(bands[2][-1], NOBODYS)
    expected = [band[0] for band in bands[3 : 3 + BANDS_AHEAD]]
    found = [
        one._replace(run=other.run, first_row=other.first_row)
        for one, other in zip(asked.refs, expected, strict=True)
    ]
    assert found == expected
    for ref in (*bands[1], *bands[2]):
        asked.ahead_of_all.reached(ref, NOBODYS)
    assert len(asked.refs) == BANDS_AHEAD, "once for a band"


def test_what_is_here_is_not_asked_for_and_what_lacks_room_ends_it(
    sealed: Scene, bands: list[list[BlockRef]]
) -> None:
    asked = Asked(sealed)
    asked.held.add(bands[2][0].key)
    asked.ahead_of_all.reached(bands[0][0], NOBODYS)
    asked.ahead_of_all.reached(bands[1][-1], NOBODYS)
    assert [ref.position for ref in asked.refs] == [bands[3][0].position]
    asked.room = False
    asked.ahead_of_all.reached(bands[2][-1], NOBODYS)
    assert [ref.position for ref in asked.refs[1:]] == [bands[3][0].position]


def test_neither_backwards_nor_here_and_there_nor_by_one_queue_alone(
    sealed: Scene, bands: list[list[BlockRef]]
) -> None:
    asked = Asked(sealed)
    for number in (5, 4, 2, 0):
        asked.ahead_of_all.reached(bands[number][0], NOBODYS)
    lone = bands[1][0]._replace(key=bands[0][0].key._replace(block=bands[1][0].key.block))
    asked.ahead_of_all.reached(lone, NOBODYS)
    asked.ahead_of_all.reached(bands[2][0]._replace(group=None), NOBODYS)
    off = asked.made(sealed, enabled=False)
    off.reached(bands[0][0], NOBODYS)
    off.reached(bands[1][-1], NOBODYS)
    assert asked.refs == []


def test_the_last_bands_of_a_file(sealed: Scene, bands: list[list[BlockRef]]) -> None:
    asked = Asked(sealed)
    asked.ahead_of_all.reached(bands[-3][0], NOBODYS)
    asked.ahead_of_all.reached(bands[-2][-1], NOBODYS)
    asked.ahead_of_all.reached(bands[-1][-1], NOBODYS)
    assert [ref.position for ref in asked.refs] == [bands[-1][0].position]


@pytest.mark.parametrize("why", ["wasted", "pushed back"])
def test_it_rests_after_waste_and_when_the_store_asks_for_patience(
    sealed: Scene, bands: list[list[BlockRef]], why: str
) -> None:
    asked = Asked(sealed)
    if why == "wasted":
        asked.ahead_of_all.block_wasted(bands[0][0].key, 1, 0)
    else:
        asked.ahead_of_all.pushed_back(0)
    for other in range(1000, 1000 + REST):  # objects
        for ref in (bands[0][0], bands[1][-1]):
            asked.ahead_of_all.reached(ref._replace(key=ref.key._replace(commit_seq=other)), NOBODYS)
    assert asked.refs == []
    asked.ahead_of_all.reached(bands[0][0], NOBODYS)
    asked.ahead_of_all.reached(bands[1][-1], NOBODYS)
    assert len(asked.refs) == BANDS_AHEAD


def test_queues_read_one_after_the_other_find_the_next_band_here(sealed: Scene) -> None:
    def away() -> float:
        return float(sealed.metrics.fetch_blocks.labels("away")._value.get())

    before = away()
    sealed.provider.gets.clear()
    with ThreadPoolExecutor(4) as pool:
        fetcher = sealed.fetcher(pool=pool)
        for number, queue in enumerate(QUEUES):
            who = ReaderId(f"reader of {number}")
            found = [bytes(r) for r in sealed.read(fetcher, 0, 32, reader=who, queue=queue).records]
            assert found == sealed.raws(queue)
    footer = min(item.sections[8][0] for item in sealed.state.objects() if 8 in item.sections)
    starts = [start for _, start, _ in sealed.provider.gets if start < footer]
    assert len(starts) == len(set(starts)), "each once"
    assert away() - before == 2, "the first two were waited for from their request on"
    assert fetcher.cache.wasted_bytes == 0
