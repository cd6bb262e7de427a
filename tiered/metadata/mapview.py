"""Reads of a map in memory, as it is or as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from tiered.codec.format.pairs import Columns
from tiered.metadata.keyorder import KeyOrder
from tiered.metadata.mapformat import BLOCK_PAIRS
from tiered.metadata.memory import in_chunks
from tiered.metadata.prefix import prefix_end


class MapView:
    """Keys in order, and their values as they were when it was made: ``kept`` has those that were changed since, ``None`` for
    a key that was not there."""

    def __init__(
        self, values: dict[bytes, bytes], order: KeyOrder, applied: bytes | None, lock: threading.Lock
    ) -> None:
        self._values, self._order, self._applied, self._lock = values, order, applied, lock
        self.kept: dict[bytes, bytes | None] = {}

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            return self._found(keys)

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """See ``MetadataView``. On a store that is written meanwhile, each pair is one that was there at some moment."""
        low, end = prefix, prefix_end(prefix)

        def look(resume: bytes | None, inclusive: bool, most: int) -> list[tuple[bytes, bytes]]:
            first, behind = low, end
            if resume is not None:
                edge = resume if inclusive != reverse else resume + b"\0"
                if not reverse:
                    first = max(low, edge)
                elif behind is None or edge < behind:
                    behind = edge
            with self._lock:
                keys = self._in_order().some(first, behind, most, last=reverse)
                pairs = [(k, v) for k, v in zip(keys, self._found(keys), strict=True) if v is not None]
            return pairs[::-1] if reverse else pairs

        return in_chunks(look, start)

    def applied(self) -> bytes | None:
        with self._lock:
            return self._applied

    def blocks(self) -> Iterator[Columns]:
        """All keys and values, some thousand at a time."""
        keys: list[bytes] = []
        for some in self._order.lists():
            keys += some
            if len(keys) >= BLOCK_PAIRS:
                yield self._block(keys)
                keys = []
        if keys:
            yield self._block(keys)

    def _block(self, keys: list[bytes]) -> Columns:
        with self._lock:
            return keys, [value for value in self._found(keys) if value is not None]

    def _found(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self.kept:
            return list(map(self._values.get, keys))
        kept, values = self.kept, self._values
        return [kept[key] if key in kept else values.get(key) for key in keys]

    def _in_order(self) -> KeyOrder:
        return self._order
