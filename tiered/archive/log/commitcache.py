"""What came with commits is not fetched again: a provider that keeps the beginnings of small commits, within bytes.

A reader that folds the log gets small commits whole, their inline data included; who reads that data a moment later asks for a
range of the same object. Commits never change once they are there, so nothing in here can be out of date.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cachetools import LRUCache

from tiered.archive.keys import ArchiveKeys
from tiered.errors import TieredError
from tiered.provider.base import Fetched, Provider
from tiered.provider.wrap import Wrapped

WHOLE_BYTES = 64 * 1024
"""Inline data up to this size is fetched whole with its first table: a second request costs more than the bytes."""
_ENTRY_BYTES = 200


class CommitCache(Wrapped):
    """``inner``, with what of commits was fetched from their first byte on kept for later ranges. Thread-safe.

    Only a plain range is answered from it: a suffix, which asks whether a commit is there, always goes to the store.
    """

    def __init__(self, inner: Provider, keys: ArchiveKeys, cache_bytes: int) -> None:
        super().__init__(inner)
        self._prefix = keys.commit_prefix
        self._kept: LRUCache[str, Fetched] = LRUCache(
            cache_bytes, getsizeof=lambda kept: len(kept.data) + _ENTRY_BYTES
        )
        self._lock = threading.Lock()

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        if not key.startswith(self._prefix):
            return self.inner.get(key, start, length)
        if start is not None and start >= 0 and length is not None:
            with self._lock:
                kept = self._kept.get(key)
            if kept is not None and start + length <= len(kept.data):
                return replace(kept, data=memoryview(kept.data)[start : start + length], refused=0)
        found = self.inner.get(key, start, length)
        whole = found.object_length == len(found.data)
        if start == 0 or (whole and (start is None or start < 0)):
            self._keep(key, found)
        return found

    def delete(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)
        self.inner.delete(key)

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        with self._lock:
            for key in keys:
                self._kept.pop(key, None)
        return self.inner.delete_many(keys)

    def _keep(self, key: str, found: Fetched) -> None:
        if len(found.data) + _ENTRY_BYTES > self._kept.maxsize:
            return
        kept = replace(found, data=bytes(found.data))  # not the larger buffer that it may be a view of
        with self._lock:
            self._kept[key] = kept
