"""A fold of which only what is asked for is loaded: a checkpoint's shards as questions touch them, later commits over them.

What a reader of one queue among a hundred thousand works on. A view answers any question: one outside its scope, or one that
meets a damaged shard, has it made anew at the same commit, with more queues or from an older checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from tiered.archive.checkpoint.shardview import DamagedShard, ShardCache, ShardView
from tiered.archive.checkpoint.store import check_head, check_order, checkpoint_keys, read_manifest
from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.keys import HEAD
from tiered.archive.state.layers import Pair, laid_over, looked_up
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.values import Head, unpack_head
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataView
from tiered.metadata.memory import MemoryView
from tiered.provider.base import Provider

SHARD_CACHE_BYTES = 48 * 1024 * 1024
"""Shards that are kept, decompressed."""

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

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return looked_up([self.values], self.base, keys)

    def iterate(self, prefix: bytes, start: bytes | None, reverse: bool) -> Iterator[Pair]:
        if self._order is None:
            self._order = sorted(self.values)
        return laid_over([self.values], self._order, self.base, prefix, start, reverse)


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
        last: bytes | None = None
        while True:
            layers = self._layers
            try:
                for key, value in layers.iterate(prefix, start if last is None else last, reverse):
                    if key != last:
                        last = key
                        yield key, value
                return
            except DamagedShard as error:
                self._without(layers, error)

    def applied(self) -> bytes | None:
        return self._layers.applied

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


class PartialStore:
    """A ``MetadataStore`` over a checkpoint, in memory; written by one thread, which folds what is in ``scope``.

    ``remake`` is the ``LogReader``'s that folds into it: it fills a store up to a commit. Views ask for it, and what they asked
    for is folded from then on.
    """

    def __init__(self, scope: Scope = EVERYTHING, *, cache_bytes: int = SHARD_CACHE_BYTES) -> None:
        self.scope = scope
        self.damaged: frozenset[str] = frozenset()
        """Checkpoints (manifests' keys) that count as absent."""
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
        self._check(prefix)
        return self._layers.iterate(prefix, start, reverse)

    def applied(self) -> bytes | None:
        return self._layers.applied

    def put_many(
        self, puts: Iterable[Pair], deletes: Iterable[bytes] = (), *, applied: bytes | None = None
    ) -> None:
        """See ``MetadataStore``; views keep what they saw."""
        old = self._layers
        values: Values = {**old.values, **dict.fromkeys(deletes), **dict(puts)}
        self._layers = _Layers(old.base, values, old.applied if applied is None else applied)

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
                return self._begin(ShardView(self._cache, read_manifest(provider, key)))
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
        self._wanted |= scope
        if applied is not None and self.remake is not None:
            made.remake = self.remake
            self.remake(made, applied)
        return made.snapshot()

    def _check(self, prefix: bytes) -> None:
        if not self.scope.covers(prefix):
            raise AssertionError(f"a partial fold was asked for a key that is not in it: {prefix[:80]!r}")
