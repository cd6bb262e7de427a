"""The dictionary of a writer's flushes: made of what is archived, and used for many flushes."""

from __future__ import annotations

import threading

from tiered.codec.dictionary import Dictionary
from tiered.codec.format.training import trained_on, worth_it
from tiered.codec.types import Buffer, Ints

USES = 64
"""Flushes of a writer that one dictionary serves: then what is archived may look different."""


class Dictionaries:
    """The dictionary of a writer's flushes, made again every ``USES`` of them. Thread-safe. ``size``: its bytes at most, 0: no
    dictionary."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: Dictionary | None = None
        self._uses = 0
        self._lock = threading.Lock()

    def for_blocks(self, raw: Buffer, edges: Ints) -> Dictionary | None:
        """For the blocks ``raw[edges[i]:edges[i + 1]]``; ``None`` where that is not worth it."""
        if not worth_it(edges, self._size):
            return None
        with self._lock:
            if self._uses % USES == 0:
                self._made = trained_on(raw, edges, self._size)
            self._uses += 1
            return self._made
