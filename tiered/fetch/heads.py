"""Heads of row groups of segments, fetched beside a request for blocks: from the tables, disk or store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockRef
from tiered.codec.types import Buffer
from tiered.errors import Unavailable
from tiered.fetch.disk import DiskTier
from tiered.metrics import Metrics
from tiered.model import ByteRange
from tiered.provider.base import Provider

MOST_AT_ONCE = 4
"""Requests for heads; each serves all bands of a row group."""


class Heads:
    """Thread-safe."""

    def __init__(
        self, provider: Provider, objects: ObjectReader, disk: DiskTier | None, threads: int, metrics: Metrics
    ) -> None:
        self._provider, self._objects, self._disk, self._metrics = provider, objects, disk, metrics
        self._pool = ThreadPoolExecutor(min(threads, MOST_AT_ONCE), "tiered-heads")

    def coming_bytes(self, ref: BlockRef) -> int:
        """How much would be fetched for a block, as far as that is known without a request."""
        tables = None if ref.group is None else self._objects.cached_sealed(ref.item)
        if tables is None:
            return 0
        return self._objects.heads.coming_bytes(tables.segment, tables.group_of_block(ref.key.block))

    def begin(self, ref: BlockRef, what_for: str) -> Future[Buffer | None] | None:
        """``get`` in a thread of its own; ``None`` for a block that lies in no segment."""
        if ref.group is None:
            return None
        try:
            return self._pool.submit(self.get, ref, what_for)
        except RuntimeError as error:
            raise Unavailable("the fetcher is closed") from error

    def get(self, ref: BlockRef, what_for: str) -> Buffer | None:
        """The head of the row group that a block lies in, unchecked; ``None`` where there is none. ``what_for``: ``demand``
        or ``ahead``, for the metric."""
        if ref.group is None:
            return None
        tables = self._objects.sealed(ref.item)

        def fetch(place: ByteRange, sound: Callable[[Buffer], bool]) -> Buffer:
            name = f"{DiskTier.name_of(ref.item.object_id, place.start)}-head"
            kept = None if self._disk is None else self._disk.get(name)
            if kept is not None and sound(kept):
                return kept
            stored = self._provider.get(tables.segment.key, place.start, place.length).data
            self._metrics.fetched_bytes.labels(what_for).inc(len(stored))
            if self._disk is not None:
                self._disk.drop(name)
                if sound(stored):
                    self._disk.put(name, memoryview(stored))
            return stored

        return self._objects.heads.get(tables.segment, tables.group_of_block(ref.key.block), fetch)

    def close(self) -> None:
        """What is under way comes to its end."""
        self._pool.shutdown(wait=False)
