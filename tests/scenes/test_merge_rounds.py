"""When a round of merging begins, which runs it takes, how it is divided into jobs, and what is told of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all, merging, spread
from tiered.archive.log.flush import Priority
from tiered.archive.log.maintenance import Done
from tiered.archive.rewrite.mergeplan import Bounds, fresh_windows
from tiered.archive.state.values import RunState
from tiered.daemon.maintenance import LineTurn
from tiered.model import MessageQueue
from tiered.settings import Settings

_QUEUES = 6


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as found:
        yield found


def flushes(made: Scene, count: int, messages: int = 1, body: bytes = b"body") -> None:
    """Flushes of messages of every queue."""
    for _ in range(count):
        for queue_id in range(_QUEUES):
            for _ in range(messages):
                made.broker.send("Orders", queue_id, body)
        made.daemon.settle(SETTLED_SECONDS)


def runs_of_queues(made: Scene) -> Counter[MessageQueue]:
    return Counter(run.queue for run in made.state.runs_all())


def live(made: Scene) -> list[RunState]:
    return list(made.state.runs_all())


def test_runs_stay_few_and_a_message_is_written_again_once_a_tier(made: Scene) -> None:
    written = messages = 0
    most = 0
    for _ in range(70):
        flushes(made, 1)
        done = merge_all(made.daemon, growth=4, settled_bytes=1 << 20)
        written += sum(int(d.figures.get("messages") or 0) for d in done)
        most = max(most, *runs_of_queues(made).values())
    messages = sum(map(len, made.daemon.rows().values()))
    assert messages == 70 * _QUEUES
    assert most <= 3 * 4, "fewer than four of each of three sizes: of 1, 4, 16 and more"
    assert 3 * messages <= written <= 4 * messages, "as it came, and as it grew to 4, 16 and 64"


def test_a_settled_run_is_never_merged_again(made: Scene) -> None:
    for _ in range(4):
        flushes(made, 1, messages=5)
        merge_all(made.daemon, settled_bytes=400)
    assert set(runs_of_queues(made).values()) == {4}


def test_small_runs_of_many_flushes_are_taken_by_ranges_of_queues(made: Scene) -> None:
    flushes(made, 8)
    before = made.daemon.rows()
    bounds = Bounds(4096, 4096, 10, 1 << 26, 2 * _QUEUES)
    (window,) = fresh_windows(made.state, bounds)
    assert (window.runs, window.commits, window.jobs(bounds)) == (8 * _QUEUES, 8, 4)
    assert window.merged_run_bytes == window.record_bytes // _QUEUES
    done = [d for d in merge_all(made.daemon, job_runs=2 * _QUEUES) if d.figures]
    assert [d.figures["read_objects"] for d in done] == [8] * 6, "one queue a job: two would be 16 runs"
    assert set(runs_of_queues(made).values()) == {1}
    assert made.daemon.rows() == before


def test_large_enough_runs_are_taken_object_by_object(made: Scene) -> None:
    flushes(made, 8)
    done = [d for d in merge_all(made.daemon, job_runs=2 * _QUEUES, settled_bytes=100) if d.figures]
    assert [d.figures["read_objects"] for d in done] == [2] * 4
    assert set(runs_of_queues(made).values()) == {4}


def test_the_runs_of_a_queue_are_not_divided_between_jobs(made: Scene) -> None:
    flushes(made, 8)
    for run in merge_all(made.daemon, job_runs=19)[:-1]:
        assert run.figures["merged_runs"] == 16
    assert set(runs_of_queues(made).values()) == {1}


def test_one_queue_that_is_more_than_a_job_is_divided(made: Scene) -> None:
    flushes(made, 8)
    before = made.daemon.rows()
    bounds = {"job_runs": 3, "growth": 4}
    done = merge_all(made.daemon, **bounds)
    assert all(int(d.figures["merged_runs"] or 0) <= 3 for d in done if d.figures)
    assert made.daemon.rows() == before


def test_a_range_of_queues_is_read_without_the_blocks_of_others(made: Scene) -> None:
    noise = random.Random(1).randbytes(3000)
    flushes(made, 6, body=noise)
    merge_all(made.daemon, growth=100)
    flushes(made, 6, body=noise)
    merge_all(made.daemon, growth=100)
    objects = [item for item in made.state.objects() if item.references]
    assert len(objects) == 2
    made.provider.gets.clear()
    options = {"growth": 2, "settled_bytes": 1 << 20, "job_runs": 2}
    done = [d for d in merge_all(made.daemon, **options) if d.figures]
    assert [d.figures["merged_runs"] for d in done] == [2] * _QUEUES
    stored = sum(item.length for item in objects)
    assert sum(length for _, _, length in made.provider.gets) < 1.2 * stored, "each block once, tables once"
    assert set(runs_of_queues(made).values()) == {1}


def test_a_round_begins_before_its_time_once_enough_is_fresh(made: Scene) -> None:
    task = merging(made.daemon, waiting_runs=4 * _QUEUES)
    flushes(made, 3)
    assert not task.due(made.clock.monotonic())
    flushes(made, 1)
    assert task.due(made.clock.monotonic())
    assert not task.run_once(AtOnceTurn(made.daemon)).more
    assert not task.due(made.clock.monotonic())
    flushes(made, 4)
    assert task.due(made.clock.monotonic())


def test_a_round_that_began_before_its_time_comes_to_its_end(made: Scene) -> None:
    task = merging(made.daemon, waiting_runs=4 * _QUEUES, job_runs=4)
    flushes(made, 4)
    turns = 0
    while task.due(made.clock.monotonic()):
        task.run_once(AtOnceTurn(made.daemon))
        turns += 1
    assert turns == _QUEUES
    assert set(runs_of_queues(made).values()) == {1}


def test_what_is_fresh_goes_before_what_grows(made: Scene) -> None:
    for _ in range(2):
        flushes(made, 2)
        merge_all(made.daemon, growth=100)
    task = merging(made.daemon, waiting_runs=4 * _QUEUES, job_runs=4)
    turn = AtOnceTurn(made.daemon)
    first = task.run_once(turn)
    assert first.more
    assert first.figures["merged_runs"] == 4, "of two queues: four are left"
    flushes(made, 4)
    fresh = [task.run_once(turn) for _ in range(_QUEUES)]
    assert {d.figures["merged_runs"] for d in fresh} == {4}
    assert not [item for item in made.state.objects() if item.references and not item.level]
    assert len(live(made)) == 2 * 1 + 4 * 2 + _QUEUES
    while task.run_once(turn).more:
        pass
    assert len(live(made)) < 2 * 1 + 4 * 2 + _QUEUES


def test_merging_that_does_not_keep_up_is_told_until_it_does(made: Scene) -> None:
    task, turn = merging(made.daemon, waiting_runs=_QUEUES), AtOnceTurn(made.daemon)

    def told() -> str | None:
        found: list[Done] = []
        while not found or found[-1].more:
            found.append(task.run_once(turn))
        return next((d.trouble for d in found if d.trouble), None)

    flushes(made, 5)
    assert told() is None, "the first round finds what was left by others"
    flushes(made, 5)
    assert "merging does not keep up with archiving: 30 runs wait" in str(told())
    flushes(made, 4)
    assert told() is None


def test_runs_that_never_come_to_grow_are_told(made: Scene) -> None:
    for _ in range(5):
        flushes(made, 1)
        merge_all(made.daemon, growth=100)
    task, turn = merging(made.daemon, waiting_runs=_QUEUES, job_runs=5), AtOnceTurn(made.daemon)
    first = task.run_once(turn)
    assert (first.figures["merged_runs"], first.trouble) == (5, None), "one queue of six"
    flushes(made, 1)
    assert "36 runs wait" in str(task.run_once(turn).trouble), "six are fresh, thirty were to grow"


def test_a_growing_archive_of_unlike_queues_keeps_its_rows(made: Scene) -> None:
    for number in range(8):
        spread(made, 2, seed=number)
        merge_all(made.daemon, growth=3, settled_bytes=1 << 20, job_runs=16)
    rows = made.daemon.rows()
    merge_all(made.daemon, growth=2, settled_bytes=1 << 20)
    assert made.daemon.rows() == rows


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        made.send(3)
        yield made


def test_merging_is_done_by_the_loop(small: Scene) -> None:
    """With a turn that steps the line itself, as ``tiered maintain`` has it."""
    small.send(3)
    before = small.daemon.rows()
    line = small.daemon.line
    turn = LineTurn(line, small.clock, Settings(), lambda: False, step=line.step)
    done = merging(small.daemon).run_once(turn)
    assert done.figures["merged_runs"] == 2
    assert small.daemon.rows() == before
    assert [p.flush.priority for p in small.daemon.proven][-1] is Priority.SEALING
    assert len(list(small.state.runs(ORDERS, 1))) == 1
