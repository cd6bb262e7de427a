"""Numbers read ahead: how many at once, in which order they are given, and what a listing may say of them."""

from __future__ import annotations

import random
import threading
import time

import pytest

from tiered.archive.ahead import (
    AHEAD_BYTES,
    LIST_AFTER,
    MOST_AHEAD,
    MOST_KNOWN,
    NAMES_AT_ONCE,
    read_numbers,
)

WAIT_SECONDS = 60


class Numbered:
    """Numbers below ``end``, how many were asked for at once, and which were asked for in vain.

    ``paged``: from a little behind each page of the listing on, a number waits until that page was given.
    ``together``: these are answered when all of them were asked for.
    """

    def __init__(
        self, end: int, seconds: float = 0.0, *, paged: bool = False, together: range = range(0)
    ) -> None:
        self.end = end
        self._seconds = seconds
        self._paged = paged
        self._together = together
        self._barrier = threading.Barrier(max(1, len(together)))
        self._changed = threading.Condition()
        self._now = self.most = 0
        self.vain: list[int] = []
        self.listed: list[int] = []

    def read(self, number: int) -> int | None:
        pages = (number + 10) // NAMES_AT_ONCE + 1 if self._paged and number > LIST_AFTER + MOST_AHEAD else 0
        with self._changed:
            self._now += 1
            self.most = max(self.most, self._now)
            assert self._changed.wait_for(lambda: len(self.listed) >= pages, WAIT_SECONDS)
        if number in self._together:
            self._barrier.wait(WAIT_SECONDS)
        time.sleep(self._seconds)
        with self._changed:
            self._now -= 1
            if number >= self.end:
                self.vain.append(number)
        return number if number < self.end else None

    def named(self, first: int) -> int:
        with self._changed:
            self.listed.append(first)
            self._changed.notify_all()
        return min(self.end, first + NAMES_AT_ONCE) - 1


def test_what_is_listed_is_asked_for_at_once_and_nothing_beyond_it_in_vain() -> None:
    numbers = Numbered(2_500, paged=True, together=range(1_500, 1_500 + 2 * MOST_AHEAD))
    assert list(read_numbers(numbers.read, 0, None, lambda value: 1, numbers.named)) == list(range(2_500))
    assert MOST_AHEAD < numbers.most <= MOST_KNOWN
    assert numbers.vain == [2_500], "which proves the end"
    assert len(numbers.listed) == 3, "a page ends where it is short"


def test_a_short_row_is_not_listed() -> None:
    numbers = Numbered(LIST_AFTER)
    assert list(read_numbers(numbers.read, 0, None, lambda value: 1, numbers.named)) == list(
        range(LIST_AFTER)
    )
    assert numbers.listed == []


@pytest.mark.parametrize("lie", [-1_000, -1, 0, 70, 5_000])
def test_a_listing_that_errs_costs_requests_and_nothing_else(lie: int) -> None:
    """It lags, or names what is gone: each number comes once, in order, and the end is what reading says."""
    numbers = Numbered(300, 0.001)
    assert list(
        read_numbers(numbers.read, 0, None, lambda value: 1, lambda first: max(first, 300 + lie) - 1)
    ) == list(range(300))
    assert numbers.most <= MOST_KNOWN
    assert len(numbers.vain) <= MOST_KNOWN + 1


def test_answers_that_come_in_another_order_are_given_in_theirs() -> None:
    chance, lock = random.Random(5), threading.Lock()

    def read(number: int) -> int | None:
        with lock:
            pause = chance.random() / 200
        time.sleep(pause)
        return number if number < 400 else None

    assert list(read_numbers(read, 7, None, lambda value: 1, lambda first: 399)) == list(range(7, 400))


def test_known_commits_do_not_hold_more_bytes_than_there_is_room_for() -> None:
    numbers = Numbered(200, 0.001)
    got = list(read_numbers(numbers.read, 0, 199, lambda value: AHEAD_BYTES // 8))
    assert got == list(range(200))
    assert numbers.most <= 8
