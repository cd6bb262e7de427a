"""A checkpoint as a view: a shard is fetched and verified when a question touches it, and kept while there is room."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from cachetools import LRUCache

from tiered.archive.ahead import read_each
from tiered.archive.checkpoint.format import Manifest, Named, Pair, ShardPairs
from tiered.archive.checkpoint.store import SHARDS_AHEAD, read_manifest, read_shard
from tiered.errors import Corrupt, Unavailable
from tiered.metadata.prefix import prefix_end
from tiered.provider.base import Provider

MANY = 64
"""From so many keys of a shard on, all of its own are made to find them, and kept for the next question."""
NAMED_BYTES = 32 * 1024 * 1024
"""Shards whose keys are kept like that, by the bytes of their bodies; keys of queues take two thirds of that again."""


class DamagedShard(Corrupt):
    """A shard of a checkpoint (its manifest's key) does not verify, or is gone: the checkpoint counts as absent."""

    def __init__(self, checkpoint: str, error: Corrupt) -> None:
        super().__init__(error.message, hint=error.hint, **error.fields)
        self.checkpoint = checkpoint


def not_loaded() -> Unavailable:
    """What a view says that makes no requests, of pairs that nobody has asked for yet."""
    return Unavailable("this part of the archive's log is not loaded yet")


class ShardCache:
    """Shards of one archive, whichever checkpoints name them; the longest unused go beyond ``cache_bytes``. Thread-safe."""

    def __init__(self, provider: Provider, cache_bytes: int) -> None:
        self._provider = provider
        self._kept: LRUCache[str, ShardPairs] = LRUCache(cache_bytes, getsizeof=lambda pairs: pairs.nbytes)
        self._named: LRUCache[str, Named] = LRUCache(NAMED_BYTES, getsizeof=lambda named: named.nbytes)
        self._lock = threading.Lock()
        self._manifest: Manifest | None = None  # the one read last: views of one commit begin at the same

    def manifest(self, key: str) -> Manifest:
        """The manifest under a key. ``Corrupt`` if it is absent or damaged."""
        found = self._manifest
        if found is None or found.key != key:
            found = self._manifest = read_manifest(self._provider, key)
        return found

    def named(self, manifest: Manifest, number: int, pairs: ShardPairs) -> Named:
        """A shard (``pairs``) with its keys at hand: who folds commits asks for some of them at each, again and again."""
        path = manifest.shards[number].path
        with self._lock:
            found: Named | None = self._named.get(path)
        if found is None:
            found = Named(pairs)
            with self._lock:
                if found.nbytes <= self._named.maxsize:
                    self._named[path] = found
        return found

    def at_hand(self, manifest: Manifest, number: int) -> ShardPairs | None:
        """A shard by its place in a manifest, if it is kept."""
        with self._lock:
            found: ShardPairs | None = self._kept.get(manifest.shards[number].path)
        return found

    def get(self, manifest: Manifest, number: int) -> ShardPairs:
        """A shard by its place in a manifest. ``DamagedShard``."""
        shard = manifest.shards[number]
        found = self.at_hand(manifest, number)
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
    """What a checkpoint saved, as a ``MetadataView``. Never changes; any number of threads may read it.

    ``requests``: without them a shard that is not kept makes a question ``Unavailable``.
    """

    def __init__(
        self, cache: ShardCache, manifest: Manifest, *, requests: bool = True, end: bytes | None = None
    ) -> None:
        self.manifest = manifest
        self._cache = cache
        self._requests = requests
        self._end = end
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
            pairs = self._shard(number)
            if len(places) < MANY:
                values = [pairs.get(keys[place]) for place in places]
            else:
                named = self._cache.named(self.manifest, number, pairs)
                values = named.get_many([keys[place] for place in places])
            for place, value in zip(places, values, strict=True):
                found[place] = value
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
        if self._end is not None:
            stop = min(stop, bisect_left(self._first, self._end))
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

    def at_hand(self) -> ShardView:
        """The same without requests."""
        return ShardView(self._cache, self.manifest, requests=False)

    def below(self, end: bytes) -> ShardView:
        """The same, whose walks come to no shard that begins at or above ``end``."""
        return ShardView(self._cache, self.manifest, requests=self._requests, end=end)

    def _shard(self, number: int) -> ShardPairs:
        if self._requests:
            return self._cache.get(self.manifest, number)
        found = self._cache.at_hand(self.manifest, number)
        if found is None:
            raise not_loaded()
        return found

    def _shards(self, numbers: list[int]) -> Iterator[ShardPairs]:
        ahead = SHARDS_AHEAD if self._requests else 1
        yield from map(self._shard, numbers[:1])
        yield from read_each(self._shard, numbers[1:], ahead)


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
