"""The memory cache of checked blocks, shared by all groups: what stays, what goes first, what went unread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

from cachetools import Cache

from tiered.archive.read.runs import BlockKey
from tiered.fetch.base import Expiry
from tiered.fetch.block import LoadedBlock

SAMPLE = 16
"""Entries looked at for one victim, at either end of the order of use: those unread longest, and those a fast group has just
passed, which a slow one wants latest."""

AHEAD_LOOKS = 32
"""Entries that read-ahead looks at for room before it does without."""

LATER_SECONDS = 10.0
"""What is wanted later than this gives way to read-ahead, which is for sooner."""

SWEEP_ENTRIES = 4096
"""Entries looked at in one sweep."""


class Owner(Protocol):
    """Whose read-ahead an entry is: hears what became of it. Called under the cache's lock: quick, and calls nobody back."""

    def block_used(self, key: BlockKey, size: int) -> None:
        """Somebody read it for the first time."""
        ...

    def block_wasted(self, key: BlockKey, size: int, stamp: int) -> None:
        """It was dropped unread."""
        ...


@dataclass(slots=True)
class _Entry:
    block: LoadedBlock
    touched_at: float
    owner: Owner | None
    stamp: int
    stored_length: int
    read: bool


class BlockCache:
    """Entries in order of use, weighed in bytes. Thread-safe. A caller gives the bytes that it frees to the budget."""

    def __init__(self, limit_bytes: int, expiry: Expiry, now: Callable[[], float]) -> None:
        self._expiry = expiry
        self._now = now
        self._lock = threading.Lock()
        self._entries: Cache[BlockKey, _Entry] = Cache(limit_bytes, getsizeof=lambda e: e.block.cost_bytes)
        self._order: OrderedDict[BlockKey, None] = OrderedDict()
        self.wasted_bytes = 0
        """Stored bytes of read-ahead that was dropped unread."""

    @property
    def used_bytes(self) -> int:
        """Bytes of all entries."""
        return int(self._entries.currsize)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: BlockKey) -> LoadedBlock | None:
        """A block, which counts as read from here on."""
        now = self._now()
        with self._lock:
            try:  # ``get`` of cachetools looks twice
                entry = self._entries[key]
            except KeyError:
                return None
            self._order.move_to_end(key)
            entry.touched_at = now
            if not entry.read:
                entry.read = True
                if entry.owner is not None:
                    entry.owner.block_used(key, entry.stored_length)
            return entry.block

    def put(
        self, block: LoadedBlock, *, owner: Owner | None, stamp: int, stored_length: int, read: bool
    ) -> int:
        """Keep a block whose bytes were charged; the bytes kept: 0 if it is there already or does not fit."""
        now = self._now()
        with self._lock:
            free = self._entries.maxsize - self._entries.currsize
            if block.key in self._entries or block.cost_bytes > free:
                return 0
            self._entries[block.key] = _Entry(block, now, owner, stamp, stored_length, read)
            self._order[block.key] = None
            return block.cost_bytes

    def evict(self, size: int, *, ahead: bool) -> int:
        """Drop entries until ``size`` bytes are free; bytes freed. ``ahead``: not what is wanted
        soon, nor unread ones that may be."""
        freed, now = 0, self._now()
        with self._lock:
            while freed < size:
                victim = self._worthless(now) if ahead else self._victim(now)
                if victim is None:
                    return freed
                freed += self._drop(victim)
        return freed

    def review(self, key: BlockKey) -> int:
        """Drop a block that was read through if nobody will want it; bytes freed."""
        now = self._now()
        with self._lock:
            entry = self._entries.get(key)
            return 0 if entry is None or self._verdict(entry, now)[0] else self._drop(key)

    def sweep(self) -> int:
        """Drop what is not worth keeping among the entries unread longest; bytes freed."""
        freed, now = 0, self._now()
        with self._lock:
            for key in list(islice(self._order, SWEEP_ENTRIES)):
                if not self._verdict(self._entries[key], now)[0]:
                    freed += self._drop(key)
        return freed

    def clear(self) -> int:
        """Drop everything, without blame; bytes freed."""
        with self._lock:
            freed = int(self._entries.currsize)
            self._entries.clear()
            self._order.clear()
            return freed

    def _verdict(self, entry: _Entry, now: float) -> tuple[bool, float | None]:
        block = entry.block
        verdict = self._expiry.verdict(
            block.queue, block.first_offset, block.end_offset, entry.touched_at, now
        )
        return verdict.keep, verdict.wanted_at

    def _victim(self, now: float) -> BlockKey | None:
        """What to drop for a foreground load: the first that is worth nothing, or was read and nobody is known to want; then
        one fetched ahead; then the one wanted latest."""
        best: BlockKey | None = None
        best_rank: tuple[int, float] = (9, 0.0)
        for key in self._both_ends(SAMPLE):
            entry = self._entries[key]
            keep, wanted_at = self._verdict(entry, now)
            if not keep or (entry.read and wanted_at is None):
                return key
            rank = (1, 0.0) if wanted_at is None else (2, -wanted_at)
            if rank < best_rank:
                best, best_rank = key, rank
        return best

    def _worthless(self, now: float) -> BlockKey | None:
        latest: BlockKey | None = None
        latest_at = now + LATER_SECONDS
        for key in self._both_ends(AHEAD_LOOKS // 2):
            entry = self._entries[key]
            keep, wanted_at = self._verdict(entry, now)
            if not keep or (entry.read and wanted_at is None):
                return key
            if wanted_at is not None and wanted_at > latest_at:
                latest, latest_at = key, wanted_at
        return latest

    def _both_ends(self, count: int) -> Iterator[BlockKey]:
        """The ``count`` unread longest, then the ``count`` read last; some twice when there are few."""
        return chain(islice(self._order, count), islice(reversed(self._order), count))

    def _drop(self, key: BlockKey) -> int:
        entry = self._entries.pop(key)
        del self._order[key]
        if not entry.read:
            self.wasted_bytes += entry.stored_length
            if entry.owner is not None:
                entry.owner.block_wasted(key, entry.stored_length, entry.stamp)
        return entry.block.cost_bytes
