"""Values asked for ahead, in order: a few requests at once instead of one after another, and little beyond the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

T = TypeVar("T")
N = TypeVar("N")

MOST_AHEAD = 32
"""Most requests at once, where nobody knows how many there are."""
MOST_KNOWN = 128
"""Most requests at once for what is known to be there, or was listed."""
ONE_BY_ONE = 4
"""So many are read one after another first: a reader that keeps up finds one or two, and asks for nothing that is not there."""
LIST_AFTER = 32
"""When more in a row were there, a listing is asked how many there are: it costs as much as twelve GETs at most stores."""
NAMES_AT_ONCE = 1_000
"""A page of a listing: a shorter one is the last."""
AHEAD_BYTES = 64 * 1024 * 1024
"""What the answers that wait may hold together, taking the largest so far for the size of each."""


def width(found: int, largest_bytes: int = 0) -> int:
    """How many to ask for at once when ``found`` in a row were there: what is asked in vain at the end stays in proportion."""
    fitting = AHEAD_BYTES // largest_bytes if largest_bytes else MOST_AHEAD
    return max(1, min(MOST_AHEAD, fitting, found - ONE_BY_ONE + 1))


def _known_width(found: int, largest_bytes: int, known: int) -> int:
    """The same for what is known to be there, ``known`` of them: the first tells how large they are."""
    fitting = AHEAD_BYTES // largest_bytes if largest_bytes else 1
    return max(1, min(MOST_KNOWN, fitting, 4 * found, known))


class _Listed:
    """How far a listing says that numbers go, asked for beside what is read. Only a hint: what is there a GET proves."""

    def __init__(self, named: Callable[[int], int] | None, last: int) -> None:
        self.last = last
        self._named = named
        self._asked: tuple[int, Future[int]] | None = None

    def look(self, pool: ThreadPoolExecutor, number: int, found: int) -> None:
        """Take an answer that has come; ask, where ``found`` in a row were there and what is known ends soon."""
        if self._asked is not None:
            asked, answer = self._asked
            if answer.done():
                last, self._asked = answer.result(), None
                self.last = max(self.last, last)
                if last < asked + NAMES_AT_ONCE - 1:
                    self._named = None
        elif self._named is not None and found > LIST_AFTER and number + MOST_KNOWN > self.last:
            asked = max(number, self.last + 1)
            self._asked = asked, pool.submit(self._named, asked)


def read_numbers(
    read: Callable[[int], T | None],
    first: int,
    last: int | None,
    size_of: Callable[[T], int],
    named: Callable[[int], int] | None = None,
) -> Iterator[T]:
    """``read`` of ``first``, ``first + 1``, … up to ``last`` (inclusive) or the first that is ``None``, in order.

    The ``None`` that ends it answers a question that was put when all before it were in hand, as if one had been read after the
    other. An error is raised when its number is reached. ``size_of``: bytes that an answer holds in memory. ``named``: the last
    of the numbers that a listing shows in a row from this one on; wrong answers cost requests or time, and nothing else.
    """
    waiting: deque[tuple[int, int, Future[T | None]]] = (
        deque()
    )  # number, the last one in hand when it was asked for
    found = beyond = largest = 0  # in a row; of these, beyond what was known
    number = following = first
    listed = _Listed(named if last is None else None, first - 1 if last is None else last)
    with ExitStack() as stack:
        pool: ThreadPoolExecutor | None = None
        while last is None or number <= last:
            known = listed.last - number + 1
            wide = _known_width(found, largest, known) if known > 0 else width(beyond, largest)
            if wide == 1 and not waiting:
                value = read(number)
            else:
                if pool is None:
                    pool = ThreadPoolExecutor(MOST_KNOWN, "ahead")
                    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
                following = max(following, number)
                while len(waiting) < wide and (last is None or following <= last):
                    waiting.append((following, number, pool.submit(read, following)))
                    following += 1
                listed.look(pool, number, found)
                asked, then, future = waiting.popleft()
                value = future.result()
                if value is None and then < asked:
                    for _, _, later in waiting:
                        later.cancel()
                    waiting.clear()
                    following, found, beyond = number + 1, 0, 0
                    value = read(number)
            if value is None:
                return
            found, largest = found + 1, max(largest, size_of(value))
            beyond = beyond + 1 if known <= 0 else 0
            number += 1
            yield value


def read_each(read: Callable[[N], T], items: Sequence[N], ahead: int) -> Iterator[T]:
    """``read`` of each item, in order, with up to ``ahead`` of them under way."""
    if len(items) < 2 or ahead < 2:
        yield from map(read, items)
        return
    with ThreadPoolExecutor(min(ahead, len(items)), "ahead") as pool:
        waiting: deque[Future[T]] = deque()
        rest = iter(items)
        try:
            for item in rest:
                waiting.append(pool.submit(read, item))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
