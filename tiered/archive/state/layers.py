"""Changes of commits, laid over a view of the ordered map without writing to it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_not
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tiered.archive.state.layout import packed_table
from tiered.archive.state.values import Head
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.metadata.prefix import prefix_end

Pair = tuple[bytes, bytes]
Layer = Mapping[bytes, bytes | None]
"""Values by key, ``None`` for deleted."""

_MISSING = object()


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """Records of distinct queues (``QUEUE_DTYPE``), as one edit left them."""

    topics: Sequence[str]
    queue_ids: npt.NDArray[np.integer]
    records: npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Changes:
    """What one commit does to the ordered map. ``values`` holds every key touched, ``None`` for deleted;
    ``head`` is where the fold stands afterwards. ``queues``: all of the queues' records among them once more, the last of
    a queue counts; ``None`` if some are not. Never changed once made."""

    values: Mapping[bytes, bytes | None]
    head: Head
    queues: Sequence[QueueBatch] | None = None

    @property
    def puts(self) -> list[Pair]:
        """Pairs to put, in no particular order."""
        return [(k, v) for k, v in self.values.items() if v is not None]

    @property
    def deletes(self) -> list[bytes]:
        """Keys to delete."""
        return [k for k, v in self.values.items() if v is None]


@runtime_checkable
class QueueTables(Protocol):
    """A view that has records of queues as arrays."""

    def queue_table(
        self, topics: Sequence[str], queue_ids: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """As ``ArchiveState.queue_table``, of distinct queues; what is returned is the caller's."""
        ...


class Overlay:
    """``base`` with ``changes`` (oldest first) on top: a ``MetadataView`` of the fold as it will be."""

    def __init__(self, base: MetadataView, changes: Sequence[Changes] = ()) -> None:
        self._base = base
        self._layers: list[Layer] = [c.values for c in reversed(changes)]
        self._applied = changes[-1].head.position() if changes else None
        self._order: list[bytes] | None = None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of ``keys``; the newest change wins."""
        return looked_up(self._layers, self._base, keys)

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        """As ``MetadataView.iterate``, changes and base merged."""
        if self._order is None:
            self._order = sorted(set().union(*self._layers))
        return laid_over(self._layers, self._order, self._base, prefix, start, reverse)

    def applied(self) -> bytes | None:
        """The position of the newest change, else of the base."""
        return self._applied if self._applied is not None else self._base.applied()


class FoldDraft:
    """A view and the changes made to it so far: what the rules of one commit read and write."""

    def __init__(self, base: MetadataView) -> None:
        self._base = base
        self.values: dict[bytes, bytes | None] = {}
        self._layers = [self.values]
        self._order: list[bytes] | None = None

    def get(self, key: bytes) -> bytes | None:
        """One value."""
        found = self.values.get(key, _MISSING)
        return self._base.get_many((key,))[0] if found is _MISSING else found  # type: ignore[return-value]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of ``keys``."""
        return looked_up(self._layers, self._base, keys)

    def queue_table(
        self, keys: Sequence[bytes], topics: Sequence[str], queue_ids: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """Records of distinct queues: their keys with prefix, and what these are made of. As ``ArchiveState.queue_table``."""
        if not isinstance(self._base, QueueTables):
            return packed_table(self.get_many(keys))
        if self.values.keys().isdisjoint(keys):
            return self._base.queue_table(topics, queue_ids)
        own = list(map(self.values.get, keys, repeat(_MISSING)))
        touched = np.fromiter(map(is_not, own, repeat(_MISSING)), np.bool_, len(own))
        records, known = packed_table([None if value is _MISSING else value for value in own])  # type: ignore[misc]
        rest = np.flatnonzero(~touched)
        if len(rest):
            below = self._base.queue_table([topics[row] for row in rest.tolist()], queue_ids[rest])
            records[rest], known[rest] = below
        return records, known

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value, or delete with ``None``."""
        if self._order is not None and key not in self.values:
            insort(self._order, key)
        self.values[key] = value

    def put_all(self, keys: Iterable[bytes], values: Iterable[bytes]) -> None:
        """Set many; for whole batches."""
        self.values.update(zip(keys, values, strict=True))
        self._order = None

    def drop_all(self, keys: Iterable[bytes]) -> None:
        """Delete many; for whole batches."""
        self.values.update(dict.fromkeys(keys))
        self._order = None

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> list[Pair]:
        """All pairs with ``prefix``, as ``MetadataView.iterate``; a list, so that the caller may change what
        it walks."""
        return list(self.scan(prefix, start=start, reverse=reverse))

    def scan(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        """Lazy ``iterate``; nothing may be put or deleted while it runs."""
        if self._order is None:
            self._order = sorted(self.values)
        return laid_over(self._layers, self._order, self._base, prefix, start, reverse)


def looked_up(
    layers: Sequence[Mapping[bytes, bytes | None]], base: MetadataView, keys: Sequence[bytes]
) -> list[bytes | None]:
    """Values in the order of ``keys``: of the first layer that has the key, else of ``base``."""
    layers = [layer for layer in layers if layer]
    if not layers:
        return base.get_many(keys)
    found: list[object] = list(map(layers[0].get, keys, repeat(_MISSING)))
    for layer in layers[1:]:
        found = [layer.get(k, _MISSING) if v is _MISSING else v for k, v in zip(keys, found, strict=True)]
    absent = [k for k, v in zip(keys, found, strict=True) if v is _MISSING]
    if absent:
        below = iter(base.get_many(absent))
        found = [next(below) if v is _MISSING else v for v in found]
    return found  # type: ignore[return-value]


def laid_over(
    layers: Sequence[Mapping[bytes, bytes | None]],
    order: list[bytes],
    base: MetadataView,
    prefix: bytes,
    start: bytes | None,
    reverse: bool,
) -> Iterator[Pair]:
    """Pairs of the layers (``order``: all their keys, sorted) and of ``base``; a key in any layer hides the base's."""
    end = prefix_end(prefix)
    low, high = bisect_left(order, prefix), len(order) if end is None else bisect_left(order, end)
    if start is not None and reverse:
        high = min(high, bisect_right(order, start))
    elif start is not None:
        low = max(low, bisect_left(order, start))
    own = order[low:high]
    below = base.iterate(prefix, start=start, reverse=reverse)
    if not own:
        yield from below
        return
    if reverse:
        own.reverse()
    mine = iter(own)
    key = next(mine, None)
    for other, value in below:
        while key is not None and (key > other if reverse else key < other):
            yield from _own(layers, key)
            key = next(mine, None)
        if key == other:
            yield from _own(layers, other)
            key = next(mine, None)
        else:
            yield other, value
    while key is not None:
        yield from _own(layers, key)
        key = next(mine, None)


def _own(layers: Sequence[Mapping[bytes, bytes | None]], key: bytes) -> Iterator[Pair]:
    for layer in layers:
        if key in layer:
            value = layer[key]
            if value is not None:
                yield key, value
            return


def store_changes(store: MetadataStore, changes: list[Changes]) -> None:
    """Put the changes of consecutive commits as one atomic batch."""
    if not changes:
        return
    values = changes[0].values
    if len(changes) > 1:
        values = dict(values)
        for c in changes[1:]:
            values.update(c.values)
    deletes = [k for k, v in values.items() if v is None]
    pairs = values.items()
    puts = [pair for pair in pairs if pair[1] is not None] if deletes else pairs
    store.put_many(puts, deletes, applied=changes[-1].head.position())  # type: ignore[arg-type]
