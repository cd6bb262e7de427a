"""The daemon's loop over work in the background: behind archiving, within bounds, never silent about what it cannot do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.fetchscene import Scene, scene
from tiered.archive.log.flush import Flush
from tiered.archive.log.maintenance import Done, Outlook, Stopped, Task, Turn
from tiered.clock import ManualClock
from tiered.daemon import maintenance
from tiered.daemon.maintenance import (
    LATE_WAITS,
    LONG_TURN_SECONDS,
    REST_FACTOR,
    REST_WAITS,
    LineTurn,
    MaintenanceLoop,
)
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.metrics import Metrics
from tiered.service import AGAIN, DONE
from tiered.settings import MIB, Maintenance, Settings

WAIT_SECONDS = Settings().maintenance.max_wait_ms // 1000


@dataclass
class Scripted:
    """A task that does what it is told."""

    name: str = "scripted"
    work: list[Callable[[Turn], Done]] = field(default_factory=list)
    wanted: bool = True

    def due(self, now: float) -> bool:
        return self.wanted

    def plan(self) -> Outlook:
        return Outlook(len(self.work), "work")

    def run_once(self, turn: Turn) -> Done:
        return self.work.pop(0)(turn)


def failing(error: Exception) -> Callable[[Turn], Done]:
    def work(turn: Turn) -> Done:
        raise error

    return work


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        made.send(3)
        yield made


class Loop:
    """A loop over tasks, stepped by hand."""

    def __init__(self, small: Scene, *tasks: Task, rate: int = 0) -> None:
        self.metrics = Metrics()
        self.stopping = False
        settings = Settings(maintenance=Maintenance(max_bytes_per_second=rate))
        self.heard: list[TieredError] = []
        self.loop = MaintenanceLoop(
            tasks,
            small.daemon.line,
            small.clock,
            settings,
            self.metrics,
            lambda: self.stopping,
            failed=self.hear,
        )

    def hear(self, error: TieredError) -> None:
        self.heard.append(error)
        raise Unavailable("the store is away from whoever hears it, too")

    def problem(self, task: str) -> float | None:
        return self.metrics.value("tiered_maintenance_problem", task=task)


def test_turns_follow_each_other_until_nothing_is_left(small: Scene) -> None:
    task = Scripted(
        work=[lambda turn: Done(more=True, figures={"made": 2}), lambda turn: Done(False, {"made": 3})]
    )
    made = Loop(small, task)
    assert made.loop.step() == AGAIN
    assert made.loop.step().wait_seconds
    assert made.loop.status()["tasks"]["scripted"]["done"] == {"made": 5}  # type: ignore[index]
    assert made.metrics.value("tiered_maintenance_done_total", task="scripted", what="made") == 5
    assert made.metrics.value("tiered_maintenance_turns_total", task="scripted") == 2


def test_what_is_not_due_is_not_done(small: Scene) -> None:
    made = Loop(small, Scripted(wanted=False, work=[failing(AssertionError())]))
    assert made.loop.step().wait_seconds


def test_no_turn_begins_while_the_line_is_full(small: Scene) -> None:
    line = small.daemon.line
    line.committing = False
    for _ in range(line._depth - 1):
        small.broker.send()
        small.daemon.dispatcher.buffer.drop()
        progress = small.daemon.dispatcher._mark.progress(1)
        line.submit(Flush((progress,), None, 0.0))
    made = Loop(small, Scripted(work=[failing(AssertionError())]))
    assert made.loop.step().wait_seconds
    small.daemon.commit_all()
    made = Loop(small, Scripted(work=[lambda turn: Done(more=True)]))
    assert made.loop.step() == AGAIN


def test_an_error_is_told_once_waited_out_and_taken_back(
    small: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tiered.daemon")
    error = Unavailable("the store is away")
    task = Scripted(work=[failing(error), failing(error), lambda turn: Done(more=False)])
    made = Loop(small, task)
    for _ in range(2):
        made.loop.step()
        assert made.problem("scripted") == 1
        assert "away" in str(made.loop.problem())
        left = len(task.work)
        assert made.loop.step().wait_seconds
        assert len(task.work) == left, "it waits"
        small.clock.advance(60)
    assert made.heard == [error, error]
    made.loop.step()
    assert (made.problem("scripted"), made.loop.problem()) == (0, None)
    said = [record.message for record in caplog.records]
    assert said.count("maintenance cannot do its work now; archiving goes on") == 1
    assert said.count("maintenance works again") == 1


def test_a_bug_ends_nothing(small: Scene) -> None:
    made = Loop(small, Scripted(work=[failing(ZeroDivisionError("division"))]))
    assert made.loop.step().wait_seconds
    assert "division" in str(made.loop.problem())


def test_one_task_that_fails_does_not_keep_another(small: Scene) -> None:
    other = Scripted("other", [lambda turn: Done(more=True)])
    made = Loop(small, Scripted(work=[failing(Unavailable("away"))] * 9), other)
    made.loop.step()
    assert made.loop.step() == AGAIN
    assert other.work == []


def test_trouble_within_a_round_is_shown_until_a_round_without(small: Scene) -> None:
    task = Scripted(
        work=[
            lambda turn: Done(more=True, trouble="an object is damaged"),
            lambda turn: Done(more=False),
            lambda turn: Done(more=False),
        ]
    )
    made = Loop(small, task)
    made.loop.step()
    made.loop.step()
    assert made.loop.problem() == "an object is damaged"
    made.loop.step()
    assert made.loop.problem() is None


def test_the_end_of_the_line_ends_it(small: Scene) -> None:
    line = small.daemon.line
    line.committing = False

    def break_the_line(turn: Turn) -> Done:
        line.submit(Flush((small.daemon.dispatcher._mark.progress(7),), None, 0.0))  # of no lineage
        raise Unavailable("away")

    made = Loop(small, Scripted(work=[break_the_line]))
    with pytest.raises(Corrupt):
        made.loop.step()


def test_a_stop_ends_a_turn_wherever_it_stands(small: Scene) -> None:
    made = Loop(small, rate=MIB)
    turn = LineTurn(small.daemon.line, small.clock, Settings(), lambda: True)
    with pytest.raises(Stopped):
        turn.spend(1)
    with pytest.raises(Stopped):
        turn.commit(Flush((), None, 0.0))
    made.stopping = True
    assert made.loop.step() == DONE
    assert Loop(small, Scripted(work=[failing(Stopped())])).loop.step() == DONE


def test_bytes_are_paced(small: Scene) -> None:
    clock: ManualClock = small.clock
    turn = LineTurn(
        small.daemon.line, clock, Settings(maintenance=Maintenance(max_bytes_per_second=MIB)), lambda: False
    )
    begun = clock.monotonic()
    for _ in range(8):
        turn.spend(MIB)
    assert 6.5 <= clock.monotonic() - begun <= 8.5


def fill(small: Scene) -> None:
    """Let the line be as full as archiving makes it, and stay so."""
    line = small.daemon.line
    line.committing = False
    while line.room:
        line.submit(Flush((small.daemon.dispatcher._mark.progress(1),), None, 0.0))


def test_beside_a_line_that_is_never_quiet_a_turn_begins_after_its_wait(small: Scene) -> None:
    fill(small)
    clock: ManualClock = small.clock
    took = 2.0

    def work(turn: Turn) -> Done:
        clock.advance(took)
        return Done(more=True)

    task = Scripted(work=[work] * 3)
    made = Loop(small, task)
    assert made.loop.step().wait_seconds
    clock.advance(WAIT_SECONDS - 1)
    assert made.loop.step().wait_seconds
    assert len(task.work) == 3
    clock.advance(1)
    assert made.loop.step() == AGAIN
    assert made.loop.step().wait_seconds
    clock.advance(WAIT_SECONDS)
    assert made.loop.step() == AGAIN
    assert len(task.work) == 1


def test_turns_beside_a_busy_line_take_a_tenth_of_the_time(small: Scene) -> None:
    fill(small)
    clock: ManualClock = small.clock
    taken = 0.0

    def work(turn: Turn) -> Done:
        nonlocal taken
        clock.advance(20)
        taken += 20
        return Done(more=True)

    made = Loop(small, *(Scripted(f"task-{n}", [work] * 99) for n in range(5)))
    begun = clock.monotonic()
    while clock.monotonic() - begun < 20 * 20 * (REST_FACTOR + 1):
        if made.loop.step() != AGAIN:
            clock.advance(1)
    assert 0.08 <= taken / (clock.monotonic() - begun) <= 0.11


@pytest.mark.parametrize("took", [1.0, 20.0, 300.0, 3000.0])
def test_nobody_waits_longer_than_a_wait_a_turn_and_a_rest_of_each(small: Scene, took: float) -> None:
    """Beside a line that is never quiet, and tasks that always have more to do; however long one turn takes."""
    fill(small)
    clock: ManualClock = small.clock
    begun: dict[str, list[float]] = {f"task-{n}": [clock.monotonic()] for n in range(4)}

    def work_of(name: str) -> Callable[[Turn], Done]:
        def work(turn: Turn) -> Done:
            begun[name].append(clock.monotonic())
            clock.advance(took)
            return Done(more=True)

        return work

    made = Loop(small, *(Scripted(name, [work_of(name)] * 999) for name in begun))
    rest = min(REST_FACTOR * took, REST_WAITS * WAIT_SECONDS)
    bound = WAIT_SECONDS + len(begun) * (took + rest + 1)
    until = clock.monotonic() + 5 * bound
    while clock.monotonic() < until:
        if made.loop.step() != AGAIN:
            clock.advance(1)
    for name, moments in begun.items():
        assert len(moments) > 4, name
        assert max(after - before for before, after in pairwise(moments)) <= bound, name


def test_a_turn_that_only_waited_needs_no_rest(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a place in the line, say, or as long as the bound of bytes a second asks for."""
    fill(small)
    clock: ManualClock = small.clock

    def waits(turn: Turn) -> Done:
        turn.spend(30 * MIB)
        return Done(more=True)

    def commits(turn: Turn) -> Done:
        monkeypatch.setattr(maintenance.LineTurn, "_commit", lambda self, flush: clock.advance(30))
        turn.commit(Flush((), None, 0.0))
        return Done(more=True)

    for work in (waits, commits):
        made = Loop(small, Scripted(work=[work]), rate=MIB)
        made.loop.step()
        clock.advance(WAIT_SECONDS)
        began = clock.monotonic()
        assert made.loop.step() == AGAIN
        assert clock.monotonic() - began >= 25
        assert made.loop._rest_until <= clock.monotonic() + 1


