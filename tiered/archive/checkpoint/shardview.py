"""A checkpoint as a view: a shard is fetched and verified when a question touches it, and kept while there is room."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from cachetools import LRUCache

from tiered.archive.ahead import read_each
from tiered.archive.checkpoint.format import Manifest, Pair, ShardPairs
from tiered.archive.checkpoint.store import SHARDS_AHEAD, read_shard
from tiered.errors import Corrupt
from tiered.metadata.prefix import prefix_end
from tiered.provider.base import Provider

MANY = 64
"""From so many keys of a shard on, all of its pairs are made to find them."""


class DamagedShard(Corrupt):
    """A shard of a checkpoint (its manifest's key) does not verify, or is gone: the checkpoint counts as absent."""

    def __init__(self, checkpoint: str, error: Corrupt) -> None:
        super().__init__(error.message, hint=error.hint, **error.fields)
        self.checkpoint = checkpoint


class ShardCache:
    """Shards of one archive, whichever checkpoints name them; the longest unused go beyond ``cache_bytes``. Thread-safe."""

    def __init__(self, provider: Provider, cache_bytes: int) -> None:
        self._provider = provider
        self._kept: LRUCache[str, ShardPairs] = LRUCache(cache_bytes, getsizeof=lambda pairs: pairs.nbytes)
        self._lock = threading.Lock()

    def get(self, manifest: Manifest, number: int) -> ShardPairs:
        """A shard by its place in a manifest. ``DamagedShard``."""
        shard = manifest.shards[number]
        with self._lock:
            found = self._kept.get(shard.path)
        if found is not None:
            return found
        try:
            found = read_shard(self._provider, manifest, shard)
        except Corrupt as error:
            raise DamagedShard(manifest.key, error) from error
        with self._lock:
            if found.nbytes <= self._kept.maxsize:
                self._kept[shard.path] = found
        return found


class ShardView:
    """What a checkpoint saved, as a ``MetadataView``. Never changes; any number of threads may read it."""

    def __init__(self, cache: ShardCache, manifest: Manifest) -> None:
        self.manifest = manifest
        self._cache = cache
        self._first = [s.first_key for s in manifest.shards]
        self._last = [s.last_key for s in manifest.shards]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(keys)
        asked: dict[int, list[int]] = {}
        for place, key in enumerate(keys):
            number = bisect_left(self._last, key)
            if number < len(self._last) and self._first[number] <= key:
                asked.setdefault(number, []).append(place)
        for number, places in asked.items():
            pairs = self._cache.get(self.manifest, number)
            get = pairs.get if len(places) < MANY else dict(pairs.pairs()).get
            for place in places:
                found[place] = get(keys[place])
        return found

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        """See ``MetadataView``. Only the first shard is fetched for a caller that takes only the first pairs."""
        low, end, last = prefix, prefix_end(prefix), None
        if start is not None and reverse:
            last = start
        elif start is not None:
            low = max(low, start)
        first = bisect_left(self._last, low)
        stop = len(self._first) if end is None else bisect_left(self._first, end)
        if last is not None:
            stop = min(stop, bisect_right(self._first, last))
        numbers = list(range(first, stop))
        if reverse:
            numbers.reverse()
        for pairs in self._shards(numbers):
            begin = pairs.place(low)
            until = len(pairs) if end is None else pairs.place(end)
            if last is not None:
                until = min(until, pairs.place(last + b"\0"))
            yield from _steps(pairs, begin, until, reverse)

    def applied(self) -> bytes | None:
        """Nothing of its own: who lays commits over it knows."""
        return None

    def _shards(self, numbers: list[int]) -> Iterator[ShardPairs]:
        yield from (self._cache.get(self.manifest, number) for number in numbers[:1])
        yield from read_each(lambda number: self._cache.get(self.manifest, number), numbers[1:], SHARDS_AHEAD)


def _steps(pairs: ShardPairs, begin: int, end: int, reverse: bool) -> Iterator[Pair]:
    """Pairs [begin, end) by place, few at first."""
    size = 4
    while begin < end:
        if reverse:
            some = pairs.pairs(max(begin, end - size), end)
            end -= len(some)
            some.reverse()
        else:
            some = pairs.pairs(begin, min(end, begin + size))
            begin += len(some)
        yield from some
        size = min(8 * size, 4096)
