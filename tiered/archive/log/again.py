"""Commits that were read and may be folded again: their edits as they are stored, within bytes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from cachetools import LRUCache

from tiered.codec.format.commit import decode_commit
from tiered.codec.format.edits import Commit
from tiered.codec.types import Buffer

KEPT_BYTES = 16 * 1024 * 1024
"""Edits of commits, as they are stored, that are kept for views of a partial fold: what is asked for more folds them again."""


@dataclass(frozen=True, slots=True)
class ReadCommit:
    """A commit and when the store says it was written and answered. ``edit_bytes``: its edits, decompressed."""

    commit: Commit
    date_ms: int
    last_modified_ms: int | None
    inline_length: int
    edit_bytes: int


@dataclass(frozen=True, slots=True)
class _Kept:
    found: ReadCommit  # without its edits
    tail: bytes


class KeptCommits:
    """Commits by number, the longest unused go beyond ``most_bytes``; none is kept before ``keeping`` is set. Thread-safe.

    A commit never changes once it is there. Whether one is there is not answered from here.
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self.keeping = False
        self._kept: LRUCache[int, _Kept] = LRUCache(most_bytes, getsizeof=lambda kept: len(kept.tail))
        self._lock = threading.Lock()

    def keep(self, seq: int, found: ReadCommit, tail: Buffer) -> None:
        """Keep commit ``seq``; ``tail``: its edits and footer."""
        if not self.keeping or len(tail) > self._kept.maxsize:
            return
        kept = _Kept(replace(found, commit=replace(found.commit, edits=())), bytes(tail))
        with self._lock:
            self._kept[seq] = kept

    def clear(self) -> None:
        """Forget all of them: the bucket may hold another history."""
        with self._lock:
            self._kept.clear()

    def find(self, seq: int, key: str) -> ReadCommit | None:
        """Commit ``seq``, whose key is ``key``, if it is kept."""
        with self._lock:
            kept = self._kept.get(seq)
        return (
            None
            if kept is None
            else replace(kept.found, commit=decode_commit(memoryview(kept.tail), key=key))
        )
