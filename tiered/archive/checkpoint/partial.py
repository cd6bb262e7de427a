"""A fold of which only what is asked for is loaded: a checkpoint's shards as questions touch them, later commits over them.

What a reader of one queue among a hundred thousand works on. A view answers any question: one outside its scope, or one that
meets a damaged shard, has it made anew at the same commit, with more queues or from an older checkpoint.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from tiered.archive.checkpoint.format import Manifest
from tiered.archive.checkpoint.shardview import DamagedShard, ShardCache, ShardView, not_loaded
from tiered.archive.checkpoint.store import check_head, check_order, checkpoint_keys
from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.keys import HEAD
from tiered.archive.state.layers import Pair, laid_over, looked_up
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.values import Head, unpack_head
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataView
from tiered.metadata.memory import MemoryView
from tiered.metadata.prefix import prefix_end
from tiered.provider.base import Provider

SHARD_CACHE_BYTES = 48 * 1024 * 1024
"""Shards that are kept, decompressed."""

FEW_COMMITS = 4
"""Behind a checkpoint: to fold so many over all of it in memory costs less than to put all of it on a disk."""

MOST_CHANGES = 100_000
"""Keys that commits since the checkpoint may have changed before a newer checkpoint is looked for."""

Values = dict[bytes, bytes | None]


class _Layers:
    """A checkpoint and what later commits changed: one ordered map. Never changes."""

    def __init__(self, base: MetadataView, values: Values, applied: bytes | None) -> None:
        self.base = base
        self.values = values
        self.applied = applied
        self._order: list[bytes] | None = None

    @property
    def begun(self) -> int:
        """The commit of ``base``; -1: it holds nothing."""
        if isinstance(self.base, ShardView):
            return self.base.manifest.seq
        position = self.base.applied()
        return -1 if position is None else int.from_bytes(position[:8], "big")

    def laid(self, prefix: bytes) -> list[Pair]:
        """Pairs that later commits put."""
        if self._order is None:
            self._order = sorted(self.values)
        end = prefix_end(prefix)
        low, high = bisect_left(self._order, prefix), None if end is None else bisect_left(self._order, end)
        found = ((key, self.values[key]) for key in self._order[low:high])
        return [(key, value) for key, value in found if value is not None]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return looked_up([self.values], self.base, keys)

    def iterate(
        self, prefix: bytes, start: bytes | None, reverse: bool, end: bytes | None = None
    ) -> Iterator[Pair]:
        """``end``: no shard at or above it is fetched, though pairs above may come."""
        if self._order is None:
            self._order = sorted(self.values)
        base = self.base if end is None or not isinstance(self.base, ShardView) else self.base.below(end)
        return laid_over([self.values], self._order, base, prefix, start, reverse)

    def at_hand(self) -> _Layers:
        """The same, without requests."""
        base = self.base.at_hand() if isinstance(self.base, ShardView) else self.base
        made = _Layers(base, self.values, self.applied)
        made._order = self._order
        return made


def _nothing() -> MetadataView:
    return MemoryView({}, [], None)


class PartialView:
    """The archive at one commit. Its content never changes, though more of it may be loaded. Thread-safe."""

    def __init__(
        self, layers: _Layers, scope: Scope, remake: Callable[[Scope, str | None, bytes | None], PartialView]
    ) -> None:
        self._layers = layers
        self._scope = scope
        self._remake = remake
        self._lock = threading.Lock()

    @property
    def scope(self) -> Scope:
        """What is folded so far."""
        return self._scope

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._scope.everything:
            for key in keys:
                self._cover(key)
        while True:
            layers = self._layers
            try:
                return layers.get_many(keys)
            except DamagedShard as error:
                self._without(layers, error)

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        self._cover(prefix)
        return self._pairs(prefix, start, reverse)

    def walk(self, prefix: bytes, start: bytes, end: bytes | None) -> Iterator[Pair]:
        """Ascending pairs of ``prefix`` from ``start`` on, below ``end``; nothing more is folded, whatever the scope."""
        return self._pairs(prefix, start, reverse=False, end=end)

    def behind(self) -> Manifest | None:
        """The checkpoint, where commits behind it are folded for some queues and not for all."""
        base, applied = self._layers.base, self._layers.applied
        if self._scope.everything or not isinstance(base, ShardView) or applied is None:
            return None
        return base.manifest if base.manifest.seq < int.from_bytes(applied[:8], "big") else None

    def part(self, scope: Scope) -> PartialView:
        """A view of other queues at the same commit."""
        return self._remake(scope, None, self._layers.applied)

    def _pairs(
        self, prefix: bytes, start: bytes | None, reverse: bool, end: bytes | None = None
    ) -> Iterator[Pair]:
        last: bytes | None = None
        while True:
            layers = self._layers
            try:
                for key, value in layers.iterate(prefix, start if last is None else last, reverse, end):
                    if end is not None and key >= end:
                        return
                    if key != last:
                        last = key
                        yield key, value
                return
            except DamagedShard as error:
                self._without(layers, error)

    def applied(self) -> bytes | None:
        return self._layers.applied

    def put_since(self, prefix: bytes, seq: int) -> list[Pair] | None:
        """Pairs below ``prefix``, ascending: all that commits behind number ``seq`` put and that are there, and some that
        commits before it put. ``None``: the checkpoint is younger, and only ``iterate`` finds them. No request."""
        self._cover(prefix)
        layers = self._layers
        return layers.laid(prefix) if layers.begun <= seq else None

    def at_hand(self) -> MetadataView:
        """What is loaded of it now. Never waits and makes no request: for all else it is ``Unavailable``."""
        scope = self._scope  # first: see ``_become``
        return _AtHand(self._layers.at_hand(), scope)

    def _cover(self, prefix: bytes) -> None:
        if self._scope.covers(prefix):
            return
        with self._lock:
            if not self._scope.covers(prefix):
                self._become(self._remake(self._scope.wider(prefix), None, self._layers.applied))

    def _without(self, layers: _Layers, error: DamagedShard) -> None:
        """From an older checkpoint, or the log; raises if that cannot be."""
        with self._lock:
            if self._layers is layers:
                self._become(self._remake(self._scope, error.checkpoint, layers.applied))

    def _become(self, made: PartialView) -> None:
        # Layers first: a reader that sees the wider scope finds what is in it.
        self._layers = made._layers
        self._scope = made._scope


class _AtHand:
    """A ``MetadataView`` of what is loaded of a partial one."""

    def __init__(self, layers: _Layers, scope: Scope) -> None:
        self._layers = layers
        self._scope = scope

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        for key in keys:
            self._check(key)
        return self._layers.get_many(keys)

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        self._check(prefix)
        return self._layers.iterate(prefix, start, reverse)

    def applied(self) -> bytes | None:
        return self._layers.applied

    def _check(self, prefix: bytes) -> None:
        if not self._scope.covers(prefix):
            raise not_loaded()


class PartialStore:
    """A ``MetadataStore`` over a checkpoint, in memory; written by one thread, which folds what is in ``scope``.

    ``remake`` is the ``LogReader``'s that folds into it: it fills a store up to a commit. Views ask for it, and what they asked
    for is folded from then on.
    """

    def __init__(self, scope: Scope = EVERYTHING, *, cache_bytes: int = SHARD_CACHE_BYTES) -> None:
        self.scope = scope
        self.damaged: frozenset[str] = frozenset()
        """Checkpoints (manifests' keys) that count as absent."""
        self.cleared: str | None = None
        self.remake: Callable[[PartialStore, bytes], None] | None = None
        self._cache_bytes = cache_bytes
        self._cache: ShardCache | None = None
        self._wanted = scope
        self._most, self._begun = MOST_CHANGES, True
        self._layers = _Layers(_nothing(), {}, None)

    # ---- what the fold reads and writes

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See ``MetadataView``; only what is in the scope."""
        if not self.scope.everything:
            for key in keys:
                self._check(key)
        return self._layers.get_many(keys)

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        """See ``MetadataView``; only what is in the scope."""
        stretch = self.scope.stretch
        if stretch is None or start != prefix + stretch[0]:
            self._check(prefix)
            return self._layers.iterate(prefix, start, reverse)
        return self._layers.iterate(prefix, start, reverse, stretch[1] and prefix + stretch[1])

    def applied(self) -> bytes | None:
        return self._layers.applied

    def put_many(
        self, puts: Iterable[Pair], deletes: Iterable[bytes] = (), *, applied: bytes | None = None
    ) -> None:
        """See ``MetadataStore``; views keep what they saw."""
        old = self._layers
        values: Values = {**old.values, **dict.fromkeys(deletes), **dict(puts)}
        self._layers = _Layers(old.base, values, old.applied if applied is None else applied)

    def load(self, batches: Iterable[Sequence[Pair]]) -> None:
        """See ``MetadataStore``."""
        for batch in batches:
            self.put_many(batch)

    def snapshot(self) -> PartialView:
        return PartialView(self._layers, self.scope, self._anew)

    def begun(self) -> None:
        """What was begun anew is complete: what is laid over the checkpoint now is what it takes, and twice that is much."""
        if self._begun:
            self._most, self._begun = max(MOST_CHANGES, 2 * len(self._layers.values)), False

    def clear(self) -> None:
        """Forget everything but which checkpoints are damaged, and what was asked for."""
        self.scope = self._wanted
        self._begun = True
        self._layers = _Layers(_nothing(), {}, None)

    def close(self) -> None:
        """Nothing to release."""

    # ---- checkpoints

    @property
    def scattered(self) -> bool:
        """Whether folding everything here would read the checkpoint's shards again and again: each commit behind it touches
        queues of all of them, and not all can be kept."""
        base, applied = self._layers.base, self._layers.applied
        if not isinstance(base, ShardView) or applied is None:
            return False
        behind = int.from_bytes(applied[:8], "big") - base.manifest.seq
        return behind > FEW_COMMITS and sum(s.raw_bytes for s in base.manifest.shards) > self._cache_bytes

    @property
    def checkpoint_pairs(self) -> int | None:
        """How many the checkpoint has that this is laid over, 0 without one; ``None`` before anything was folded."""
        base = self._layers.base
        if self._layers.applied is None:
            return None
        return sum(s.pairs for s in base.manifest.shards) if isinstance(base, ShardView) else 0

    @property
    def wanted(self) -> Scope:
        """What views were asked for so far."""
        return self._wanted

    @property
    def outgrown(self) -> bool:
        """Whether to begin anew: a view was asked for more than is folded here, or so much is laid over the checkpoint that a
        newer one will leave less."""
        return self._wanted != self.scope or len(self._layers.values) > self._most

    def attach(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        below: int | None = None,
        *,
        listed: Callable[[int], None] = lambda date_ms: None,
    ) -> Head | None:
        """Begin at the newest checkpoint whose manifest and head verify, at or under commit ``below``; ``None`` without one.

        ``listed``: see ``load_newest``. The other shards are verified when they are touched: ``DamagedShard`` then, and
        ``refuse`` takes the checkpoint out.
        """
        if self._cache is None:
            self._cache = ShardCache(provider, self._cache_bytes)
        for key in checkpoint_keys(provider, keys, below, listed=listed):
            if key in self.damaged:
                continue
            try:
                return self._begin(ShardView(self._cache, self._cache.manifest(key)))
            except Corrupt:
                self.refuse(key)
        return None

    def begin_over(self, view: MetadataView) -> None:
        """Begin where ``view`` is, which nobody changes meanwhile; what the scope does not cover stays as it is there."""
        self._layers = _Layers(view, {}, view.applied())

    def refuse(self, checkpoint: str) -> None:
        """This checkpoint counts as absent."""
        self.damaged |= {checkpoint}

    def _begin(self, view: ShardView) -> Head:
        manifest = view.manifest
        check_order(manifest)
        value = view.get_many((HEAD,))[0]
        if value is None:
            raise Corrupt("a checkpoint holds no head", key=manifest.key, expected=manifest.seq, found="none")
        check_head(manifest, [(HEAD, value)])
        head = unpack_head(value)
        self._layers = _Layers(view, {HEAD: value}, head.position())
        return head

    # ---- views

    def _anew(self, scope: Scope, damaged: str | None, applied: bytes | None) -> PartialView:
        made = PartialStore(scope, cache_bytes=self._cache_bytes)
        made._cache = self._cache
        made.damaged = self.damaged if damaged is None else self.damaged | {damaged}
        self.damaged = made.damaged
        if scope.stretch is None:
            self._wanted |= scope
        if applied is not None and self.remake is not None:
            made.remake = self.remake
            self.remake(made, applied)
        return made.snapshot()

    def _check(self, prefix: bytes) -> None:
        if not self.scope.covers(prefix):
            raise AssertionError(f"a partial fold was asked for a key that is not in it: {prefix[:80]!r}")
