"""What a success is worth: numbers of removed commits are free again, so an answer to a put alone proves no history.

A success counts if it came within a window of the last one that counted; commits are removed far later than that. Any other
one is proven first (DESIGN.md, "Writing a commit").
"""

from __future__ import annotations

from contextlib import suppress

from tiered.archive.log.identity import read_identity
from tiered.archive.log.reader import LogReader
from tiered.errors import Corrupt, Fenced, NotFound

COUNTED_WINDOW_MS = 3_600_000
"""Half of it and less than ``gc.commit_retention_ms`` allows: two such steps in a row meet no number that was freed."""


class CountedSuccess:
    """The last success of one writer that counted, by the store's clock. One thread."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._last_ms: int | None = None

    def begin(self) -> None:
        """A claim of an epoch follows: what counted before proves nothing about it."""
        self._last_ms = None

    def count(self, seq: int, date_ms: int) -> None:
        """The put of commit ``seq`` succeeded, dated by the answer. ``Fenced`` if it is not the head of the log's history;
        ``Unavailable`` while that cannot be said: asked again with the same date.
        """
        if self._last_ms is None or not 0 <= date_ms - self._last_ms <= COUNTED_WINDOW_MS:
            self._prove(seq)
        self._last_ms = date_ms

    def behind_nothing(self, seq: int) -> None:
        """The commit before ``seq`` is not where it was put. ``Fenced`` if this archive went on without its writer, who slept
        until even that was removed; on another disk under the same name nothing says so."""
        reader = self._reader
        with suppress(NotFound, Corrupt):
            if read_identity(reader.provider, reader.keys).archive_id == reader.identity.archive_id:
                self._prove(seq)

    def _prove(self, seq: int) -> None:
        """In this order: nothing behind it, then no checkpoint that stands for it. A number is freed only below checkpoints."""
        keys = self._reader.keys
        found = keys.commit(seq + 1) if self._reader.is_there(seq + 1) else None
        if found is None and self._reader.checkpoint_above(seq - 1):
            found = "a checkpoint at or above it"
        if found is not None:
            raise Fenced(
                "another writer took this archive over while this one paused",
                hint="run one daemon per broker: stop the other, then start this one with --take-over",
                key=keys.commit(seq), expected="the head of the log", found=found,
            )  # fmt: skip
