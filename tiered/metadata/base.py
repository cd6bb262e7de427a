"""The metadata port: an ordered map of bytes with atomic batches, where the cached fold lives.

``applied`` is the position of the fold (a small opaque value) stored *in the same atomic batch* as its changes, so that
a crash can never leave them apart. Losing a metadata store loses nothing: it is rebuilt from the bucket.

A ``MetadataStore`` is written through a log: what ``put_many`` returned for is there after a crash. A ``RedoStore`` is for
what can be made again from somewhere else, in order (the index of a consume queue): it has no log, a crash takes its last
batches, and ``applied`` says from where they are made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class PointLookups(Protocol):
    """Values by their keys."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of ``keys``; ``None`` where absent."""
        ...


class MetadataView(PointLookups, Protocol):
    """Reading side: point lookups and ordered prefix scans. A snapshot is one of these, frozen."""

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Pairs whose key starts with ``prefix``, ascending (or descending); ``start``: first key to consider, inclusive."""
        ...

    def applied(self) -> bytes | None:
        """The value stored by the last ``put_many``; ``None`` for an empty store."""
        ...


class MetadataStore(MetadataView, Protocol):
    """A writable store. One writer; readers may be other threads. Errors: ``Corrupt``, ``Unavailable``."""

    cleared: str | None
    """Why what was there was removed when it was opened; ``None`` if it was not."""

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        applied: bytes | None = None,
    ) -> None:
        """Apply deletes, then puts, and set ``applied`` if given: all or nothing, durable before it returns."""
        ...

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]]) -> None:
        """Fill an empty store with pairs that ascend over all ``batches``, faster than ``put_many`` does; durable before it
        returns. Cut short, it may leave any part of them, and never ``applied``: clear the store then."""
        ...

    def snapshot(self) -> MetadataView:
        """A frozen view of now; bounded cost, released by garbage collection or ``close`` of the store."""
        ...

    def clear(self) -> None:
        """Remove everything (the cache is rebuilt from the bucket)."""
        ...

    def close(self) -> None:
        """Release files and locks."""
        ...


@dataclass(frozen=True, slots=True)
class StoreSize:
    """About how much a store holds: as much as it knows without looking."""

    keys: int
    bytes: int


class RedoStore(MetadataView, Protocol):
    """A writable store without a log. One writer; readers may be other threads. Errors: ``Corrupt``, ``Unavailable``.

    After a crash the store is as it was right behind one of its batches, the last flushed one or a later one, and ``applied``
    is that batch's: no batch is there in part, none is there without those before it. Whoever writes begins at ``applied``
    again, so a batch must say the same each time it is made.
    """

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[tuple[bytes, bytes]] = (),
        applied: bytes | None = None,
    ) -> None:
        """Delete ``ranges`` (first key, end; half-open) and ``deletes``, then put, and set ``applied`` if given: all or
        nothing, seen by readers when it returns, durable after ``flush``. After an error nothing is taken until ``reopen``."""
        ...

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]], *, applied: bytes | None = None) -> None:
        """Fill an empty store with pairs that ascend over all ``batches``, faster than ``put_many`` does, and set ``applied``:
        all or nothing, a crash included, and durable before it returns. What ``batches`` raises leaves the store empty."""
        ...

    def flush(self) -> None:
        """Make everything that was put durable."""
        ...

    def flushed(self) -> bytes | None:
        """``applied`` as it was at the last ``flush``, or at opening: what a crash now leaves is this or later, so nothing
        below it is needed for redo. ``None``: nothing is."""
        ...

    def reopen(self) -> None:
        """After an error of ``put_many`` or ``flush``: open again what is there. ``applied`` may be an earlier one then.
        ``Unavailable`` while the disk takes no bytes; nothing happens if there was no error."""
        ...

    def size(self) -> StoreSize:
        """What is on disk and in buffers, about; costs next to nothing."""
        ...

    def snapshot(self) -> MetadataView:
        """See ``MetadataStore``."""
        ...

    def clear(self) -> None:
        """Remove everything, ``applied`` included: redo begins at the beginning."""
        ...

    def close(self) -> None:
        """Flush, and release files and locks."""
        ...
