"""Steps, back-off, death and the watch over workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

import pytest

from tiered.backoff import Backoff
from tiered.clock import ManualClock, SystemClock
from tiered.errors import Corrupt, Fenced, Unavailable
from tiered.metrics import Metrics
from tiered.service import AGAIN, DONE, Next, Service, ServiceState, Supervisor, WatchLimits, pause


def steps(*outcomes: Next | Exception) -> Callable[[], Next]:
    left = list(outcomes)

    def step() -> Next:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return step


def test_a_step_says_what_comes_next() -> None:
    service = Service("s", steps(AGAIN, pause(2.0), DONE), ManualClock())
    assert service.state is ServiceState.NEW
    assert service.step() == AGAIN
    assert service.state is ServiceState.RUNNING
    assert service.step().wait_seconds == 2.0
    assert service.state is ServiceState.WAITING
    assert service.step() == DONE
    assert pause(-1) == AGAIN


def test_unavailable_backs_off_doubling_and_recovers() -> None:
    metrics = Metrics()
    down = Unavailable("the store does not answer")
    service = Service(
        "s",
        steps(down, down, down, down, AGAIN, down),
        ManualClock(),
        backoff=Backoff(1.0, 5.0),
        metrics=metrics,
    )
    assert [service.step().wait_seconds for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert service.state is ServiceState.BACKING_OFF
    assert service.failures_in_a_row == 4
    assert service.last_unavailable is down
    service.step()
    assert service.failures_in_a_row == 0
    assert service.step().wait_seconds == 1.0
    assert metrics.value("tiered_service_errors_total", service="s", kind="Unavailable") == 5


def test_backoff_never_overflows() -> None:
    assert Backoff(0.5, 30.0).seconds(10_000) == 30.0
    assert list(islice(Backoff(1.0, 5.0).pauses(), 5)) == [1, 2, 4, 5, 5]


@pytest.mark.parametrize("error", [Fenced("another writer"), Corrupt("bad"), RuntimeError("bug")])
def test_other_errors_are_raised_by_a_step_and_kept_by_the_loop(error: Exception) -> None:
    with pytest.raises(type(error)):
        Service("s", steps(error), ManualClock()).step()
    seen: list[Service] = []
    service = Service("s", steps(AGAIN, error), ManualClock())
    service.on_failure = seen.append
    service.run()
    assert service.state is ServiceState.FAILED
    assert service.error is error
    assert seen == [service]


def test_the_loop_waits_as_asked_and_ends_when_done() -> None:
    clock = ManualClock()
    finished: list[str] = []
    service = Service(
        "s", steps(pause(3.0), AGAIN, pause(4.0), DONE), clock, finish=lambda: finished.append("drained")
    )
    service.run()
    assert service.state is ServiceState.STOPPED
    assert clock.monotonic() == 7.0
    assert finished == [], "finish belongs to a stop that was asked for"


@pytest.mark.parametrize(("drain", "wanted"), [(True, ["drained"]), (False, [])])
def test_a_stop_ends_after_the_step_and_drains_if_asked(drain: bool, wanted: list[str]) -> None:
    finished: list[str] = []

    def step() -> Next:
        service.stop(drain=drain)
        return pause(1000.0)

    clock = ManualClock()
    service = Service("s", step, clock, finish=lambda: finished.append("drained"))
    service.run()
    assert service.state is ServiceState.STOPPED
    assert finished == wanted
    assert clock.monotonic() == 0.0, "a stop does not sit out the pause"


def test_an_error_while_draining_is_not_swallowed() -> None:
    def finish() -> None:
        raise Unavailable("the last flush did not get through")

    service = Service("s", steps(AGAIN), ManualClock(), finish=finish)
    service.stop()
    service.run()
    assert service.state is ServiceState.FAILED
    assert isinstance(service.error, Unavailable)


def test_wake_ends_a_pause_early() -> None:
    looked = threading.Event()

    def step() -> Next:
        if looked.is_set():
            return DONE
        looked.set()
        return pause(3600.0)

    service = Service("s", step, SystemClock())
    service.start()
    assert looked.wait(10)
    while not service.join(0.01):
        service.wake()
    assert service.state is ServiceState.STOPPED


def test_a_step_that_does_not_return_is_visible_then_fatal() -> None:
    """S11: black hole below a worker."""
    clock, metrics = ManualClock(), Metrics()
    inside, let_go = threading.Event(), threading.Event()
    fatal: list[BaseException] = []

    def step() -> Next:
        inside.set()
        let_go.wait(30)
        return DONE

    wedged = Service("committer", step, clock)
    watch = Supervisor(
        [wedged],
        clock,
        WatchLimits(stuck_seconds=60, fatal_seconds=600),
        metrics=metrics,
        on_fatal=fatal.append,
    )
    wedged.start()
    assert inside.wait(10)
    assert watch.check().live
    clock.advance(61)
    health = watch.check()
    assert health.stuck == ("committer",)
    assert not health.live
    assert health.fatal is None
    assert metrics.value("tiered_stuck", service="committer") == 1
    clock.advance(600)
    assert isinstance(watch.check().fatal, Unavailable)
    assert "committer" in str(watch.health.fatal)
    watch.check()
    assert len(fatal) == 1
    let_go.set()
    assert watch.stop_all() == Unavailable.exit_code
    assert metrics.value("tiered_stuck", service="committer") == 0


def test_one_dead_worker_stops_all_without_drain_and_gives_its_exit_code() -> None:
    drained: list[str] = []
    both = threading.Barrier(2)

    def dies() -> Next:
        both.wait(10)
        raise Fenced("another writer owns the archive")

    def lives() -> Next:
        if both.n_waiting or not both.broken:
            both.wait(10)
            both.abort()
        return pause(0.01)

    services = [
        Service("lives", lives, SystemClock(), finish=lambda: drained.append("lives")),
        Service("dies", dies, SystemClock()),
    ]
    watch = Supervisor(services, SystemClock(), WatchLimits(look_seconds=0.01))
    assert watch.run(threading.Event()) == Fenced.exit_code
    assert drained == []
    assert all(not service.alive for service in services)


def test_the_dying_worker_itself_stops_the_others() -> None:
    """Nobody may go on until the supervisor looks: what it builds on may be what failed."""

    def dies() -> Next:
        raise Fenced("another writer owns the archive")

    clock = ManualClock()
    other, failed = Service("other", lambda: AGAIN, clock), Service("failed", dies, clock)
    Supervisor([other, failed], clock)
    failed.run()
    assert (failed.stopping, other.stopping) == (False, True)


def test_a_graceful_stop_drains_in_reverse_order() -> None:
    order: list[str] = []
    stop = threading.Event()
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            stop.set()

    def service(name: str) -> Service:
        return Service(name, lambda: pause(0.005), SystemClock(), finish=lambda: order.append(name))

    watch = Supervisor(
        [service("web"), service("dispatch")], SystemClock(), WatchLimits(look_seconds=0.005), beat=beat
    )
    assert watch.run(stop) == 0
    assert order == ["dispatch", "web"]
    assert len(beats) == 3


def test_run_ends_by_itself_when_all_are_done() -> None:
    services = [Service(name, steps(DONE), SystemClock()) for name in "ab"]
    assert Supervisor(services, SystemClock(), WatchLimits(look_seconds=0.005)).run(threading.Event()) == 0


def test_a_worker_too_late_for_the_drain_is_told_by_the_exit_code() -> None:
    inside, let_go = threading.Event(), threading.Event()

    def step() -> Next:
        inside.set()
        let_go.wait(30)
        return DONE

    service = Service("slow", step, SystemClock())
    service.start()
    assert inside.wait(10)
    assert (
        Supervisor([service], SystemClock(), WatchLimits(drain_seconds=0.05)).stop_all()
        == Unavailable.exit_code
    )
    let_go.set()
    assert service.join(10)
