"""How far ahead of a reader to fetch: a window in bytes, as TCP Tahoe governs what it has in flight. Pure.

The window bounds *bytes asked for ahead of the reader and not yet read by it*, in flight or landed: that is concurrency times
request size. It begins small and grows by what is used (slow start: it doubles per window read) until a threshold, then by one
unit per window read (additive increase). Read-ahead that is dropped unread halves it; a store that pushes back halves the
threshold and starts slowly again. Loads carry the ``stamp`` they were made under, so that one mistake counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

UNIT_BYTES = 256 * 1024
"""The smallest window and the additive step: one block."""

START_UNITS = 4
PARALLEL = 4
"""Requests that a window is split into until requests reach their largest size; from there concurrency grows."""


@dataclass(slots=True)
class ReadAheadWindow:
    """The state machine. ``ceiling_bytes`` bounds the window; no clock, no lock: the owner calls one method at a time."""

    ceiling_bytes: int
    window_bytes: int = 0
    threshold_bytes: int = 0
    stamp: int = 0
    decreases: int = 0
    _partial: int = 0

    def __post_init__(self) -> None:
        self.ceiling_bytes = max(self.ceiling_bytes, UNIT_BYTES)
        self.window_bytes = self.window_bytes or min(START_UNITS * UNIT_BYTES, self.ceiling_bytes)
        self.threshold_bytes = self.threshold_bytes or max(self.ceiling_bytes // 2, UNIT_BYTES)

    @property
    def slow_start(self) -> bool:
        """Whether growth is still exponential."""
        return self.window_bytes < self.threshold_bytes

    def used(self, size: int) -> None:
        """``size`` bytes fetched ahead were read: grow."""
        if self.slow_start:
            step = min(size, self.threshold_bytes - self.window_bytes)
            self.window_bytes += step
            size -= step
        self._partial += size
        while self._partial >= self.window_bytes:
            self._partial -= self.window_bytes
            self.window_bytes += UNIT_BYTES
        self.window_bytes = min(self.window_bytes, self.ceiling_bytes)

    def wasted(self, stamp: int) -> bool:
        """Something loaded under ``stamp`` was dropped unread: halve. False if that stamp was answered for already."""
        if stamp != self.stamp:
            return False
        self._decrease()
        self.window_bytes = self.threshold_bytes
        return True

    def pushed_back(self, stamp: int) -> bool:
        """The store refused a load made under ``stamp``: halve the threshold, begin slowly again."""
        if stamp != self.stamp:
            return False
        self._decrease()
        self.window_bytes = UNIT_BYTES
        return True

    def restart(self) -> None:
        """The reader went elsewhere: what was learnt about the link stays in the threshold, the window begins small."""
        self.stamp += 1
        self._partial = 0
        self.window_bytes = min(self.window_bytes, START_UNITS * UNIT_BYTES)

    def request_bytes(self, largest: int) -> int:
        """Size of one request under this window."""
        return max(min(UNIT_BYTES, largest), min(largest, self.window_bytes // PARALLEL))

    def _decrease(self) -> None:
        self.threshold_bytes = max(self.window_bytes // 2, UNIT_BYTES)
        self.stamp += 1
        self.decreases += 1
        self._partial = 0
