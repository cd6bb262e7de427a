"""Bands of segments fetched ahead of everybody: where queues that share a file are read one after the other.

A reader's own window ends with its queue. Of a topic of many small queues each band holds several: readers that go from queue
to queue would wait for every band anew. When the band behind one that another queue's reader came to lately is come to, those
that follow are asked for, within the budget for read-ahead.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cachetools import LRUCache

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockKey, BlockRef, group_at
from tiered.fetch.allowance import Account
from tiered.fetch.cache import BlockCache
from tiered.fetch.loader import Loader

if TYPE_CHECKING:
    from tiered.archive.read.segments import SealedTables

BANDS_AHEAD = 2
"""Bands asked for beyond the one that was come to: the next is decoded while this one is read, and another fetched."""

KNOWN_ENDS = 1024
"""Bands that are remembered as come to."""

REST = 32
"""Bands come to without fetching ahead, after something was dropped unread or the store asked for patience."""

_End = tuple[int, int, int]  # commit and index of the object, the block behind the band


class BandsAhead:
    """Thread-safe."""

    def __init__(self, objects: ObjectReader, loader: Loader, cache: BlockCache, *, enabled: bool) -> None:
        self._objects, self._loader, self._cache, self._enabled = objects, loader, cache, enabled
        self._lock = threading.Lock()
        self._ends: LRUCache[_End, tuple[int, int]] = LRUCache(KNOWN_ENDS)
        self._rest = 0

    def reached(self, ref: BlockRef, account: Account) -> None:
        """A reader came to a block; what is fetched for it is on its ``account``. Does not wait."""
        group = ref.group
        if group is None or not self._enabled:
            return
        commit_seq, index = ref.key.commit_seq, ref.key.object_index
        with self._lock:
            if (commit_seq, index, group.end) in self._ends:
                return
            reader = ref.key.queue_id, ref.key.generation
            self._ends[commit_seq, index, group.end] = reader
            before = self._ends.get((commit_seq, index, group.first))
            if before is None or before == reader:
                return
            if self._rest:
                self._rest -= 1
                return
        self._ask(ref, account)

    def _ask(self, ref: BlockRef, account: Account) -> None:
        tables = self._objects.cached_sealed(ref.item)
        for _ in range(BANDS_AHEAD):
            following = None if tables is None else _behind(ref, tables)
            if following is None:
                return
            ref = following
            here = ref.key in self._cache or self._loader.find(ref) is not None
            if not here and not self._loader.ahead([ref], account, self, 0):
                return

    # ---- what became of it (Backer)

    def block_used(self, key: BlockKey, size: int) -> None:
        """It was worth it."""

    def block_wasted(self, key: BlockKey, size: int, stamp: int) -> None:
        """Nobody came."""
        self._rest = REST

    def pushed_back(self, stamp: int) -> None:
        """The store asks for patience."""
        self._rest = REST


def _behind(ref: BlockRef, tables: SealedTables) -> BlockRef | None:
    """The first block of the next band, whatever queue's it is; ``run`` stays as it is, and is not that block's."""
    number, table = 0 if ref.group is None else ref.group.end, tables.blocks
    if number >= len(table):
        return None
    part, row = tables.segment.directory.parts[number], table[number]
    first = int(part["first_queue_offset"])
    position = int(row["position"])
    return ref._replace(
        key=ref.key._replace(
            queue_id=int(part["queue_id"]), generation=int(part["generation"]), block=number
        ),
        first_offset=first,
        end_offset=first + int(part["queue_offsets"]),
        rows=int(row["rows"]),
        position=position,
        stored_length=int(row["stored_length"]),
        raw_length=int(row["raw_length"]),
        crc32c=int(row["crc32c"]),
        group=group_at(table, table["position"], position),
    )
