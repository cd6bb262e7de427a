"""Messages that were not found where they should be: perhaps they come later. Ranges of queue offsets, and a bound of them."""

from __future__ import annotations

from bisect import bisect_right

from tiered.codec.types import Ints

MAX_HOLES = 100_000
"""Of all queues together."""


class Holes:
    """Of each queue, by its number, ascending ranges of offsets whose messages are missing so far."""

    def __init__(self, most: int = MAX_HOLES) -> None:
        self._most = most
        self._count = 0
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        self.forgotten: set[int] = set()
        """Queues that had too many: nothing is known of theirs any more."""

    def add(self, queue: int, ranges: Ints) -> None:
        """Rows of (first, end, …): all messages that the archive has in there are missing. Ascending, behind all before."""
        if not len(ranges) or queue in self.forgotten:
            return
        if self._count + len(ranges) > self._most:
            self._forget(queue)
            return
        self._ranges.setdefault(queue, []).extend(zip(*ranges[:, :2].T.tolist(), strict=True))
        self._count += len(ranges)

    def fill(self, queue: int, offset: int) -> bool:
        """A message has come: whether it was missing; it is not any more."""
        ranges = self._ranges.get(queue)
        if not ranges:
            return False
        at = bisect_right(ranges, (offset, 1 << 63)) - 1
        if at < 0 or not ranges[at][0] <= offset < ranges[at][1]:
            return False
        first, end = ranges[at]
        left = [part for part in ((first, offset), (offset + 1, end)) if part[0] < part[1]]
        ranges[at : at + 1] = left
        self._count += len(left) - 1
        if self._count > self._most:
            self._forget(queue)
        return True

    def first(self, queue: int) -> int | None:
        """The first offset that is still missing."""
        ranges = self._ranges.get(queue)
        return ranges[0][0] if ranges else None

    def _forget(self, queue: int) -> None:
        self._count -= len(self._ranges.pop(queue, ()))
        self.forgotten.add(queue)
