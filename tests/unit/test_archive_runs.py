"""From runs to blocks to the places of records: one run and several give the same, with inner batches and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kit.fetchscene import Scene, scene
from tiered.archive.read.runs import (
    SeveralRuns,
    blocks_of,
    record_edges,
    row_offsets,
    rows_before,
    rows_between,
    stretch_offsets,
)
from tiered.archive.state.values import RunState
from tiered.codec.format.block import BlockTable
from tiered.errors import Corrupt


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    """Runs of two queues in one object, of several blocks each."""
    with scene(tmp_path) as made:
        for queue_id in (0, 1):
            made.send(30, queue_id=queue_id, flush=queue_id == 1)
        yield made


def parts(s: Scene) -> tuple[list[RunState], BlockTable]:
    runs = sorted(s.state.runs_all(), key=lambda run: run.first_block)
    assert len({run.object for run in runs}) == 1
    item = s.state.object(runs[0].object)
    assert item is not None
    return runs, s.objects().block_table(item)


def test_several_runs_have_the_blocks_that_each_of_them_has(s: Scene) -> None:
    runs, table = parts(s)
    second = int(table["first_queue_offset"][runs[0].first_block + 1])
    runs[0] = replace(runs[0], start=second, end=20)  # what a trim and a rewind leave
    item = s.state.object(runs[0].object)
    assert item is not None
    numbers = np.arange(runs[0].first_block, runs[1].end_block)
    run_of = np.repeat([0, 1], [run.block_count for run in runs])
    several = SeveralRuns(runs)
    firsts, ends = table["first_queue_offset"][numbers], several.block_ends(table, numbers, run_of)
    refs = [
        ref
        for run in runs
        for ref in blocks_of(run, item, table, run.first_queue_offset, run.end_offset, key="k")
    ]
    assert [(r.key.block, r.first_offset, r.end_offset) for r in refs] == list(
        zip(numbers.tolist(), firsts.tolist(), ends.tolist(), strict=True)
    )
    assert [r.first_row for r in refs] == [rows_before(table, 0, n) for n in numbers.tolist()]
    live = [ref.key.block for run in runs for ref in blocks_of(run, item, table, run.start, key="k")]
    assert numbers[several.live_blocks(firsts, ends, run_of)].tolist() == live
    assert len(live) < len(refs)


@pytest.mark.parametrize("offset", [0, 7, 8, 29])
def test_blocks_begin_at_the_one_that_holds_an_offset(s: Scene, offset: int) -> None:
    runs, table = parts(s)
    item = s.state.object(runs[1].object)
    assert item is not None
    (found,) = blocks_of(runs[1], item, table, offset, offset + 1, key="k")
    assert found.first_offset <= offset < found.end_offset


def test_rows_in_the_live_part() -> None:
    class Run:
        def __init__(self, start: int, end: int) -> None:
            self.start, self.end = start, end

    several = SeveralRuns([Run(3, 5), Run(0, 2)])  # type: ignore[list-item]
    offsets, run_of = np.array([2, 3, 4, 5, 0, 1, 2]), np.array([0, 0, 0, 0, 1, 1, 1])
    assert several.live_rows(offsets, run_of).tolist() == [False, True, True, False, True, True, False]


def test_offsets_of_rows() -> None:
    owned = np.array([1, 3, 2], np.int32)
    assert row_offsets(10, 3).tolist() == [10, 11, 12]
    assert row_offsets(10, 3, owned).tolist() == [10, 11, 14]
    firsts, counts = np.array([10, 70, 20]), np.array([3, 2, 3])
    assert stretch_offsets(firsts, counts).tolist() == [10, 11, 12, 70, 71, 20, 21, 22]
    three = np.concatenate([owned, [9, 9], owned])
    mixed = stretch_offsets(firsts, counts, three, np.array([False, False, True]))
    assert mixed.tolist() == [10, 11, 12, 70, 71, 20, 21, 24], "only batched stretches go by what rows own"
    assert stretch_offsets(firsts, np.array([3, 0, 0]), owned, np.array([True, True, True])).tolist() == [
        10,
        11,
        14,
    ]


@pytest.mark.parametrize(
    ("first", "end", "rows"),
    [(0, 99, (0, 3)), (11, 12, (1, 2)), (12, 14, (1, 2)), (14, 15, (2, 3)), (10, 10, (0, 0))],
)
def test_rows_that_own_offsets(first: int, end: int, rows: tuple[int, int]) -> None:
    """A batch that contains the first offset belongs to them."""
    assert rows_between(np.array([10, 11, 14]), 10, 3, first, end) == rows


def test_rows_that_own_one_offset_each() -> None:
    assert rows_between(None, 10, 3, 0, 11) == (0, 1)
    assert rows_between(None, 10, 3, 11, 99) == (1, 3)
    assert rows_between(None, 10, 3, 0, 5) == (0, 0)


def test_a_block_of_other_records_than_its_table_says(s: Scene) -> None:
    raws = s.raws()[:3]
    sizes = [len(raw) for raw in raws]
    data = b"".join(raws)
    assert record_edges(data, 3, key="k").tolist() == [0, *np.cumsum(sizes).tolist()]
    for rows, wrong in ((2, data), (4, data), (3, data + b"\0"), (3, data[:-1])):
        with pytest.raises(Corrupt, match="do not add up") as caught:
            record_edges(wrong, rows, key="k", position=7)
        assert (caught.value.fields["key"], caught.value.fields["position"]) == ("k", 7)
