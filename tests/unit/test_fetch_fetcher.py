"""Reading queues: how many requests, which records, where to go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import assemble
from tests.kit.fetchscene import ORDERS, Scene, pull, scene
from tests.kit.pipeline import INNER_BATCH
from tiered.codec.record.message import decode_message
from tiered.errors import Corrupt, NotFound, Unavailable
from tiered.fetch.base import FetchedRecords, ReaderId
from tiered.model import MessageQueue
from tiered.settings import KIB, MIB


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def raws(got: FetchedRecords) -> list[bytes]:
    return [bytes(record) for record in got.records]


# ---- requests


def test_a_miss_costs_one_request_when_the_table_is_cached_and_two_when_it_is_not(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher(read_ahead=False)
    assert raws(s.read(fetcher, 0, 1)) == s.raws()[:1]
    assert len(s.provider.gets) == 2
    assert raws(s.read(fetcher, 50, 1)) == s.raws()[50:51]
    assert len(s.provider.gets) == 3
    s.read(fetcher, 50, 1)
    assert len(s.provider.gets) == 3
    assert s.metrics.value("tiered_fetch_blocks_total", where="away") == 2
    assert s.metrics.value("tiered_fetch_blocks_total", where="memory") == 1


def test_data_inside_commits_costs_the_same(tmp_path: Path) -> None:
    with scene(tmp_path, inline_bytes=1 << 20) as s:
        s.send(100)
        fetcher = s.fetcher(read_ahead=False)
        assert raws(s.read(fetcher, 90, 5)) == s.raws()[90:95]
        assert len(s.provider.gets) == 2
        assert "/commit/" in s.provider.gets[0][0]


def test_neighbouring_blocks_come_in_one_request_up_to_its_largest_size(s: Scene) -> None:
    s.send(400, noise=True)
    fetcher = s.fetcher(read_ahead=False)
    assert raws(s.read(fetcher, 10, 50)) == s.raws()[10:60]
    assert len(s.provider.gets) == 2
    s.provider.gets.clear()
    fetcher = s.fetcher(read_ahead=False, request_bytes=64 * KIB)
    assert raws(s.read(fetcher, 0, 400)) == s.raws()
    assert max(length for _, _, length in s.provider.gets) <= 64 * KIB


def test_a_large_read_is_split_and_fetched_concurrently(tmp_path: Path) -> None:
    with scene(tmp_path) as s, ThreadPoolExecutor(8) as pool:
        s.send(1500, noise=True)
        fetcher = s.fetcher(pool=pool, threads=8, read_ahead=False)
        s.read(fetcher, 0, 1)
        together = threading.Barrier(4)
        firsts = iter(range(4))
        s.provider.gate = lambda *_: together.wait(30) and None if next(firsts, None) is not None else None
        assert raws(s.read(fetcher, 0, 1500, max_bytes=2 * MIB)) == s.raws()
        assert s.provider.most_flying >= 4
        assert max(length for _, _, length in s.provider.gets) <= 64 * KIB


def test_many_askers_of_one_block_cause_one_request(s: Scene) -> None:
    s.send(100)
    with ThreadPoolExecutor(2) as pool:
        fetcher = s.fetcher(pool=pool, threads=2)
        opened = threading.Event()
        s.provider.gate = lambda *_: opened.wait(30) and None
        answers = [
            fetcher.read_async(s.state, pull(40, 3, reader=ReaderId(f"group {number}")), 1)
            for number in range(50)
        ]
        opened.set()
        assert all(raws(answer.result(30)) == s.raws()[40:43] for answer in answers)
        assert len(s.provider.gets) == 2


def test_the_cache_is_shared_by_all_groups(s: Scene) -> None:
    s.send(300)
    fetcher = s.fetcher()
    s.read_through(fetcher)
    s.provider.gets.clear()
    assert s.read_through(fetcher, reader=ReaderId("others", "client")) == s.raws()
    assert s.provider.gets == []


# ---- records


def test_reading_through_gives_every_record_once(s: Scene) -> None:
    for _ in range(4):
        s.send(57)
    fetcher = s.fetcher()
    assert s.read_through(fetcher) == s.raws()
    assert fetcher.budget.used_bytes == fetcher.cache.used_bytes
    assert fetcher.budget.peak_bytes <= fetcher.budget.limit_bytes


def test_limits_of_count_and_bytes(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()
    size = len(s.raws()[0])
    got = s.read(fetcher, 5, 32, max_bytes=8 * size + 10)
    assert (raws(got), got.next_offset, got.examined) == (s.raws()[5:13], 13, 8)
    got = s.read(fetcher, 5, 8)
    assert (len(got.records), got.queue_offsets, got.next_offset) == (8, tuple(range(5, 13)), 13)
    got = s.read(fetcher, 5, 32, max_bytes=1)
    assert (raws(got), got.next_offset) == (s.raws()[5:6], 6)
    got = s.read(fetcher, 5, 0, max_bytes=-1)
    assert raws(got) == s.raws()[5:6]


class EverySecond:
    """A filter that looks at records only, and wants those at even queue offsets."""

    columns: tuple[str, ...] = ()

    def may_match(self, rows: Any, tags: Any) -> Any:
        raise AssertionError("asked without columns")

    def accepts(self, record: memoryview) -> bool:
        return int.from_bytes(record[20:28], "big") % 2 == 0


def test_limits_of_count_and_bytes_behind_a_filter(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()
    size = len(s.raws()[0])
    got = s.read(fetcher, 0, 32, max_bytes=3 * size + 10, row_filter=EverySecond())
    assert (got.queue_offsets, got.next_offset, got.examined) == ((0, 2, 4), 6, 6)
    got = s.read(fetcher, 0, 3, row_filter=EverySecond())
    assert (got.queue_offsets, got.next_offset, got.examined) == ((0, 2, 4), 6, 6)
    got = s.read(fetcher, 0, 32, max_bytes=1, row_filter=EverySecond())
    assert (got.queue_offsets, got.next_offset) == ((0,), 2)


def test_a_read_that_is_full_at_a_blocks_end_asks_for_no_further_block(s: Scene) -> None:
    s.send(20)
    fetcher = s.fetcher(read_ahead=False)
    s.read(fetcher, 0, 20)
    s.send(20)
    s.provider.gets.clear()
    got = s.read(fetcher, 1, 19)
    assert (len(got.records), got.next_offset) == (19, 20)
    assert max(run.end for run in s.state.runs(ORDERS, 1)) == 40
    assert s.provider.gets == []


def test_a_record_larger_than_every_limit_comes_alone(s: Scene) -> None:
    s.send(3)
    s.send(1, size=300_000)
    s.send(3)
    fetcher = s.fetcher()
    got = s.read(fetcher, 2, 32, max_bytes=1000)
    assert (raws(got), got.next_offset) == (s.raws()[2:3], 3)
    got = s.read(fetcher, 3, 32, max_bytes=1000)
    assert (raws(got), got.next_offset) == (s.raws()[3:4], 4)


def test_at_and_beyond_the_end_and_before_the_beginning(s: Scene) -> None:
    s.send(10)
    fetcher = s.fetcher()
    for offset in (10, 11, 1 << 62):
        got = s.read(fetcher, offset)
        assert (got.records, got.next_offset, got.examined) == ((), offset, 0)
    assert s.read(fetcher, -5).queue_offsets == tuple(range(10))
    assert s.read(fetcher, 0, queue=MessageQueue("Nothing", 3)).records == ()


def test_holes_are_skipped_and_said(s: Scene) -> None:
    s.send(10)
    s.send(5, flush=False, queue_offset=100)
    s.broker.following["Orders", 0] = 101
    s.broker.sent = s.broker.sent[:11]
    s.daemon.settle()
    fetcher = s.fetcher()
    got = s.read(fetcher, 0, 10)
    assert (got.queue_offsets[-1], got.next_offset) == (9, 100)
    got = s.read(fetcher, 50, 32)
    assert got.queue_offsets[0] == 100
    got = s.read(fetcher, 8, 32)
    assert got.queue_offsets[:3] == (8, 9, 100)


def test_an_inner_batch_that_contains_the_offset_comes_whole(s: Scene) -> None:
    for number in range(30):
        s.send(1, flush=False)
        s.send(1, flush=False, sys_flag=INNER_BATCH, properties={"INNER_NUM": str(2 + number % 3)})
    s.daemon.settle()
    fetcher = s.fetcher(read_ahead=False)
    offsets = [m.queue_offset for m, _ in s.broker.sent]
    end = s.broker.following["Orders", 0]
    for offset in range(end):
        first = max(i for i, o in enumerate(offsets) if o <= offset)
        got = s.read(fetcher, offset, 2)
        assert raws(got) == s.raws()[first : first + 2]
        assert got.queue_offsets == tuple(offsets[first : first + 2])
        assert got.next_offset == (offsets[first + 2] if first + 2 < len(offsets) else end)
    assert s.read_through(fetcher) == s.raws()
    assert len(s.provider.gets) <= 10, "offsets come from the records: no column was fetched for them"


def test_closed_history_is_not_served(s: Scene) -> None:
    s.send(60)
    s.daemon.close()
    s.broker.crash(s.broker.sent[20][0].physical_offset)
    s.send(5, size=400, flush=False)
    s.daemon = assemble(
        s.broker.store, s.provider, s.clock, seed=2, dispatch={"block_bytes": 4096, "inline_bytes": 0}
    )
    s.send(30, size=400)
    assert any(run.closed_by is not None for run in s.state.closed_parts(ORDERS))
    fetcher = s.fetcher()
    assert s.read_through(fetcher) == s.raws()
    assert s.read(fetcher, 19, 3).queue_offsets == (19, 20, 21)


def test_what_is_answered_pins_little(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()
    few = s.read(fetcher, 0, 1).records[0]
    assert memoryview(few).obj is not None
    assert len(few.obj) == len(few)  # type: ignore[arg-type]
    many = s.read(fetcher, 0, 7).records
    assert all(len(record.obj) < 8192 for record in many)  # type: ignore[arg-type]


# ---- damage


def spoiled(s: Scene, block: int) -> tuple[str, int]:
    """Break one byte of a block in whatever answer carries it; its key and position."""
    state = s.state
    run = next(iter(state.runs(ORDERS, 1)))
    item = state.object(run.object)
    assert item is not None
    objects = s.objects()
    row = objects.block_table(item)[run.first_block + block]
    at, key = int(row["position"]), objects.key_of(item)

    def spoil(name: str, start: int, data: bytes) -> bytes:
        if name != key or not start <= at < start + len(data):
            return data
        broken = bytearray(data)
        broken[at - start] ^= 1
        return bytes(broken)

    s.provider.spoil = spoil
    return key, at


def test_a_damaged_block_is_reported_and_never_served_nor_kept(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()
    key, position = spoiled(s, 2)
    edge = s.read(fetcher, 0, 100)
    assert raws(edge) == s.raws()[: len(edge.records)]
    assert 0 < edge.next_offset < 30
    for _ in range(2):
        before = len(s.provider.gets)
        with pytest.raises(Corrupt) as caught:
            s.read(fetcher, edge.next_offset, 1)
        assert (caught.value.fields["key"], caught.value.fields["position"]) == (key, position)
        assert len(s.provider.gets) == before + 1
    assert (s.metrics.value("tiered_fetch_damaged_total") or 0) >= 2
    beyond = s.read(fetcher, 40, 60)
    assert raws(beyond) == s.raws()[40:]
    s.provider.spoil = lambda key, start, data: data
    assert s.read_through(fetcher) == s.raws()
    assert fetcher.budget.used_bytes == fetcher.cache.used_bytes


def test_an_answer_cut_short_is_damage(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()
    s.read(fetcher, 0, 1)
    s.provider.spoil = lambda key, start, data: data[: len(data) // 2]
    with pytest.raises(Corrupt):
        s.read(fetcher, 60, 1)
    s.provider.spoil = lambda key, start, data: data
    assert raws(s.read(fetcher, 60, 1)) == s.raws()[60:61]


def test_a_damaged_table_is_reported_too(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()
    s.provider.spoil = lambda key, start, data: data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(Corrupt):
        s.read(fetcher, 0, 1)
    assert s.metrics.value("tiered_fetch_damaged_total") == 1
    s.provider.spoil = lambda key, start, data: data
    assert raws(s.read(fetcher, 0, 1)) == s.raws()[:1]


def test_a_store_that_is_away_and_an_object_that_is_gone(s: Scene) -> None:
    s.send(100)
    fetcher = s.fetcher()

    def away(*_: object) -> None:
        raise Unavailable("away")

    s.provider.gate = away
    with pytest.raises(Unavailable):
        s.read(fetcher, 0)
    with pytest.raises(Unavailable):
        fetcher.read_async(s.state, pull(0, 1, max_bytes=1), 1).result(10)
    s.provider.gate = lambda *_: None
    s.read(fetcher, 0, 1)
    for key in {key for key, _, _ in s.provider.gets}:
        s.provider.delete(key)
    with pytest.raises(NotFound):
        s.read(fetcher, 60, 1)
    assert raws(s.read(fetcher, 0, 1)) == s.raws()[:1]


# ---- closing


def test_closing_ends_whoever_waits(s: Scene) -> None:
    s.send(100)
    with ThreadPoolExecutor(1) as pool:
        fetcher = s.fetcher(pool=pool, threads=1)
        s.read(fetcher, 0, 1)
        entered, opened = threading.Event(), threading.Event()

        def gate(*_: object) -> None:
            entered.set()
            opened.wait(30)

        s.provider.gate = gate
        first, second = (fetcher.read_async(s.state, pull(offset, 1), 1) for offset in (40, 80))
        assert entered.wait(30)
        fetcher.close()
        with pytest.raises(Unavailable):
            second.result(30)
        opened.set()
        assert raws(first.result(30)) == s.raws()[40:41]
        with pytest.raises(Unavailable):
            s.read(fetcher, 60, 1)


def test_an_error_of_ours_reaches_whoever_waits(s: Scene) -> None:
    s.send(10)
    fetcher = s.fetcher()

    def mistake(*_: object) -> None:
        raise ZeroDivisionError

    s.read(fetcher, 0, 1, reader=ReaderId("first"))
    s.fetcher()
    s.provider.gate = mistake
    with pytest.raises(ZeroDivisionError):
        s.read(s.made[-1], 0, 1)
    with pytest.raises(ZeroDivisionError):
        s.made[-1].read_async(s.state, pull(0, 1, max_bytes=1), 1).result(10)
    assert decode_message(s.raws()[0]).topic == "Orders"
