"""The one budget of bytes: what is in flight and what the memory cache holds are charged here, before a request is made.

Foreground loads take turns by tenant and group (``fair``) and may evict anything cached. Read-ahead takes what is free or
worthless in the cache, only while no foreground load waits, and may have only a part of the budget in flight, so that
foreground never finds all of it tied up. Nothing that waits holds a charge, so nothing can wait in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tiered.fetch.fair import NOBODY, REQUEST_COST, FairQueue, TenantGroup

AHEAD_SHARE = 0.75
"""Part of the budget that read-ahead may have in flight."""


class Reclaim(Protocol):
    """The cache's side: gives memory back."""

    def __call__(self, size: int, *, ahead: bool) -> int:
        """Drop entries until ``size`` bytes are free or nothing more may go; bytes freed. ``ahead``: only what nobody is
        known to want."""
        ...


class Budget:
    """Thread-safe. One charge larger than the whole budget is granted alone, when nothing else is charged."""

    def __init__(self, limit_bytes: int, reclaim: Reclaim) -> None:
        self.limit_bytes = limit_bytes
        self.ahead_limit_bytes = int(limit_bytes * AHEAD_SHARE)
        self._reclaim = reclaim
        self._lock = threading.Lock()
        self._waiting: FairQueue[tuple[int, Callable[[], None]]] = FairQueue()
        self._closed = False
        self.used_bytes = 0
        self.ahead_bytes = 0
        self.peak_bytes = 0
        """The most that was charged so far."""

    @property
    def waiting(self) -> int:
        """Foreground loads in line."""
        return len(self._waiting)

    def request(self, size: int, granted: Callable[[], None], share: TenantGroup = NOBODY) -> None:
        """Charge ``size`` for a foreground load of ``share``; ``granted`` is called once it is charged, here or in another
        thread."""
        with self._lock:
            self._waiting.push(share, size + REQUEST_COST, (size, granted))
            ready = self._grant()
        _call(ready)

    def try_ahead(self, size: int) -> bool:
        """Charge ``size`` for read-ahead if that is free now."""
        with self._lock:
            if len(self._waiting) or self._closed or self.ahead_bytes + size > self.ahead_limit_bytes:
                return False
            if not self._fits(size, ahead=True):
                return False
            self._take(size)
            self.ahead_bytes += size
            return True

    def settle(self, charge: int, kept: int = 0, *, ahead: bool = False) -> None:
        """A load ended: of its ``charge``, ``kept`` bytes went into the cache, the rest is free again."""
        with self._lock:
            self.used_bytes -= charge - kept
            if ahead:
                self.ahead_bytes -= charge
            ready = self._grant()
        _call(ready)

    def release(self, size: int) -> None:
        """The cache dropped ``size`` bytes of its own accord."""
        if size:
            self.settle(size)

    def close(self) -> None:
        """Grant whatever waits: the loads behind find their loader closed. No read-ahead from here on."""
        with self._lock:
            self._closed = True
            ready = self._grant()
        _call(ready)

    def _grant(self) -> list[Callable[[], None]]:
        ready: list[Callable[[], None]] = []
        while len(self._waiting):
            size, granted = self._waiting.first()
            if not self._closed and not self._fits(size, ahead=False) and self.used_bytes > 0:
                break
            self._waiting.pop()
            self._take(size)
            ready.append(granted)
        return ready

    def _fits(self, size: int, *, ahead: bool) -> bool:
        missing = self.used_bytes + size - self.limit_bytes
        if missing > 0:
            self.used_bytes -= self._reclaim(missing, ahead=ahead)
        return self.used_bytes + size <= self.limit_bytes

    def _take(self, size: int) -> None:
        self.used_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)


def _call(ready: list[Callable[[], None]]) -> None:
    for granted in ready:
        granted()
