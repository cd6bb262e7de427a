"""The ordered map in memory: a dict and its keys in order. For tests, one-shot commands and small
archives."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from tiered.metadata.base import StoreSize
from tiered.metadata.prefix import prefix_end

_CHUNK, _FIRST_CHUNK = 512, 4
"""Pairs an iterator takes per look, so that a writer is never held up by a slow reader; few at first, for most want one."""

_INSERT_ONE_BY_ONE = 64
"""Up to this many new keys are inserted in place; more are appended and sorted (which merges runs)."""


def in_chunks(
    look: Callable[[bytes | None, bool, int], list[tuple[bytes, bytes]]], start: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs from ``start`` on, by looks that each take at most so many pairs from a key on, ``inclusive`` or behind it."""
    resume, inclusive, most = start, True, _FIRST_CHUNK
    while True:
        chunk = look(resume, inclusive, most)
        yield from chunk
        if len(chunk) < most:
            return
        resume, inclusive, most = chunk[-1][0], False, min(8 * most, _CHUNK)


class MemoryView:
    """Reads of a dict and its ordered keys; frozen unless a subclass changes them under the lock."""

    def __init__(self, values: dict[bytes, bytes], order: list[bytes], applied: bytes | None) -> None:
        self._values = values
        self._order = order
        self._applied = applied
        self._lock = threading.Lock()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            return list(map(self._values.get, keys))

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """See ``MetadataView``. On a store that is written meanwhile, each pair is one that was there at some
        moment."""
        return in_chunks(
            lambda resume, inclusive, most: self._chunk(prefix, resume, inclusive, reverse, most), start
        )

    def _chunk(
        self, prefix: bytes, start: bytes | None, inclusive: bool, reverse: bool, most: int
    ) -> list[tuple[bytes, bytes]]:
        with self._lock:
            order, end = self._order, prefix_end(prefix)
            low, high = bisect_left(order, prefix), len(order) if end is None else bisect_left(order, end)
            if start is not None and reverse:
                high = min(high, bisect_right(order, start) if inclusive else bisect_left(order, start))
            elif start is not None:
                low = max(low, bisect_left(order, start) if inclusive else bisect_right(order, start))
            if reverse:
                keys = order[max(low, high - most) : max(low, high)][::-1]
            else:
                keys = order[low : min(high, low + most)]
            return [(k, self._values[k]) for k in keys]

    def applied(self) -> bytes | None:
        with self._lock:
            return self._applied


class MemoryStore(MemoryView):
    """A ``MetadataStore`` in memory. A snapshot costs nothing until the next write, which then copies the
    dict."""

    def __init__(self) -> None:
        super().__init__({}, [], None)
        self._shared = False
        self.cleared: str | None = None

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        applied: bytes | None = None,
    ) -> None:
        """See ``MetadataStore``; durable for as long as the process."""
        pairs = [(bytes(k), bytes(v)) for k, v in puts]
        gone = [bytes(k) for k in deletes]
        with self._lock:
            self._own()
            self._change(pairs, gone)
            if applied is not None:
                self._applied = applied

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]]) -> None:
        """See ``MetadataStore``."""
        for batch in batches:
            self.put_many(batch)

    def _own(self) -> None:
        """Leave what a snapshot shares alone: copy before the first write after it."""
        if self._shared:
            self._values, self._order, self._shared = dict(self._values), list(self._order), False

    def _change(self, pairs: list[tuple[bytes, bytes]], gone: list[bytes]) -> None:
        removed = {k for k in gone if self._values.pop(k, None) is not None}
        if removed:
            self._order = [k for k in self._order if k not in removed]
        fresh = {k for k, _ in pairs if k not in self._values}
        self._values.update(pairs)
        if len(fresh) <= _INSERT_ONE_BY_ONE:
            for key in fresh:
                insort(self._order, key)
        else:
            self._order.extend(fresh)
            self._order.sort()

    def snapshot(self) -> MemoryView:
        """A frozen view of now."""
        with self._lock:
            self._shared = True
            return MemoryView(self._values, self._order, self._applied)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._values, self._order, self._applied, self._shared = {}, [], None, False

    def close(self) -> None:
        """Nothing to release."""


class MemoryRedoStore(MemoryStore):
    """A ``RedoStore`` in memory."""

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[tuple[bytes, bytes]] = (),
        applied: bytes | None = None,
    ) -> None:
        """See ``RedoStore``."""
        pairs, gone = list(puts), list(deletes)
        with self._lock:
            for first, end in ranges:
                gone += self._order[bisect_left(self._order, first) : bisect_left(self._order, end)]
        super().put_many(pairs, gone, applied=applied)

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]], *, applied: bytes | None = None) -> None:
        """See ``RedoStore``."""
        self.put_many([pair for batch in batches for pair in batch], applied=applied)

    def flush(self) -> None:
        """There is no disk."""

    def flushed(self) -> bytes | None:
        """All of it, for as long as the process."""
        return self.applied()

    def reopen(self) -> None:
        """Nothing fails."""

    def size(self) -> StoreSize:
        """See ``RedoStore``."""
        with self._lock:
            return StoreSize(len(self._values), sum(len(k) + len(v) for k, v in self._values.items()))
