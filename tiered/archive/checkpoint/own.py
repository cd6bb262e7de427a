"""Checkpoints that this process made in its epoch: no others count for the floor (DESIGN.md, "Ageing", K1 to K3)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tiered.archive.checkpoint.format import Manifest
from tiered.archive.checkpoint.store import check_order, read_manifest, read_shard
from tiered.errors import Corrupt
from tiered.provider.base import Provider


class OwnCheckpoints:
    """What one process made since it opened its epoch. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._manifests: list[Manifest] = []
        self._shards: set[str] = set()
        self._verified: set[str] = set()

    def makes(self, path: str) -> None:
        """A shard is about to be put."""
        with self._lock:
            self._shards.add(path)

    def add(self, manifest: Manifest) -> None:
        """A manifest of shards that this process made or was lent is in the store."""
        with self._lock:
            self._manifests = [m for m in self._manifests if m.seq != manifest.seq] + [manifest]

    def made(self, path: str) -> bool:
        """Whether a shard is of this process."""
        with self._lock:
            return path in self._shards

    def newest_first(self) -> list[Manifest]:
        """What was made and is not below the floor."""
        with self._lock:
            return self._manifests[::-1]

    def needed(self, floor: int) -> set[str]:
        """Shards of those at or above ``floor``."""
        with self._lock:
            return {shard.path for m in self._manifests if m.seq >= floor for shard in m.shards}

    def forget_below(self, floor: int) -> None:
        """The floor has moved: what is below it counts for nothing any more."""
        with self._lock:
            self._manifests = [m for m in self._manifests if m.seq >= floor]
            self._verified &= {shard.path for m in self._manifests for shard in m.shards}

    def forget_shard(self, path: str) -> None:
        """A shard was named for deletion."""
        with self._lock:
            self._shards.discard(path)

    def verifies(self, provider: Provider, manifest: Manifest, spend: Callable[[int], None]) -> bool:
        """Whether manifest and shards are in the store and sound; each shard is read once. ``spend`` hears of its bytes."""
        try:
            if read_manifest(provider, manifest.key) != manifest:
                return False
            check_order(manifest)
            for shard in manifest.shards:
                with self._lock:
                    known = shard.path in self._verified
                if not known:
                    spend(shard.stored_bytes)
                    read_shard(provider, manifest, shard)
                    with self._lock:
                        self._verified.add(shard.path)
        except Corrupt:
            return False
        return True
