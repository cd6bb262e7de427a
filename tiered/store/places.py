"""Where reads of queues go on, remembered: most reads go on where one has just ended."""

from __future__ import annotations

import threading

from cachetools import LRUCache

from tiered.archive.state.view import ArchiveState
from tiered.fetch.pull import Pull
from tiered.model import MessageQueue
from tiered.store.answer import ReadPlace

KNOWN_PLACES = 1024
"""Queues of which one is kept, some 500 bytes each."""


class KnownPlaces:
    """What was decided of queues, of one state at a time, which never changes; a newer one begins anew. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: ArchiveState | None = None
        self._places: LRUCache[MessageQueue, ReadPlace] = LRUCache(KNOWN_PLACES)

    def find(self, state: ArchiveState, queue: MessageQueue, pull: Pull) -> ReadPlace | None:
        """What ``decide`` has said of an offset at or below the pull's, and would say of that: neither a hole nor the end lies
        between the two. ``queue``: that of the pull."""
        with self._lock:
            try:  # ``get`` of cachetools looks twice
                found = self._places[queue] if state is self._state else None
            except KeyError:
                return None
        if found is None or pull.max_count < 1 or not found.offset <= pull.offset < found.stop:
            return None
        return found

    def learn(self, state: ArchiveState, place: ReadPlace) -> None:
        """``decide`` has said so of this state. Of a queue the lowest offset before a hole, or the end, is kept."""
        with self._lock:
            if state is not self._state:
                self._places.clear()
                self._state = state
            known = self._places.get(place.queue)
            if known is None or not known.offset <= place.offset < known.stop:
                self._places[place.queue] = place

    def forget(self) -> None:
        """Let go of everything, the state too."""
        with self._lock:
            self._places.clear()
            self._state = None
