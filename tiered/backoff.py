"""How long to wait before a failed operation is tried again: the one rule, for loops, tasks and services alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pause after the n-th failure in a row: ``first_seconds`` doubled n - 1 times, at most ``most_seconds``."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def seconds(self, failures: int) -> float:
        """The pause after ``failures`` ≥ 1 failures in a row."""
        return min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 60))

    def pauses(self) -> Iterator[float]:
        """The pauses after the first failure, the second and so on, without end: for one loop of tries."""
        return map(self.seconds, count(1))