def test_a_turn_commits_after_its_wait_where_no_moment_is_quiet(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "OFFER_SECONDS", 0.0)
    clock: ManualClock = small.clock
    line = small.daemon.line
    begun = clock.monotonic()

    def touch() -> None:
        clock.advance(1)
        assert clock.monotonic() - begun < 2 * WAIT_SECONDS, "it waits for ever"

    turn = LineTurn(line, clock, Settings(), lambda: False, touch=touch, step=line.step)
    fill(small)
    turn.patient_until = begun + WAIT_SECONDS
    assert turn.commit(Flush((small.daemon.dispatcher._mark.progress(1),), None, 0.0)) is not None
    assert WAIT_SECONDS <= clock.monotonic() - begun <= WAIT_SECONDS + 10


def test_what_begins_beside_a_busy_line_commits_beside_it(small: Scene) -> None:
    seen = []

    def work(turn: Turn) -> Done:
        assert isinstance(turn, LineTurn)
        seen.append(turn.patient_until - small.clock.monotonic())
        return Done(more=True)

    made = Loop(small, Scripted(work=[work] * 2))
    made.loop.step()
    fill(small)
    small.clock.advance(WAIT_SECONDS)
    made.loop.step()
    assert seen == [WAIT_SECONDS, 0]


def test_no_task_keeps_another_from_its_turn_for_ever(small: Scene) -> None:
    """A task with work for days, and one behind it."""
    clock: ManualClock = small.clock

    def work(turn: Turn) -> Done:
        clock.advance(10)
        return Done(more=True)

    first, last = Scripted("first", [work] * 99), Scripted("last", [work] * 99)
    made = Loop(small, first, last)
    for _ in range(40):
        made.loop.step()
    assert 99 - len(last.work) == 40 * 10 // (WAIT_SECONDS + 20)
    assert len(first.work) + len(last.work) == 2 * 99 - 40


