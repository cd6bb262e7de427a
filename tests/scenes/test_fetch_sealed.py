"""Reading queues out of segments: a row group is fetched and decoded once for everybody, within the budget, and checked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import merge_all
from tests.kit.sealing import after_midnight, seal_all
from tiered.archive.read.runs import BlockRef, blocks_of
from tiered.errors import Corrupt, NotFound
from tiered.fetch.base import ReaderId
from tiered.fetch.block import charge_bytes
from tiered.fetch.fetcher import Fetcher
from tiered.model import MessageQueue
from tiered.settings import KIB, MIB

QUEUES = [MessageQueue("Orders", number) for number in range(9)]
ROWS = 12


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Small queues, of which row groups hold several."""
    with scene(tmp_path_factory.mktemp("fetch")) as made:
        for number in range(ROWS * len(QUEUES)):
            made.broker.send("Orders", number % len(QUEUES), b"%d" % number * 200)
        made.daemon.settle()
        merge_all(made.daemon)
        after_midnight(made)
        seal_all(made.daemon, row_group_bytes=24 * KIB)
        yield made


@pytest.fixture
def s(sealed: Scene) -> Iterator[Scene]:
    yield sealed
    sealed.provider.gate = lambda key, start, length: None
    sealed.provider.spoil = lambda key, start, data: data


def refs(s: Scene) -> list[BlockRef]:
    """Every block of the segment."""
    found, objects = [], s.objects()
    for queue in QUEUES:
        for run in s.state.runs(queue, 1):
            item = s.state.object(run.object)
            assert item is not None
            table = objects.block_table(item)
            found += blocks_of(run, item, table, run.start, key="k")
    return found


def groups(s: Scene) -> dict[object, list[BlockRef]]:
    found: dict[object, list[BlockRef]] = {}
    for ref in refs(s):
        found.setdefault(ref.fetched_as, []).append(ref)
    return found


def row_groups_fetched(s: Scene) -> list[tuple[int, int]]:
    footer = min(item.sections[8][0] for item in s.state.objects() if 8 in item.sections)
    return [(start, length) for _, start, length in s.provider.gets if start < footer]


def read(s: Scene, fetcher: Fetcher, queue: MessageQueue, offset: int = 0, count: int = 32) -> list[bytes]:
    who = ReaderId(f"readers of {queue.queue_id}")
    return [bytes(r) for r in s.read(fetcher, offset, count, reader=who, queue=queue).records]


def test_the_scene_has_shared_row_groups(s: Scene) -> None:
    shared = groups(s)
    assert len(shared) >= 3
    assert all(len(blocks) > 1 for blocks in list(shared.values())[:2])
    for blocks in shared.values():
        assert {(b.group.first, b.group.end) for b in blocks if b.group} == {
            (blocks[0].key.block, blocks[-1].key.block + 1)
        }
        assert {b.group.raw_length for b in blocks if b.group} == {sum(b.raw_length for b in blocks)}
        assert {b.group.rows for b in blocks if b.group} == {sum(b.rows for b in blocks)}


