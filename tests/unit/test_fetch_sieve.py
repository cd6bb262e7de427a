"""Filters on columns before bodies: what is not fetched, and that nothing is missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.kit.fetchscene import Scene, scene
from tiered.codec.record.message import decode_message
from tiered.filter.base import RowFilter
from tiered.filter.tags import sql_filter, tag_filter
from tiered.settings import KIB, MIB

TAGS = ("red", "green", "blue")


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def tagged(s: Scene, count: int, tag: str, **fields: Any) -> None:
    for _ in range(count):
        s.send(1, flush=False, noise=True, properties={"TAGS": tag}, **fields)


def wanted(s: Scene, *tags: str) -> list[bytes]:
    return [raw for m, raw in s.broker.sent if decode_message(raw).properties.get("TAGS") in tags]


def tags(expression: str) -> RowFilter:
    made = tag_filter(expression)
    assert made is not None
    return made


def test_only_blocks_with_a_wanted_tag_are_fetched(s: Scene) -> None:
    for number in range(10):
        tagged(s, 200, "rare" if number == 4 else TAGS[number % 3])
    s.daemon.settle()
    unfiltered = s.fetcher()
    s.read_through(unfiltered)
    everything = s.provider.bytes
    fetcher = s.fetcher()
    assert s.read_through(fetcher, row_filter=tags("rare")) == wanted(s, "rare")
    assert s.provider.bytes <= 0.15 * everything
    assert s.read_through(fetcher, row_filter=tags("rare || nothing")) == wanted(s, "rare")


def test_an_object_without_any_wanted_tag_costs_its_tables_only(s: Scene) -> None:
    tagged(s, 500, "red")
    s.daemon.settle()
    fetcher = s.fetcher()
    got = s.read(fetcher, 0, row_filter=tags("absent"))
    assert (got.records, got.next_offset, got.examined) == ((), 500, 500)
    assert len(s.provider.gets) == 2, "block table and directory: no columns, no body"


def test_never_noticeably_more_than_without_a_filter(s: Scene) -> None:
    for number in range(1500):
        tagged(s, 1, TAGS[number % 3])
    s.daemon.settle()
    s.read_through(s.fetcher())
    everything = s.provider.bytes
    fetcher = s.fetcher()
    assert s.read_through(fetcher, row_filter=tags("green")) == wanted(s, "green")
    assert s.provider.bytes <= 1.02 * everything


def test_small_runs_are_not_worth_their_columns(s: Scene) -> None:
    for _ in range(5):
        tagged(s, 8, "red")
        tagged(s, 8, "blue")
        s.daemon.settle()
    fetcher = s.fetcher(read_ahead=False)
    assert s.read_through(fetcher, row_filter=tags("blue")) == wanted(s, "blue")
    assert len(s.provider.gets) <= 5 * 3


def test_limits_count_what_is_accepted_and_offsets_stay_exact(s: Scene) -> None:
    for number in range(300):
        tagged(s, 1, "red" if number % 7 == 0 else "blue")
    s.daemon.settle()
    fetcher = s.fetcher()
    got = s.read(fetcher, 1, 3, row_filter=tags("red"))
    assert got.queue_offsets == (7, 14, 21)
    assert got.next_offset in range(22, 29)
    got = s.read(fetcher, 0, 100, max_bytes=1, row_filter=tags("red"))
    assert (got.queue_offsets, got.next_offset) == ((0,), 7)
    size = len(s.raws()[0])
    got = s.read(fetcher, 0, 100, max_bytes=4 * size, row_filter=tags("red"))
    assert got.queue_offsets == (0, 7, 14, 21)


def test_sql_is_exact_on_bodies(s: Scene) -> None:
    for number in range(200):
        s.send(1, flush=False, properties={"TAGS": "t", "number": str(number)})
    s.daemon.settle()
    fetcher = s.fetcher()
    found = s.read_through(fetcher, row_filter=sql_filter("number BETWEEN 50 AND 60 OR number = 199"))
    assert found == [*s.raws()[50:61], s.raws()[199]]


class Counted:
    """Accepts nothing; ``columns`` tell nothing. Notes what it was shown."""

    columns: tuple[str, ...] = ()
    shown = 0

    def may_match(self, rows: Mapping[str, npt.NDArray[Any]], tags: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        raise AssertionError("it named no columns")

    def accepts(self, record: memoryview) -> bool:
        self.shown += 1
        return False


def test_a_read_that_finds_nothing_comes_back_to_say_how_far_it_is(s: Scene) -> None:
    s.send(1500, noise=True)
    fetcher = s.fetcher(request_bytes=64 * KIB)
    nothing = Counted()
    got = s.read(fetcher, 0, 32, max_bytes=100 * KIB, row_filter=nothing)
    assert got.records == ()
    assert 100 <= got.next_offset <= 250
    assert got.examined == nothing.shown == got.next_offset
    assert s.read_through(fetcher, row_filter=nothing) == []
    assert nothing.shown == got.next_offset + 1500


def test_a_filtered_reader_is_fetched_ahead_past_what_it_does_not_want(tmp_path: Path) -> None:
    with scene(tmp_path) as s, ThreadPoolExecutor(8) as pool:
        for number in range(40):
            tagged(s, 60, "rare" if number % 8 == 0 else "red")
        s.daemon.settle()
        fetcher = s.fetcher(pool=pool, threads=8)
        assert s.read_through(fetcher, count=10, row_filter=tags("rare")) == wanted(s, "rare")
        demand = s.metrics.value("tiered_fetched_bytes_total", why="demand") or 0
        ahead = s.metrics.value("tiered_fetched_bytes_total", why="ahead") or 0
        assert ahead > demand
        assert demand + ahead <= 2 * sum(map(len, wanted(s, "rare")))
        assert s.read_through(fetcher, count=10, max_bytes=2 * MIB) == s.raws()
