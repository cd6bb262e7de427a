"""Ranges of a walk over objects, asked for before they are wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from tiered.archive.read.held import Held, Range
from tiered.provider.base import Provider


class Coming(Held):
    """A store of which the ranges that are expected next are under way, ``ahead`` at once, in threads of its own.

    It is for one thread. With ``ahead`` 1 there are no others, and ``spend``, which hears of bytes before they are asked for,
    is called by that thread alone. Memory: what is held, and ``ahead`` ranges.
    """

    def __init__(self, inner: Provider, spend: Callable[[int], None], ahead: int) -> None:
        super().__init__(inner, spend)
        self._ahead = ahead
        self._pool: ThreadPoolExecutor | None = None
        self._objects: Iterator[Range] = iter(())
        self._next: Range | None = None
        self._at_hand = ""
        self._parts: Iterator[Range] | None = None  # of the object at hand; None: not known yet
        self._under_way: deque[tuple[Range, Future[memoryview]]] = deque()

    def expect(self, objects: Iterator[Range]) -> None:
        """What will be asked for first of each object, in this order; some may be left out. Behind one that does not begin with
        its object more of this object is expected. It takes the place of what was expected before."""
        while self._under_way:
            self._under_way.popleft()[1].cancel()
        self._objects, self._parts = objects, None
        self._next = next(objects, None) if self._ahead > 1 else None

    def begin(self, first: Range) -> None:
        """The object at hand is the one that this is asked for first of. Until its other parts are known, nothing is asked for
        of those behind it."""
        self._at_hand, self._parts = first[0], None
        if self._ahead < 2:
            return
        while self._under_way and self._under_way[0][0] != first:
            self._under_way.popleft()[1].cancel()  # it was left out
        if not self._under_way:
            if self._next == first:
                self._next = next(self._objects, None)
            self._submit(first)

    def expect_parts(self, parts: Iterable[Range]) -> None:
        """All that will still be asked for of the object at hand, in this order."""
        self._parts = (part for part in parts if self._held(*part) is None)

    def read(self, key: str, start: int, end: int) -> memoryview:
        """See ``Held.read``."""
        held = self._held(key, start, end)
        if held is not None:
            return held
        if self._parts is not None:
            self._fill(self._parts)
        if self._under_way and self._under_way[0][0] == (key, start, end):
            return self._under_way.popleft()[1].result()
        return self._ask((key, start, end))

    def end(self) -> None:
        """Expect nothing more. The threads end; the store stays open."""
        self.expect(iter(()))
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _fill(self, parts: Iterator[Range]) -> None:
        while self._ahead > 1 and len(self._under_way) < self._ahead:
            part = next(parts, None)
            if part is None:
                if self._more_follows():
                    return
                part, self._next = self._next, next(self._objects, None)
            if part is None:
                return
            self._submit(part)

    def _more_follows(self) -> bool:
        """Whether what was asked for last is the first range of a later object and not all of it, as those of large objects:
        its parts come next, and are not known yet. What is under way is read in the order in which it was asked for."""
        if not self._under_way:
            return False
        key, start, _ = self._under_way[-1][0]
        return key != self._at_hand and start > 0

    def _submit(self, wanted: Range) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._ahead, "ahead")
        self._under_way.append((wanted, self._pool.submit(self._ask, wanted)))
