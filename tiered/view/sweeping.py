"""Entries that expired long ago are removed, a few at a time, while nothing else is to be done.

What a write meets is decided by the log alone, so an entry may only go when every write that is still to come sees it as
expired: the store times of a log may go back when another broker becomes master, by as much as their clocks differ, so it
goes ``SKEW_MS`` after the newest store time that was applied.
"""

from __future__ import annotations

from itertools import islice

from tiered.metadata.base import MetadataView
from tiered.view.layout import ENTRY_PREFIX, HEAD

SKEW_MS = 3_600_000
ENTRIES_AT_ONCE = 2_000
"""Looked at in one step: some milliseconds."""
PAUSE_SECONDS, REST_SECONDS = 0.1, 600.0
"""Between two steps of a walk through the store, and between two walks."""


class ExpirySweeper:
    """Walks over a store, again and again. For the thread that applies."""

    def __init__(self, store: MetadataView) -> None:
        self._store = store
        self._from: bytes | None = None
        self._due = 0.0

    def some(self, now: float, newest_ms: int) -> list[bytes]:
        """Keys to be deleted, of the next entries, if it is time (``Clock.monotonic``) to look at some. ``newest_ms``: the
        newest store time that was applied; 0: not known."""
        if now < self._due or newest_ms <= SKEW_MS:
            return []
        pairs = list(islice(self._store.iterate(ENTRY_PREFIX, start=self._from), ENTRIES_AT_ONCE))
        ended = len(pairs) < ENTRIES_AT_ONCE
        self._from = None if ended else pairs[-1][0] + b"\0"
        self._due = now + (REST_SECONDS if ended else PAUSE_SECONDS)
        before_ms = newest_ms - SKEW_MS
        return [key for key, value in pairs if 0 < HEAD.unpack_from(value)[2] <= before_ms]
