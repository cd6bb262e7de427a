"""The daemon's loop over work in the background: behind archiving, within bounds, never silent about what it cannot do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.merging import merging
from tiered.archive.log.flush import Flush, Priority
from tiered.archive.log.maintenance import Done, Outlook, Stopped, Task, Turn
from tiered.clock import ManualClock
from tiered.daemon.maintenance import LATE_SECONDS, LineTurn, MaintenanceLoop
from tiered.errors import Corrupt, Unavailable
from tiered.metrics import Metrics
from tiered.service import AGAIN, DONE
from tiered.settings import MIB, Maintenance, Settings


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
        self.loop = MaintenanceLoop(
            tasks, small.daemon.line, small.clock, settings, self.metrics, lambda: self.stopping
        )

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
        small.daemon.dispatcher.buffer.clear()
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


def test_standing_still_is_told(small: Scene) -> None:
    made = Loop(small, Scripted(work=[]))
    small.daemon.line.committing = False
    small.daemon.line._alone = True  # never quiet
    made.loop.step()
    assert made.loop.standstill() is None
    small.clock.advance(LATE_SECONDS + 1)
    assert "no quiet moment" in str(made.loop.standstill())
    small.daemon.line._alone = False
    busy = Loop(small, Scripted())
    busy.loop.service._busy_since = small.clock.monotonic()
    small.clock.advance(61)
    assert "has not come back" in str(busy.loop.standstill())


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
