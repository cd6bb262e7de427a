"""Whether sealed files are what the fold says before Spark's own reader gets them.

Spark compares the checksums of pages, and takes lengths, footers, Bloom filters and page indexes on trust; of a file without a
byte it shows no rows, and no error. Of each file the length is asked for, every time. Its footer, filters and page index are
proven once while the process lives, and again when the store tells another time of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from cachetools import LRUCache

from tiered.archive.state.values import ObjectState
from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt, NotFound, damage_hint
from tiered.provider.base import Stored
from tiered.settings import MIB
from tiered_spark.snapshot import ArchivePlace, Snapshot

MAX_FOOTERS = 4096
"""Files whose footers and indexes are read while a frame is made: about 16 s, at 30 ms a request. Rows of more are compared
with their runs by Spark, one by one. More files than that are listed, and not asked for one by one."""

MAX_INDEX_BYTES = 512 * MIB
"""Of filters and page indexes that are read while a frame is made. Spark does without those of more files."""

REQUESTS = 16

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Proof:
    """Of files, in their order. ``known``: whether the footer was read; ``rows``: what it tells, else 0; ``indexed``: whether
    Spark may use the filters and page index."""

    known: Bools
    rows: Ints
    indexed: Bools


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was proven of a file of this length and time."""

    stored: tuple[int, int]
    rows: int
    indexed: bool


class _Budget:
    """Bytes of indexes that may still be read."""

    def __init__(self, left: int) -> None:
        self._lock = threading.Lock()
        self._left = left

    def take(self, count: int) -> bool:
        """Whether there are so many; then they are taken."""
        with self._lock:
            enough = count <= self._left
            self._left -= count if enough else 0
            return enough


_lock = threading.Lock()
_kept: LRUCache[tuple[ArchivePlace, bytes], _Kept] = LRUCache(1_000_000)


def proven(snapshot: Snapshot, items: Sequence[ObjectState]) -> Proof:
    """``Corrupt`` or ``NotFound`` names a file that is not what the fold says."""
    stored = _stored(snapshot, items)
    told = [_length_of(snapshot, item, stored) for item in items]
    budget = _Budget(MAX_INDEX_BYTES)
    some = list(zip(items, told, strict=True))[:MAX_FOOTERS]
    found = _at_once(lambda one: _proven(snapshot, *one, budget), some)
    missing = len(items) - len(found)
    return Proof(
        np.array([True] * len(found) + [False] * missing, np.bool_),
        np.array([each.rows for each in found] + [0] * missing, np.int64),
        np.array([each.indexed for each in found] + [False] * missing, np.bool_),
    )


def forget() -> None:
    """All that was proven."""
    with _lock:
        _kept.clear()


def _at_once(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    with ThreadPoolExecutor(REQUESTS, "proofs") as pool:
        return list(pool.map(work, items))


def _stored(snapshot: Snapshot, items: Sequence[ObjectState]) -> dict[str, Stored]:
    """What the store tells of files, by key; some that are not there are missing."""
    provider, objects = snapshot.reader.provider, snapshot.view.objects
    keys = [objects.key_of(item) for item in items]

    def ask(key: str) -> list[Stored]:
        try:
            return [provider.head(key)]
        except NotFound:
            return []

    if len(keys) <= MAX_FOOTERS:
        answers = _at_once(ask, keys)
    else:
        folders = sorted({key.rpartition("/")[0] + "/" for key in keys})
        answers = _at_once(lambda folder: list(provider.list(folder)), folders)
    return {each.key: each for answer in answers for each in answer}


def _length_of(snapshot: Snapshot, item: ObjectState, stored: Mapping[str, Stored]) -> Stored:
    key = snapshot.view.objects.key_of(item)
    found = stored.get(key)
    if found is None:
        raise NotFound("an object of the archive is not there", hint=damage_hint({"key": key}), key=key)
    if found.length != item.length:
        raise Corrupt(
            "a sealed file has another length than the archive says", key=key, expected=item.length, found=found.length
        )  # fmt: skip
    return found


def _proven(snapshot: Snapshot, item: ObjectState, stored: Stored, budget: _Budget) -> _Kept:
    """Two requests, and none the next time. A copy of an archive has its ids, often its times, and damage of its own."""
    name = (snapshot.place, item.object_id)
    told = (stored.length, stored.last_modified_ms)
    with _lock:
        kept = _kept.get(name)
    if kept is not None and kept.stored == told and kept.indexed:
        return kept
    reader = snapshot.view.objects.segments()
    tables = reader.open(item, stored.key)
    within = budget.take(tables.segment.index_range.length)
    if within:
        reader.filters(tables)
    made = _Kept(told, int(tables.segment.directory.groups["rows"].sum()), within)
    with _lock:
        _kept[name] = made
    return made
