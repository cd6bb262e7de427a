"""Any history, any read: what a fetcher answers is what a list would, and it always gets on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.aged import Stage
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.merging import merge_all
from tests.kit.pipeline import INNER_BATCH
from tests.kit.sealing import after_midnight, seal_all
from tiered.fetch.base import ReaderId
from tiered.fetch.budget import Budget
from tiered.fetch.window import UNIT_BYTES, ReadAheadWindow
from tiered.settings import MIB

FLUSHES = st.lists(
    st.lists(
        st.tuples(st.integers(1, 900), st.integers(1, 4), st.booleans(), st.integers(0, 2)),
        min_size=1,
        max_size=25,
    ),
    min_size=1,
    max_size=4,
)
READS = st.lists(
    st.tuples(
        st.sampled_from(["jump", "on"]),
        st.integers(0, 120),
        st.integers(1, 40),
        st.sampled_from([1, 700, 3000, 100_000]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@dataclass(frozen=True)
class Sizes:
    """Records whose body is odd in length, told from a column first when ``early``."""

    early: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return ("body_length", "sys_flag") if self.early else ()

    def may_match(self, rows: Mapping[str, npt.NDArray[Any]], tags: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        return rows["body_length"] % 2 == 1

    def accepts(self, record: memoryview) -> bool:
        return int.from_bytes(record[84:88], "big") % 2 == 1


def write(s: Scene, flushes: list[list[tuple[int, int, bool, int]]]) -> None:
    """Messages of any size, some of them inner batches, with holes before some."""
    for rows in flushes:
        for size, owned, hole, other in rows:
            fields: dict[str, Any] = {}
            if owned > 1:
                fields = {"sys_flag": INNER_BATCH, "properties": {"INNER_NUM": str(owned)}}
            if hole and s.broker.following:
                fields["queue_offset"] = s.broker.following.get(("Orders", 0), 0) + owned
            s.send(1, size=size, flush=False, **fields)
            if other:
                s.send(other, size=size, flush=False, queue_id=1)
        s.daemon.settle()


def expected(
    s: Scene, offset: int, count: int, size: int, chosen: Sizes | None
) -> tuple[list[tuple[int, bytes]], int]:
    """What a list would answer, and where the first record not answered for begins."""
    rows = [(m.queue_offset, raw) for m, raw in s.broker.sent if m.queue_id == 0]
    ends = [o for o, _ in rows[1:]] + [s.broker.following["Orders", 0]]
    owned = [int(m.properties.get("INNER_NUM", "1")) for m, _ in s.broker.sent if m.queue_id == 0]
    found: list[tuple[int, bytes]] = []
    taken = 0
    for (at, raw), end, own in zip(rows, ends, owned, strict=True):
        if at + own <= offset:
            continue
        if chosen is not None and not chosen.accepts(memoryview(raw)):
            continue
        if len(found) == count or (found and taken + len(raw) > size):
            return found, at
        found.append((at, raw))
        taken += len(raw)
        del end
    return found, max(offset, ends[-1])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FLUSHES, READS, st.sampled_from([None, Sizes(False), Sizes(True)]), st.sampled_from(Stage))
def test_reads_answer_as_a_list_would(
    flushes: list[list[tuple[int, int, bool, int]]],
    reads: list[tuple[str, int, int, int, bool]],
    chosen: Sizes | None,
    stage: Stage,
) -> None:
    with tempfile.TemporaryDirectory() as directory, scene(Path(directory)) as s:
        write(s, flushes)
        if stage is Stage.MERGED:
            merge_all(s.daemon)
        if stage in (Stage.SEALED, Stage.MIXED):
            after_midnight(s)
            seal_all(s.daemon, row_group_bytes=3000)
        fetcher = s.fetcher()
        offset = 0
        for kind, place, count, size, same in reads:
            offset = place if kind == "jump" else offset
            reader = ReaderId("one" if same else "two")
            got = s.read(fetcher, offset, count, reader=reader, max_bytes=size, row_filter=chosen)
            records, first_left = expected(s, offset, count, size, chosen)
            assert list(zip(got.queue_offsets, map(bytes, got.records), strict=True)) == records
            if chosen is None:
                assert got.next_offset == first_left
            else:
                assert got.next_offset <= first_left
            assert got.next_offset >= (records[-1][0] + 1 if records else offset)
            offset = got.next_offset
        assert fetcher.budget.used_bytes == fetcher.cache.used_bytes
        assert fetcher.budget.waiting == fetcher.budget.ahead_bytes == 0
        assert ORDERS.queue_id == 0


EVENTS = st.lists(
    st.tuples(st.sampled_from(["used", "wasted", "pushed", "restart"]), st.integers(1, 20 * MIB)), max_size=60
)


@given(st.integers(1, 256 * MIB), EVENTS)
def test_a_window_stays_in_its_bounds_and_only_use_makes_it_grow(
    ceiling: int, events: list[tuple[str, int]]
) -> None:
    window = ReadAheadWindow(ceiling)
    for kind, size in events:
        before = window.window_bytes
        if kind == "used":
            window.used(size)
            assert before <= window.window_bytes <= before + size + UNIT_BYTES
        elif kind == "wasted":
            window.wasted(window.stamp)
            assert window.window_bytes == max(before // 2, UNIT_BYTES)
        elif kind == "pushed":
            window.pushed_back(window.stamp)
            assert window.window_bytes == UNIT_BYTES
        else:
            window.restart()
            assert window.window_bytes <= before
        assert UNIT_BYTES <= window.window_bytes <= max(ceiling, UNIT_BYTES)
        assert window.request_bytes(8 * MIB) <= max(window.window_bytes, UNIT_BYTES)


STEPS = st.lists(
    st.tuples(st.sampled_from(["demand", "ahead", "end", "drop"]), st.integers(1, 130)), max_size=80
)


@given(STEPS)
def test_a_budget_is_never_passed_and_everybody_gets_a_turn(steps: list[tuple[str, int]]) -> None:
    held = [0]

    def evict(size: int, *, ahead: bool) -> int:
        freed = min(held[0] // 2 if ahead else held[0], size)
        held[0] -= freed
        return freed

    budget = Budget(100, evict)
    flying: list[tuple[int, bool]] = []
    asked = granted = 0

    def grant(size: int) -> None:
        nonlocal granted
        granted += 1
        flying.append((size, False))

    def end(kept: int) -> None:
        size, ahead = flying.pop(0)
        kept = min(kept, size) if size <= 100 else 0
        held[0] += kept
        budget.settle(size, kept, ahead=ahead)

    for kind, size in steps:
        if kind == "demand":
            asked += 1
            budget.request(size, lambda size=size: grant(size))  # type: ignore[misc]
        elif kind == "ahead" and budget.try_ahead(size):
            flying.append((size, True))
        elif kind == "end" and flying:
            end(size)
        elif kind == "drop":
            freed = min(size, held[0])
            held[0] -= freed
            budget.release(freed)
        alone = len(flying) == 1 and flying[0][0] > 100
        assert budget.used_bytes == sum(size for size, _ in flying) + held[0]
        assert alone or budget.used_bytes <= 100
        assert flying or not budget.waiting
    while flying:
        end(0)
    assert granted == asked
