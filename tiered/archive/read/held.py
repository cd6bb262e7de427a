"""A store of which some ranges are in memory: an object's tables are asked for once, however many readers look at them."""

from __future__ import annotations

from collections.abc import Callable

from tiered.errors import Corrupt
from tiered.provider.base import Fetched, Provider
from tiered.provider.wrap import Wrapped


class Held(Wrapped):
    """A store of which some ranges are in memory."""

    def __init__(self, inner: Provider, spend: Callable[[int], None]) -> None:
        super().__init__(inner)
        self._spend = spend
        self._ranges: dict[str, list[tuple[int, memoryview]]] = {}

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
        self._spend(end - start)
        data = memoryview(self.inner.get(key, start, end - start).data)
        if len(data) != end - start:
            raise Corrupt(
                "an object is shorter than its tables say",
                key=key, position=start, expected=end - start, found=len(data),
            )  # fmt: skip
        return data

    def forget(self, key: str) -> None:
        """Hold nothing of an object any more."""
        self._ranges.pop(key, None)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """From memory where it is held."""
        held = None if start is None or length is None else self._held(key, start, start + length)
        if held is None:
            self._spend(length or 0)
            return super().get(key, start, length)
        return Fetched(held, None, 0)

    def _held(self, key: str, start: int, end: int) -> memoryview | None:
        ranges = self._ranges.get(key, ())
        at = next(
            ((first, data) for first, data in ranges if first <= start and end <= first + len(data)), None
        )
        return None if at is None else at[1][start - at[0] : end - at[0]]
