"""How long the machine let threads of this process wait for a processor: why nothing moves, where none of them can know."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from tiered.clock import Clock

SAMPLE_SECONDS = 5.0
WINDOW_SECONDS = 60.0
LEAST_SECONDS = 10.0
"""Nothing is said of less time than this."""
STARVED_SHARE = 0.5
_TASKS = "/proc/self/task"
_NANOSECONDS = 1e9

Waits = Mapping[int, float]
"""By thread: the seconds since its start that it was ready to run and had no processor."""


def thread_waits() -> Waits:
    """As the kernel counts them, in no file of a disk; nothing where it does not (another system, or a kernel without)."""
    waits = {}
    with suppress(OSError):
        for name in os.listdir(_TASKS):
            with suppress(OSError, ValueError, IndexError), open(f"{_TASKS}/{name}/schedstat", "rb") as file:
                waits[int(name)] = int(file.read().split()[1]) / _NANOSECONDS
    return waits


class Starvation:
    """``look`` is called by one thread, as often as it likes; ``said`` by any."""

    def __init__(self, clock: Clock, waits: Callable[[], Waits] = thread_waits) -> None:
        self._clock = clock
        self._waits = waits
        self._samples: deque[tuple[float, Waits]] = deque(maxlen=int(WINDOW_SECONDS / SAMPLE_SECONDS) + 1)
        self._said: str | None = None

    def look(self) -> None:
        """Take a sample, if the last one is old enough, and compare it with the oldest there is."""
        now = self._clock.monotonic()
        if self._samples and now - self._samples[-1][0] < SAMPLE_SECONDS:
            return
        waits = self._waits()
        self._samples.append((now, waits))
        while now - self._samples[0][0] > 2 * WINDOW_SECONDS:
            self._samples.popleft()  # a process that was stopped for a while waited for nobody
        began, before = self._samples[0]
        seconds = now - began
        worst = max((waits[thread] - before[thread] for thread in waits.keys() & before.keys()), default=0.0)
        starved = seconds >= LEAST_SECONDS and worst >= STARVED_SHARE * seconds
        self._said = (
            f"the machine has no time for this process: a thread waited {worst:.0f} of the last {seconds:.0f} s for a processor"
            if starved
            else None
        )

    def said(self) -> str | None:
        """One line for people; ``None`` while no thread waited for half of the time."""
        return self._said
