"""Which family of columns a key lies in: keys that are looked up one by one have one of their own, all others the default one.

The families of a database share one log, so a batch is atomic across them. The first byte of a key decides: each family holds
whole ranges of the ordered map, and a walk over the map is one over a few ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import compress
from operator import not_
from typing import Any, NamedTuple

import rocksdict

from tiered.metadata.prefix import prefix_end

POINTS = "points"
"""The engine's name of that family."""


class FamilyRange(NamedTuple):
    """Keys of one family, from ``low`` up to and without ``end`` (``None``: to the last one)."""

    points: bool
    low: bytes
    end: bytes | None


def ranges(points: bytes, low: bytes, end: bytes | None) -> list[FamilyRange]:
    """The keys in [low, end), ascending, by family; those that begin with ``points`` (a byte, or nothing) have their own."""
    if not points:
        return [FamilyRange(False, low, end)]
    behind = prefix_end(points)
    parts = [FamilyRange(False, b"", points), FamilyRange(True, points, behind)]
    if behind is not None:
        parts.append(FamilyRange(False, behind, None))
    clipped = [FamilyRange(part.points, max(part.low, low), _lower(part.end, end)) for part in parts]
    return [part for part in clipped if part.end is None or part.low < part.end]


def _lower(one: bytes | None, other: bytes | None) -> bytes | None:
    if one is None or other is None:
        return one or other
    return min(one, other)


class OpenFamilies:
    """The families of an open database. ``points`` is ``None`` if there is the default one alone."""

    def __init__(self, db: rocksdict.Rdict, points: bytes) -> None:
        self.first = points
        self.scanned = db
        self.points = db.get_column_family(POINTS) if points else None
        self._handle = db.get_column_family_handle(POINTS) if points else None

    def of(self, part: FamilyRange) -> rocksdict.Rdict:
        """The family that a range lies in."""
        return self.points if part.points and self.points is not None else self.scanned

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of ``keys``."""
        if self.points is None:
            return _values(self.scanned, keys)
        inside = [key[:1] == self.first for key in keys]
        if all(inside):
            return _values(self.points, keys)
        if not any(inside):
            return _values(self.scanned, keys)
        mine = iter(_values(self.points, list(compress(keys, inside))))
        others = iter(_values(self.scanned, list(compress(keys, map(not_, inside)))))
        return [next(mine if own else others) for own in inside]

    def put(self, batch: rocksdict.WriteBatch, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Put ``pairs`` in ``batch``."""
        put, first, points = batch.put, self.first, self._handle
        for key, value in pairs:  # two thirds of what arrays of yes and no took
            put(key, value, points if key.startswith(first) else None)

    def delete(self, batch: rocksdict.WriteBatch, keys: Iterable[bytes]) -> None:
        """Delete ``keys`` in ``batch``."""
        for key in keys:
            batch.delete(key, self._handle if self._handle is not None and key[:1] == self.first else None)

    def delete_range(self, batch: rocksdict.WriteBatch, low: bytes, end: bytes) -> None:
        """Delete the keys in [low, end) in ``batch``."""
        for part in ranges(self.first, low, end):
            assert part.end is not None
            batch.delete_range(part.low, part.end, self._handle if part.points else None)

    def compact(self) -> None:
        """Give back the space of what was deleted."""
        for family in self._all():
            family.compact_range(None, None)

    def close(self) -> None:
        """Each of them keeps the engine's lock, so that all are closed though one of them says that a write failed."""
        self._handle = None
        with ExitStack() as closing:
            for family in self._all():
                closing.callback(family.close)

    def _all(self) -> list[rocksdict.Rdict]:
        return [self.scanned] if self.points is None else [self.scanned, self.points]


def _values(family: rocksdict.Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
    found: Any = family.get(list(keys))
    return list(found)
