"""How improbable it is that a node that is silent still answers: the phi accrual detector.

Hayashibara, Défago, Yared and Katayama, "The phi accrual failure detector" (2004): from the times between heartbeats that came,
taken as normally distributed, phi is minus the decimal logarithm of the probability that the next one is later than now. Phi 1
is wrong once in ten times, phi 8 once in a hundred million.
"""

from __future__ import annotations

from collections import deque
from math import erfc, log10, sqrt

WINDOW = 128
"""Times between heartbeats that are remembered."""
MOST_PHI = 300.0


class PhiAccrual:
    """Of one node. Times are monotonic seconds. ``expected_seconds``: between two heartbeats, until some were seen.

    A spread below a quarter of the expected time is not believed, and ``grace_seconds`` are forgiven on top of the mean: on a
    busy machine heartbeats come regularly until they do not.
    """

    def __init__(self, expected_seconds: float, grace_seconds: float) -> None:
        self._expected = expected_seconds
        self._grace = grace_seconds
        self._gaps: deque[float] = deque(maxlen=WINDOW)
        self._last: float | None = None
        self._seen = 0.0

    def heard(self, now: float) -> None:
        """A heartbeat came."""
        if self._last is not None:
            self._gaps.append(max(now - self._last, 0.0))
        self._last = now

    def seen(self, now: float) -> None:
        """It answered something else: it is there, though its heartbeats may wait behind that."""
        self._seen = now

    def began(self, now: float) -> None:
        """Heartbeats are waited for from now on, as if one had come; what was learned of gaps before is forgotten."""
        self._gaps.clear()
        self._last = now

    def slept(self, seconds: float) -> None:
        """Whoever listens was not there for so long: nobody was silent meanwhile."""
        if self._last is not None:
            self._last += seconds
            self._seen += seconds

    def phi(self, now: float) -> float:
        """0 for a node that heartbeats are not waited for."""
        if self._last is None:
            return 0.0
        gaps = (
            *self._gaps,
            self._expected,
        )  # one from before there were any: a node that beats too fast is not held to it
        mean = sum(gaps) / len(gaps)
        spread = sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
        late = now - max(self._last, self._seen) - mean - self._grace
        later = 0.5 * erfc(late / max(spread, self._expected / 4) / sqrt(2.0))
        return -log10(later) if later > 10**-MOST_PHI else MOST_PHI
