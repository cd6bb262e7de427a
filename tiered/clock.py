"""The only door to time. Components take a ``Clock``; tests hand them a ``ManualClock``."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time and waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def wait(self, seconds: float, event: threading.Event | None = None) -> bool:
        """Wait up to ``seconds`` or until ``event`` is set; true if it is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on the machine's monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float, event: threading.Event | None = None) -> bool:
        """Sleep, or wait for the event."""
        if event is None:
            if seconds > 0:
                time.sleep(seconds)
            return False
        return event.wait(max(0.0, seconds))


class ManualClock:
    """A clock that moves only when told to: ``wait`` advances it instead of sleeping."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """The wall time last set."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        with self._lock:
            self._monotonic += seconds
            self._now_ms += round(seconds * 1000)

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock alone, backwards too."""
        self._now_ms = now_ms

    def wait(self, seconds: float, event: threading.Event | None = None) -> bool:
        """Advance by ``seconds``; true if the event is set."""
        if event is not None and event.is_set():
            return True
        self.advance(max(0.0, seconds))
        return event is not None and event.is_set()
