"""One page of what a verb lists: at most so many rows, and where the next page begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from tiered.text.output import Output

Item = TypeVar("Item")


class Paged(Generic[Item]):
    """The first ``limit`` of ``items``, or all (0); one after the other, and once."""

    def __init__(self, items: Iterator[Item], limit: int) -> None:
        self._items = items
        self._limit = limit
        self._last: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        for item in islice(self._items, self._limit or None):
            self._last[:] = [item]
            yield item

    def note_more(self, out: Output, what: str, name: Callable[[Item], object]) -> None:
        """Once the page was shown: say that there are more, if there are, and behind which one the next page begins."""
        if self._limit and self._last and next(self._items, None) is not None:
            out.note(f"there are more {what}: --after {name(self._last[0])}")
