"""A process that the machine gives no time says so: nothing else in it can know."""

from __future__ import annotations

import threading

import pytest

from tiered.clock import ManualClock
from tiered.daemon import starved
from tiered.daemon.starved import SAMPLE_SECONDS, WINDOW_SECONDS, Starvation, thread_waits


class Kernel:
    """What it counts of two threads, and of one that ends."""

    def __init__(self, clock: ManualClock) -> None:
        self.waits = {1: 100.0, 2: 7.0, 3: 1000.0}
        self.clock = clock
        self.asked = 0
        self.starvation = Starvation(clock, self.told)

    def told(self) -> dict[int, float]:
        self.asked += 1
        return dict(self.waits)

    def passes(self, seconds: float, share: float) -> str | None:
        """Thread 2 waits for a share of so many seconds; what is said then."""
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.waits[2] += share
            self.starvation.look()
        return self.starvation.said()


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(ManualClock())


def test_a_thread_that_waits_for_most_of_the_time_is_told(kernel: Kernel) -> None:
    kernel.starvation.look()
    assert kernel.passes(60, 0.4) is None
    del kernel.waits[3]
    said = kernel.passes(WINDOW_SECONDS + SAMPLE_SECONDS, 0.9)
    assert said is not None
    assert "waited 54 of the last 60 s for a processor" in said
    assert kernel.passes(2 * WINDOW_SECONDS, 0.1) is None, "and it is over"
    assert kernel.asked <= 1 + (4 * WINDOW_SECONDS + SAMPLE_SECONDS) / SAMPLE_SECONDS


def test_a_moment_is_not_told(kernel: Kernel) -> None:
    kernel.starvation.look()
    assert kernel.passes(starved.LEAST_SECONDS - SAMPLE_SECONDS, 1.0) is None
    assert kernel.passes(SAMPLE_SECONDS, 1.0) is not None


def test_what_was_before_a_long_pause_is_not_counted(kernel: Kernel) -> None:
    kernel.starvation.look()
    kernel.passes(20, 0.0)
    kernel.clock.advance(3600)
    kernel.waits[2] += 3600
    kernel.starvation.look()
    assert kernel.starvation.said() is None


def test_the_kernel_counts_every_thread() -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        waits = thread_waits()
        assert {thread.native_id, threading.get_native_id()} <= waits.keys()
        assert all(seconds >= 0 for seconds in waits.values())
    finally:
        go_on.set()
        thread.join()


def test_where_no_kernel_counts_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starved, "_TASKS", "/proc/self/nowhere")
    assert thread_waits() == {}
    clock = ManualClock()
    starvation = Starvation(clock)
    for _ in range(99):
        clock.advance(1.0)
        starvation.look()
    assert starvation.said() is None
