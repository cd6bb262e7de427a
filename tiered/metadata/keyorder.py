"""Many keys in order, in short lists: one more costs the moving of some thousand pointers, whatever their number.

A frozen copy shares the lists; the writer copies one before it changes it, if anybody shares it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import lt
from os.path import commonprefix

import numpy as np

_MANY = 4096
_LIST_KEYS = 1024
"""Of a list that was cut; one is cut again when it has twice as many."""
_ONE_BY_ONE = 128
"""Up to so many keys of one list are moved in or out one by one; more by going over the whole list."""


def sorted_keys(keys: list[bytes]) -> list[bytes]:
    """``keys``, ascending. Many are presorted as numbers, by eight bytes behind what some of them have in common: a look at two
    keys for each step of a search costs more than all that. What these bytes do not say, the sorting behind them does."""
    if all(map(lt, keys, islice(keys, 1, None))):
        return keys
    if len(keys) < _MANY:
        return sorted(keys)
    skipped = len(commonprefix(keys[:: len(keys) // 64]))  # noqa: RUF071 - of bytes, not of paths
    ends = np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)))
    starts = np.concatenate(([0], ends[:-1])) + skipped
    data = np.frombuffer(b"".join(keys), np.uint8)
    heads = np.zeros(len(keys), np.uint64)
    for place in range(8):
        at = starts + place
        heads = heads << np.uint64(8) | np.where(at < ends, data[np.minimum(at, len(data) - 1)], 0)
    found = list(map(keys.__getitem__, np.argsort(heads).tolist()))
    found.sort()
    return found


class KeyOrder:
    """Different keys, ascending. Not thread-safe."""

    __slots__ = ("_firsts", "_lists", "_own", "count")

    def __init__(self, ascending: Sequence[bytes] = ()) -> None:
        self._lists = [list(ascending[i : i + _LIST_KEYS]) for i in range(0, len(ascending), _LIST_KEYS)]
        self._firsts = [some[0] for some in self._lists]
        self._own = [True] * len(self._lists)
        self.count = len(ascending)

    def extend(self, ascending: list[bytes]) -> None:
        """Take keys above all that are there."""
        for at in range(0, len(ascending), _LIST_KEYS):
            some = ascending[at : at + _LIST_KEYS]
            self._lists.append(some)
            self._firsts.append(some[0])
            self._own.append(True)
        self.count += len(ascending)

    def frozen(self) -> KeyOrder:
        """This order as it is now, at the cost of a pointer for each list."""
        made = KeyOrder()
        made._lists, made._firsts, made.count = list(self._lists), list(self._firsts), self.count
        self._own = [False] * len(self._lists)
        made._own = list(self._own)
        return made

    def add(self, ascending: Sequence[bytes]) -> None:
        """Take keys none of which is there."""
        if not self._lists:
            self.extend(list(ascending))
            return
        for index, some in self._by_list(ascending):
            mine = self._mine(index)
            if len(some) <= _ONE_BY_ONE:
                for key in some:
                    insort(mine, key)
            else:
                mine += some
                mine.sort()
            self._firsts[index] = mine[0]
            if len(mine) >= 2 * _LIST_KEYS:
                self._cut(index)
        self.count += len(ascending)

    def remove(self, ascending: Sequence[bytes]) -> None:
        """Give up keys all of which are there."""
        for index, some in self._by_list(ascending):
            mine = self._mine(index)
            if len(some) <= _ONE_BY_ONE:
                for key in some:
                    del mine[bisect_left(mine, key)]
            else:
                gone = set(some)
                mine[:] = [key for key in mine if key not in gone]
            if mine:
                self._firsts[index] = mine[0]
            else:
                del self._lists[index], self._firsts[index], self._own[index]
        self.count -= len(ascending)

    def lists(self) -> Iterator[list[bytes]]:
        """All keys, list by list; not to be changed."""
        return iter(self._lists)

    def between(self, low: bytes, end: bytes | None) -> list[bytes]:
        """Keys in [low, end)."""
        return self.some(low, end, None)

    def some(self, low: bytes, end: bytes | None, most: int | None, *, last: bool = False) -> list[bytes]:
        """At most ``most`` keys in [low, end), ascending: the first ones, or the ``last`` ones."""
        if not self._lists or (end is not None and end <= low):
            return []
        first = max(0, bisect_right(self._firsts, low) - 1)
        behind = len(self._lists) if end is None else bisect_left(self._firsts, end)
        found: list[bytes] = []
        for index in reversed(range(first, behind)) if last else range(first, behind):
            some = self._lists[index]
            start = bisect_left(some, low) if index == first else 0
            stop = len(some) if end is None or index < behind - 1 else bisect_left(some, end)
            part = some[start:stop]
            found = part + found if last else found + part
            if most is not None and len(found) >= most:
                return found[-most:] if last else found[:most]
        return found

    def _by_list(self, ascending: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
        """Index of a list and those of ``ascending`` that belong into it; the last lists first, so that the indices of those
        before them stay what they are."""
        end = len(ascending)
        while end:
            index = max(0, bisect_right(self._firsts, ascending[end - 1]) - 1)
            start = bisect_left(ascending, self._firsts[index], 0, end) if index else 0
            yield index, ascending[start:end]
            end = start

    def _mine(self, index: int) -> list[bytes]:
        if not self._own[index]:
            self._lists[index], self._own[index] = list(self._lists[index]), True
        return self._lists[index]

    def _cut(self, index: int) -> None:
        whole = self._lists[index]
        parts = [whole[at : at + _LIST_KEYS] for at in range(0, len(whole), _LIST_KEYS)]
        self._lists[index : index + 1] = parts
        self._firsts[index : index + 1] = [part[0] for part in parts]
        self._own[index : index + 1] = [True] * len(parts)
