"""The runs along a queue: remembered ones are what a look-up would find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.fetchscene import ORDERS, scene
from tiered.archive.state.view import ArchiveState
from tiered.fetch.course import KNOWN_RUNS, Course, KnownRuns

RUNS = 2 * KNOWN_RUNS + 5


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveState]:
    with scene(tmp_path_factory.mktemp("course")) as made:
        for _ in range(RUNS):
            made.send(2)
        yield made.state


def _course(state: ArchiveState, known: KnownRuns) -> Course:
    return Course(state, ORDERS, 1, None, known)


def test_what_is_remembered_is_what_a_look_up_finds(state: ArchiveState) -> None:
    known, end = KnownRuns(), 2 * RUNS
    truth = [run for run, _ in _course(state, KnownRuns()).runs(0)]
    assert [run.start for run in truth] == list(range(0, end, 2))
    for offset in (0, 1, 2, 7, 70, 3, end - 1, 0, 40, 41, end, end + 9, 80, 12):
        found = [run for run, item in _course(state, known).runs(offset) if item.ref == run.object]
        assert found == [run for run in truth if run.end > offset], offset


def test_a_reader_and_the_walk_ahead_of_it_look_up_nothing_twice(state: ArchiveState) -> None:
    known = KnownRuns()
    ahead = _course(state, known).runs(0)
    for _ in range(KNOWN_RUNS // 2):
        next(ahead)
    for offset in range(KNOWN_RUNS // 2):
        legs = known.find(state, ORDERS, 1, offset)
        assert legs
        assert legs[0][0].start <= offset < legs[0][0].end


def test_memory_is_bounded_and_the_oldest_go(state: ArchiveState) -> None:
    known = KnownRuns()
    list(_course(state, known).runs(0))
    held = known.find(state, ORDERS, 1, 2 * RUNS - 2 * KNOWN_RUNS)
    assert len(held) == KNOWN_RUNS
    assert known.find(state, ORDERS, 1, 2 * RUNS - 2 * KNOWN_RUNS - 1) == ()


def test_where_a_queue_goes_on(state: ArchiveState) -> None:
    course, end = _course(state, KnownRuns()), 2 * RUNS
    assert [course.hole_after(offset) for offset in (0, 7, end - 1, end, end + 9)] == [
        0,
        7,
        end - 1,
        end,
        end + 9,
    ]
    former = Course(state, ORDERS, 9, None, KnownRuns())
    assert [former.hole_after(offset) for offset in (3, end)] == [3, end]


def test_another_state_or_generation_begins_anew(state: ArchiveState) -> None:
    known = KnownRuns()
    next(_course(state, known).runs(0))
    assert known.find(state, ORDERS, 1, 0)
    assert known.find(state, ORDERS, 2, 0) == ()
    newer = ArchiveState(state.view)
    assert known.find(newer, ORDERS, 1, 0) == ()
    next(_course(newer, known).runs(4))
    assert known.find(state, ORDERS, 1, 4) == ()
    assert known.find(newer, ORDERS, 1, 4)
    known.forget()
    assert known.find(newer, ORDERS, 1, 4) == ()
