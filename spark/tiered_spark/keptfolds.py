"""Folds that a process keeps from one search for keys to the next: of such a plan most is reading the commits behind the newest
checkpoint, and Spark plans the next query in the same process."""

from __future__ import annotations

import threading

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.scope import Scope
from tiered.errors import TieredError
from tiered.provider.base import Provider

MAX_KEPT = 2
"""Folds kept: those used last. Each has at most 48 MiB of shards and what 100,000 changed keys take."""

_Name = tuple[str, str, str, tuple[str, ...]]


class KeptFolds:
    """Readers that stand at the end of a log. Thread-safe: while one looks for new commits nobody else has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[_Name, ArchiveReader] = {}  # the one used last is the last

    def at_end(
        self, provider: Provider, keys: ArchiveKeys, topics: tuple[str, ...], scope: Scope, cache_bytes: int
    ) -> tuple[ArchiveReader, View] | None:
        """The archive at the end of its log, proven anew. ``scope``: of ``topics``; ``cache_bytes``: of tables. ``None`` if it
        cannot be had so: whoever opens the archive hears why. The reader's ``at`` and ``follow`` are not for the caller."""
        name = (provider.url, keys.cluster, keys.broker, topics)
        with self._lock:
            reader = self._readers.pop(name, None)
        try:
            if reader is None or reader.provider is not provider:
                reader = ArchiveReader(provider, keys, PartialStore(scope), table_cache_bytes=cache_bytes)
            view = reader.at()
        except TieredError:  # so also where another archive was put in its place: a commit says whose it is
            return None
        if view.head is None:
            return None
        with self._lock:
            self._readers[name] = reader
            while len(self._readers) > MAX_KEPT:
                del self._readers[next(iter(self._readers))]
        return reader, view
