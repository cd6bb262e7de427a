"""Ranges of offsets and times."""

from __future__ import annotations

from dataclasses import dataclass

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included."""

    low: int = _LOW
    high: int = _HIGH

    def cut(self, low: int = _LOW, high: int = _HIGH) -> Range:
        """What is in both."""
        return Range(max(self.low, low), min(self.high, high))


def half_open(low: int | None, end: int | None) -> Range:
    """From ``low``, before ``end``; ``None``: no bound."""
    return Range(_LOW if low is None else low, _HIGH if end is None else end - 1)
