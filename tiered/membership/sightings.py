"""When silence means gone: judged by whoever looks, by its own monotonic clock, from numbers that do or do not change.

Time counts only between two looks that both succeeded, and of each such gap no more than ``most_gap_seconds``: while the
registry does not answer nodes cannot renew either, and who was asleep has seen nobody being silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Sighting:
    number: int
    unrenewed: float = 0.0


class Sightings:
    """Of one registry by one process. For one thread."""

    def __init__(self, most_gap_seconds: float) -> None:
        self._most_gap = most_gap_seconds
        self._seen: dict[str, _Sighting] = {}
        self._looked_at: float | None = None

    def look(self, numbers: Mapping[str, int], now: float) -> None:
        """A look at ``now`` (monotonic) found these numbers of these nodes; others are forgotten."""
        gap = 0.0 if self._looked_at is None else min(max(now - self._looked_at, 0.0), self._most_gap)
        self._looked_at = now
        before = self._seen
        self._seen = {}
        for name, number in numbers.items():
            known = before.get(name)
            if known is None or known.number != number:
                known = _Sighting(number)
            else:
                known.unrenewed += gap
            self._seen[name] = known

    def failed(self) -> None:
        """A look failed: what passes until the next one counts for nobody."""
        self._looked_at = None

    def unrenewed(self, name: str) -> float:
        """Seconds for which this node's number has been the same; 0 for one that was not seen."""
        known = self._seen.get(name)
        return 0.0 if known is None else known.unrenewed
