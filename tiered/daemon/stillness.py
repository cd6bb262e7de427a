"""How long nothing was archived although there was something to archive: the measure of the stall law (S15).

It is told what was seen (``saw``) and answers from that and the monotonic clock alone: no file, no store and no worker's lock
is touched, so it answers while any of them hangs, and a wall clock that is set back does not move it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tiered.clock import Clock


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing moved for too long. ``unseen``: the look at the log and the local state itself did not come back."""

    seconds: float
    local_end: int
    proven: int | None
    unseen: bool

    def __str__(self) -> str:
        if self.unseen:
            return f"nobody can see whether archiving moves: a look at the commitlog has not come back for {self.seconds:.0f} s"
        waiting = "" if self.proven is None else f"{self.local_end - self.proven} bytes wait, "
        proven = "unknown" if self.proven is None else self.proven
        return (
            f"archiving stands still: nothing was proven for {self.seconds:.0f} s "
            f"({waiting}proven={proven}, local_end={self.local_end})"
        )


class Stillness:
    """``limit_seconds``: how long the proven offset may stay the same while it is below the local end. Safe from any thread."""

    def __init__(self, clock: Clock, limit_seconds: float) -> None:
        self._clock = clock
        self._limit = limit_seconds
        self._lock = threading.Lock()
        self._looked = clock.monotonic()
        self._since: float | None = self._looked  # before the first look nobody knows that all is proven
        self._local_end = 0
        self._proven: int | None = None

    def saw(self, local_end: int, proven: int | None) -> None:
        """What a look found. ``proven``: ``None`` while it is not known, which counts as nothing."""
        now = self._clock.monotonic()
        with self._lock:
            if local_end <= (proven or 0):
                self._since = None
            elif self._since is None or proven != self._proven:
                self._since = now
            self._looked, self._local_end, self._proven = now, local_end, proven

    def seconds(self) -> float:
        """How long the proven offset has been the same while there is more to archive; 0 while there is not."""
        with self._lock:
            return 0.0 if self._since is None else self._clock.monotonic() - self._since

    def stall(self) -> Stall | None:
        """What is to be said now, if anything is."""
        now = self._clock.monotonic()
        with self._lock:
            unseen = now - self._looked
            still = 0.0 if self._since is None else now - self._since
            if max(unseen, still) < self._limit:
                return None
            return Stall(max(unseen, still), self._local_end, self._proven, unseen >= self._limit)
