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
"""Most requests at once."""
ONE_BY_ONE = 4
"""So many are read one after another first: a reader that keeps up finds one or two, and asks for nothing that is not there."""
AHEAD_BYTES = 64 * 1024 * 1024
"""What the answers that wait may hold together, taking the largest so far for the size of each."""


def width(found: int, largest_bytes: int = 0) -> int:
    """How many to ask for at once when ``found`` in a row were there: what is asked in vain at the end stays in proportion."""
    fitting = AHEAD_BYTES // largest_bytes if largest_bytes else MOST_AHEAD
    return max(1, min(MOST_AHEAD, fitting, found - ONE_BY_ONE + 1))


def read_numbers(
    read: Callable[[int], T | None], first: int, last: int | None, size_of: Callable[[T], int]
) -> Iterator[T]:
    """``read`` of ``first``, ``first + 1``, … up to ``last`` (inclusive) or the first that is ``None``, in order.

    The ``None`` that ends it answers a question that was put when all before it were in hand, as if one had been read after the
    other. An error is raised when its number is reached. ``size_of``: bytes that an answer holds in memory.
    """
    waiting: deque[tuple[int, int, Future[T | None]]] = (
        deque()
    )  # number, the last one in hand when it was asked for
    found = largest = 0
    number = following = first
    with ExitStack() as stack:
        pool: ThreadPoolExecutor | None = None
        while last is None or number <= last:
            wide = width(found, largest)
            if wide == 1 and not waiting:
                value = read(number)
            else:
                if pool is None:
                    pool = ThreadPoolExecutor(MOST_AHEAD, "ahead")
                    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
                following = max(following, number)
                while len(waiting) < wide and (last is None or following <= last):
                    waiting.append((following, number, pool.submit(read, following)))
                    following += 1
                asked, then, future = waiting.popleft()
                value = future.result()
                if value is None and then < asked:
                    for _, _, later in waiting:
                        later.cancel()
                    waiting.clear()
                    following, found = number + 1, 0
                    value = read(number)
            if value is None:
                return
            found, largest = found + 1, max(largest, size_of(value))
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
