"""The metadata port: an ordered map of bytes with atomic batches, where the cached fold lives.

``applied`` is the position of the fold (a small opaque value) stored *in the same atomic batch* as its changes, so that
a crash can never leave them apart. Losing a metadata store loses nothing: it is rebuilt from the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        applied: bytes | None = None,
    ) -> None:
        """Apply deletes, then puts, and set ``applied`` if given: all or nothing, durable before it returns."""
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
