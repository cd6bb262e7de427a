"""What was decoded of objects lately, within so many bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cachetools import LRUCache

T = TypeVar("T")

NEVER_KEPT = 1 << 62
"""Size of what is not kept."""


class TableCache:
    """Decoded tables by the object's key and their own name, weighed in bytes; those unused longest go first. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._kept: LRUCache[tuple[str, str], tuple[int, Any]] = LRUCache(
            limit_bytes, getsizeof=lambda v: v[0]
        )
        self._lock = threading.Lock()

    def find(self, key: str, what: str) -> Any:
        """A table, or ``None``."""
        with self._lock:
            found = self._kept.get((key, what))
        return None if found is None else found[1]

    def once(self, key: str, what: str, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """A table; if it is not kept it is made and, if there is room for its size in bytes, kept."""
        found: T | None = self.find(key, what)
        if found is not None:
            return found
        made = make()
        weight = max(1, size(made))
        with self._lock:
            if weight <= self._kept.maxsize:
                self._kept[(key, what)] = (weight, made)
        return made