def test_ages_grow_whoever_stands_still(small: Scene) -> None:
    clock: ManualClock = small.clock
    task = Scripted(work=[lambda turn: Done(more=True), lambda turn: Done(more=False)])
    made = Loop(small, task)
    ages = ("waiting", "turn_age", "success_age")

    def seen() -> list[float | None]:
        return [made.metrics.value(f"tiered_maintenance_{age}_seconds", task="scripted") for age in ages]

    clock.advance(7)
    assert seen() == pytest.approx([0, 7, 7])
    made.loop.step()
    clock.advance(5)
    assert seen() == pytest.approx([5, 5, 12])
    made.loop.step()
    clock.advance(3)
    assert seen() == pytest.approx([0, 3, 3])
    told = made.loop.status()["tasks"]["scripted"]  # type: ignore[index]
    assert (told["last_turn_seconds_ago"], told["last_success_seconds_ago"]) == (3, 3)


def test_a_turn_that_is_long_is_told_though_it_waits_for_somebody(small: Scene) -> None:
    made = Loop(small)
    told = []

    def work(turn: Turn) -> Done:
        for _ in range(2):
            turn.spend(0)
            told.append(made.loop.standstill())
            small.clock.advance(LONG_TURN_SECONDS)
            turn.spend(0)
        told.append(made.loop.standstill())
        return Done(more=False)

    made = Loop(small, Scripted(work=[work]))
    made.loop.step()
    assert told[0] is None
    assert "a turn of scripted has been under way" in str(told[-1])
    assert made.loop.standstill() is None


def test_standing_still_is_told(small: Scene) -> None:
    made = Loop(small, Scripted(work=[]))
    small.daemon.line.committing = False
    small.daemon.line._alone = True  # never quiet
    made.loop.step()
    assert made.loop.standstill() is None
    small.clock.advance(LATE_WAITS * WAIT_SECONDS + 1)
    assert "no quiet moment" in str(made.loop.standstill())
    small.daemon.line._alone = False
    busy = Loop(small, Scripted())
    busy.loop.service._busy_since = small.clock.monotonic()
    small.clock.advance(61)
    assert "has not come back" in str(busy.loop.standstill())
