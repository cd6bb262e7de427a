"""A store of which some ranges are in memory: an object's tables are asked for once, however many readers look at them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tiered.errors import Corrupt
from tiered.provider.base import Fetched, Provider
from tiered.provider.wrap import Wrapped

Range = tuple[str, int, int]
"""Key, position of the first byte, and of the one behind the last. Or what ``all_of`` says."""


def all_of(key: str, about: int) -> Range:
    """Everything under a key, of which the listing says ``about`` how many bytes it has: encrypted commits have fewer."""
    return key, -1, about


class Held(Wrapped):
    """A store of which some ranges are in memory. One range of each object may be kept for longer than the others, the newest
    ``kept_bytes`` of all. Several threads may ask, each for objects of its own."""

    def __init__(self, inner: Provider, spend: Callable[[int], None], *, kept_bytes: int = 0) -> None:
        super().__init__(inner)
        self._spend = spend
        self._ranges: dict[str, list[tuple[int, memoryview]]] = {}
        self._kept: dict[str, tuple[int, memoryview]] = {}
        self._kept_bytes, self._room = kept_bytes, threading.Lock()

    def fetch(self, key: str, start: int, end: int) -> memoryview:
        """Bytes of an object, in one request unless they are held already; held from then on."""
        held = self._held(key, start, end)
        if held is None:
            held = self.read(key, start, end)
            self._ranges.setdefault(key, []).append((start, held))
        return held

    def read(self, key: str, start: int, end: int) -> memoryview:
        """Bytes of an object, which are not held afterwards unless they were before. ``Corrupt`` if there are fewer."""
        held = self._held(key, start, end)
        if held is not None:
            return held
        return self._ask((key, start, end))

    def keep(self, key: str, start: int, end: int) -> None:
        """Hold bytes of an object as ``fetch`` does, and beyond ``forget`` while there is room."""
        held = self.fetch(key, start, end)
        with self._room:
            first, data = self._kept.pop(key, (0, memoryview(b"")))
            if not first <= start <= end <= first + len(data):
                first, data = (
                    start,
                    memoryview(bytes(held)),
                )  # a copy: it may be a small part of what was fetched
            self._kept[key] = first, data
            while sum(len(kept) for _, kept in self._kept.values()) > self._kept_bytes:
                del self._kept[next(iter(self._kept))]

    def forget(self, key: str) -> None:
        """Hold nothing of an object any more but what is kept."""
        self._ranges.pop(key, None)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """From memory where it is held."""
        held = None if start is None or length is None else self._held(key, start, start + length)
        if held is None:
            self._spend(length or 0)
            return super().get(key, start, length)
        return Fetched(held, None, 0)

    def _ask(self, wanted: Range) -> memoryview:
        key, start, end = wanted
        if start < 0:
            self._spend(end)
            return memoryview(self.inner.get(key).data)
        self._spend(end - start)
        data = memoryview(self.inner.get(key, start, end - start).data)
        if len(data) != end - start:
            raise Corrupt(
                "an object is shorter than its tables say",
                key=key, position=start, expected=end - start, found=len(data),
            )  # fmt: skip
        return data

    def _held(self, key: str, start: int, end: int) -> memoryview | None:
        kept = self._kept.get(key)
        ranges = [*self._ranges.get(key, ()), *([] if kept is None else [kept])]
        pieces: list[memoryview] = []
        while start < end:  # nearly always one range has it all
            at = next((r for r in ranges if r[0] <= start < r[0] + len(r[1])), None)
            if at is None:
                return None
            pieces.append(at[1][start - at[0] : end - at[0]])
            start += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
