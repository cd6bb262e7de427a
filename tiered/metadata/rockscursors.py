"""Places in a RocksDB store from which is read on. Each keeps the engine's lock, so the store knows them all and can take
it back: whoever reads on then is told so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from tiered.errors import TieredError, Unavailable
from tiered.metadata.prefix import prefix_end
from tiered.metadata.rocksfamilies import FamilyRange, OpenFamilies, ranges

FIRST, _CHUNK = 4, 512
"""Pairs that a walk asks for at first, and at most at once: most walks are over a few pairs, many want one and no other."""

ErrorOf = Callable[[Exception], TieredError]
"""What an exception of the engine means."""


def span(prefix: bytes, start: bytes | None, reverse: bool) -> tuple[bytes, bytes | None]:
    """The lowest key wanted, and the key behind the highest (``None``: no such)."""
    low, end = max(prefix, b"\x01"), prefix_end(prefix)
    if start is None:
        return low, end
    if not reverse:
        return max(low, start), end
    behind = start + b"\0"
    return low, behind if end is None else min(end, behind)


def _opened_anew() -> Unavailable:
    return Unavailable(
        "the metadata store was closed or opened anew while it was read", hint="it is read again"
    )


class RocksDbPairs:
    """Pairs of the live store from one place on: the first ones that were asked for, and the engine's iterator over the rest.

    That iterator is twice as fast as a cursor is, and ends at a damaged block as if there was nothing more: so when it ends, a
    cursor looks there again.
    """

    def __init__(
        self,
        first: list[tuple[bytes, bytes]],
        more: tuple[Iterator[tuple[bytes, bytes]], Callable[[bytes], None]] | None,
        error_of: ErrorOf,
    ) -> None:
        """``more``: the rest, if there is one; and what looks behind a key, the last one told, and raises what keeps it from
        looking."""
        self._first = first
        self._more = more
        self._error_of = error_of
        self._lock = threading.Lock()

    def all(self, part: FamilyRange) -> Iterator[tuple[bytes, bytes]]:
        """All that there are in ``part``."""
        more = self._more is not None
        yield from self._first
        if not more:
            return
        count, last = len(self._first), self._first[-1][0]
        while chunk := self._take(count):
            if chunk[-1][0] < part.low:  # of a walk down, to which the engine knows no end
                yield from (pair for pair in chunk if pair[0] >= part.low)
                return
            yield from chunk
            count, last = min(4 * count, _CHUNK), chunk[-1][0]
        with self._lock:
            check = self._known()[1]
        check(last)

    def let_go(self) -> None:
        """There are no more."""
        with self._lock:
            self._more = None

    def _known(self) -> tuple[Iterator[tuple[bytes, bytes]], Callable[[bytes], None]]:
        if self._more is None:
            raise _opened_anew()
        return self._more

    def _take(self, count: int) -> list[tuple[bytes, bytes]]:
        with self._lock:
            rest = self._known()[0]
            try:
                return list(islice(rest, count))
            except Exception as e:
                raise self._error_of(e) from e


class RocksDbSnapshot:
    """A frozen ``MetadataView`` of a RocksDB store: an iterator of the engine for each family, which sees the moment it was
    made; nothing may be written between the two.

    (The iterators of a rocksdict 0.3 ``Snapshot`` are not frozen.) Readers take turns at it, up to some hundred
    pairs each.
    """

    def __init__(self, scanned: Any, points: Any, first: bytes, error_of: ErrorOf, applied: bytes) -> None:
        """``points`` is a cursor of the keys that begin with ``first``, ``scanned`` of all others."""
        self._cursors: tuple[Any, Any] | None = (scanned, points)
        self._first = first
        self._error_of = error_of
        self._applied = applied
        self._lock = threading.Lock()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock, self._door() as cursors:
            return [_value(cursors[key[:1] == self._first], key) for key in keys]

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        parts = ranges(self._first, *span(prefix, start, reverse))
        for part in reversed(parts) if reverse else parts:
            yield from self._of(part, reverse)

    def _of(self, part: FamilyRange, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        most = FIRST
        while True:
            chunk = self._some(part, reverse, most)
            yield from chunk
            if len(chunk) < most:
                return
            most, last = min(4 * most, _CHUNK), chunk[-1][0]
            part = part._replace(end=last) if reverse else part._replace(low=last + b"\0")

    def _some(self, part: FamilyRange, reverse: bool, most: int) -> list[tuple[bytes, bytes]]:
        with self._lock, self._door() as cursors:  # no walk keeps one between its steps
            return chunk_of(cursors[part.points], part, reverse, most)

    def applied(self) -> bytes | None:
        with self._lock, self._door() as cursors:
            return _value(cursors[0], self._applied)

    def let_go(self) -> None:
        """Nothing can be read of it any more."""
        with self._lock:
            self._cursors = None

    @contextmanager
    def _door(self) -> Iterator[tuple[Any, Any]]:
        if self._cursors is None:
            raise _opened_anew()
        try:
            yield self._cursors
        except Exception as e:
            raise self._error_of(e) from e


def frozen(families: OpenFamilies, error_of: ErrorOf, applied: bytes) -> RocksDbSnapshot:
    """What an open database holds now. Nothing may be written meanwhile."""
    scanned = families.scanned.iter()
    points = scanned if families.points is None else families.points.iter()
    return RocksDbSnapshot(scanned, points, families.first, error_of, applied)


def _value(cursor: Any, key: bytes) -> bytes | None:
    cursor.seek(key)
    if not cursor.valid():
        cursor.status()
        return None
    found: bytes | None = cursor.value() if cursor.key() == key else None
    return found


def chunk_of(cursor: Any, part: FamilyRange, reverse: bool, most: int) -> list[tuple[bytes, bytes]]:
    """The first pairs of ``part``, at most so many; raises if the engine stopped for a reason."""
    if not reverse:
        cursor.seek(part.low)
    elif part.end is None:
        cursor.seek_to_last()
    else:
        cursor.seek_for_prev(part.end)
        if cursor.valid() and cursor.key() == part.end:
            cursor.prev()
    step, end = cursor.prev if reverse else cursor.next, part.end
    chunk: list[tuple[bytes, bytes]] = []
    while len(chunk) < most and cursor.valid():
        key = cursor.key()
        if key < part.low or (end is not None and key >= end):
            return chunk
        chunk.append((key, cursor.value()))
        step()
    if not cursor.valid():
        cursor.status()
    return chunk