def test_queues_that_share_a_row_group_fetch_and_decode_it_once(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher, decoded = s.fetcher(read_ahead=False), list[int]()
    from tiered.codec.segment.reader import BandBytes, Segment

    records = Segment.records

    def counted(self: Segment, bands: tuple[int, int], data: BandBytes) -> object:
        decoded.extend(range(*bands))
        return records(self, bands, data)

    monkeypatch.setattr(Segment, "records", counted)
    for offset in range(0, ROWS, 4):  # by turns
        for queue in QUEUES:
            assert read(s, fetcher, queue, offset, 4) == s.raws(queue)[offset : offset + 4]
    assert sorted(decoded) == list(range(len(groups(s))))
    assert len(row_groups_fetched(s)) == len(groups(s))


def test_readers_at_the_same_time_share_one_flight(s: Scene) -> None:
    blocks = next(iter(groups(s).values()))
    barrier, opened = threading.Event(), threading.Event()
    with ThreadPoolExecutor(8) as pool, ThreadPoolExecutor(8) as readers:
        fetcher = s.fetcher(pool=pool, read_ahead=False)
        read(s, fetcher, QUEUES[-1])  # the footer is here
        s.provider.gets.clear()

        def gate(key: str, start: int, length: int) -> None:
            opened.set()
            assert barrier.wait(10)

        s.provider.gate = gate
        waiting = [readers.submit(read, s, fetcher, ref.run.queue) for ref in blocks]
        assert opened.wait(10)
        barrier.set()
        for ref, found in zip(blocks, waiting, strict=True):
            assert found.result(10)[: ref.rows] == s.raws(ref.run.queue)[: ref.rows]
    assert [start for start, _ in row_groups_fetched(s)].count(blocks[0].position) == 1


def test_a_row_group_on_its_way_is_charged_whole_and_settled(s: Scene) -> None:
    blocks = next(iter(groups(s).values()))
    charge, seen = charge_bytes(blocks), list[int]()
    assert charge == charge_bytes(blocks[:1]) > 3 * sum(b.raw_length for b in blocks)
    fetcher = s.fetcher(read_ahead=False)
    s.provider.gate = lambda key, start, length: seen.append(fetcher.budget.used_bytes)
    read(s, fetcher, blocks[0].run.queue)
    assert seen[-1] >= charge
    assert fetcher.budget.used_bytes == fetcher.cache.used_bytes > 0
    assert fetcher.cache.used_bytes <= charge
    assert fetcher.budget.peak_bytes <= fetcher.budget.limit_bytes


def test_within_a_budget_that_holds_less_than_all_of_it(s: Scene) -> None:
    largest = max(charge_bytes(blocks) for blocks in groups(s).values())
    fetcher = s.fetcher(budget_bytes=8 * MIB)
    read(s, fetcher, QUEUES[0])  # tables are charged, too, and larger here
    fetcher.budget.release(fetcher.cache.clear())
    fetcher.budget.peak_bytes = 0
    fetcher.budget.limit_bytes = fetcher.budget.ahead_limit_bytes = largest + 2 * KIB
    for offset in range(0, ROWS, 2):
        for queue in QUEUES:
            assert read(s, fetcher, queue, offset, 2) == s.raws(queue)[offset : offset + 2]
    assert largest <= fetcher.budget.peak_bytes <= fetcher.budget.limit_bytes
    assert fetcher.budget.used_bytes == fetcher.cache.used_bytes
    assert len(row_groups_fetched(s)) > len(groups(s)), "not all of them fit at once"


def test_what_nobody_asked_for_gives_way_to_read_ahead(s: Scene) -> None:
    fetcher = s.fetcher(read_ahead=False)
    read(s, fetcher, QUEUES[0])
    held = fetcher.cache.used_bytes
    assert fetcher.cache.evict(held, ahead=True) > held // 2
    assert fetcher.cache.wasted_bytes == 0


def test_reading_ahead_brings_the_next_row_groups_in_one_request(s: Scene) -> None:
    fetcher = s.fetcher()
    big = max(QUEUES, key=lambda q: sum(ref.run.queue == q for ref in refs(s)))
    found = [r for offset in range(0, ROWS, 2) for r in read(s, fetcher, big, offset, 2)]
    assert found == s.raws(big)
    assert len(row_groups_fetched(s)) <= sum(ref.run.queue == big for ref in refs(s))


def test_damage_is_named_for_each_of_its_queues_and_others_are_read(s: Scene) -> None:
    (_, blocks), *_ = groups(s).items()
    position = blocks[0].position
    s.provider.spoil = lambda key, start, data: bytes([data[0] ^ 1]) + data[1:] if start == position else data
    fetcher, hurt = s.fetcher(read_ahead=False), {ref.run.queue for ref in blocks}
    for queue in QUEUES:
        if queue in hurt:
            with pytest.raises(Corrupt) as found:
                read(s, fetcher, queue)
            assert found.value.fields["position"] == position
            assert "segment/topic=Orders" in str(found.value.fields["key"])
        else:
            assert read(s, fetcher, queue) == s.raws(queue)


def test_a_segment_that_is_gone_is_said(s: Scene) -> None:
    fetcher = s.fetcher(read_ahead=False)

    def gone(key: str, start: int, length: int) -> None:
        raise NotFound("no such key", key=key)

    read(s, fetcher, QUEUES[0])
    s.provider.gate = gone
    with pytest.raises(NotFound):
        read(s, fetcher, QUEUES[-1])


def test_row_groups_on_disk(s: Scene, tmp_path: Path) -> None:
    for _ in range(2):
        fetcher = s.fetcher(read_ahead=False, disk_directory=str(tmp_path), disk_bytes=16 * MIB)
        for queue in QUEUES:
            assert read(s, fetcher, queue) == s.raws(queue)
    assert not row_groups_fetched(s), "the second time all of it came from disk"
    for file in tmp_path.rglob("*-*"):
        file.write_bytes(b"\0" + file.read_bytes()[1:])
    fetcher = s.fetcher(read_ahead=False, disk_directory=str(tmp_path), disk_bytes=16 * MIB)
    for queue in QUEUES:
        assert read(s, fetcher, queue) == s.raws(queue)
    assert len(row_groups_fetched(s)) == len(groups(s))
