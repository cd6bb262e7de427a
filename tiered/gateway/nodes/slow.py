"""Which nodes are slow beside the others: a node's median time for a read over the median of the others' medians.

A node that is slow rests, and is judged anew by what it does after that. Slow are never more than half of the nodes: then the
archive is, or this machine, and no other node would be faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median

from tiered.backoff import Backoff

SAMPLES = 64
"""Reads of a node that are remembered."""
ENOUGH = 8
"""Reads within the window without which a node is not judged, nor others by it."""
WINDOW_SECONDS = 30.0
NOTHING_SECONDS = 0.02
"""A difference that is never slow."""
RESTS = Backoff(10.0, 120.0)


class ReadTimes:
    """Of one node: how long its last reads took, and since when it rests. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self._pauses = RESTS.pauses()
        self.rests_until = 0.0

    def took(self, seconds: float, now: float) -> None:
        """A read was answered, or given up, after ``seconds``."""
        self._samples.append((now, seconds))

    def median(self, now: float) -> float | None:
        """``None``: too few reads within the window."""
        found = [seconds for at, seconds in self._samples if now - at <= WINDOW_SECONDS]
        return median(found) if len(found) >= ENOUGH else None

    def rest(self, now: float) -> float:
        """It is slow: seconds that it rests, longer each time."""
        self._samples.clear()
        seconds = next(self._pauses)
        self.rests_until = now + seconds
        return seconds

    def fine(self) -> None:
        """It was judged, and is not slow."""
        self._pauses = RESTS.pauses()


def slow_ones(times: Mapping[str, ReadTimes], factor: float, now: float) -> dict[str, tuple[float, float]]:
    """Nodes that are slow now, with their median and that of the others, in seconds; at most so many that half of all are left.
    Nodes that are judged and not slow hear it. ``factor`` 0: nobody is."""
    medians = {name: found for name, one in times.items() if (found := one.median(now)) is not None}
    resting = sum(one.rests_until > now for one in times.values())
    room = len(times) // 2 - resting
    slow: dict[str, tuple[float, float]] = {}
    for name in sorted(medians, key=lambda name: -medians[name]):
        rest = [found for other, found in medians.items() if other != name and other not in slow]
        if not rest or not factor:
            break
        others = median(rest)
        if medians[name] > max(factor * others, others + NOTHING_SECONDS):
            if room > len(slow):
                slow[name] = (medians[name], others)
        else:
            times[name].fine()
    return slow
