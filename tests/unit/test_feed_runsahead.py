"""Short runs of an archive are read before they are wanted, a few at once, and given in their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from tiered.archive.read.flatfile import Stretch
from tiered.errors import Corrupt
from tiered.feed.base import Follow
from tiered.feed.runsahead import QueueToRead, in_turn
from tiered.model import QueueOffset


class Run(NamedTuple):
    """Of so many messages, in as many stretches."""

    start: int
    messages: int
    block_count: int = 1


class File:
    """A queue of runs. ``read``: by which thread each run was read; ``meet``: as many readers as it wants have to be there."""

    min_offset = 0

    def __init__(self, runs: list[Run], *, meet: int = 1, damaged: int | None = None) -> None:
        self._runs, self._damaged = runs, damaged
        self._barrier = threading.Barrier(meet)
        self.read: dict[int, str] = {}

    def runs(self, offset: int) -> Iterator[Run]:
        return (run for run in self._runs if run.start + run.messages > offset)

    def read_run(self, run: Run, offset: int) -> Iterator[Stretch]:
        self.read[run.start] = threading.current_thread().name
        self._barrier.wait(10)
        nothing = np.zeros(1, np.int64)
        for at in range(max(run.start, offset), run.start + run.messages):
            if at == self._damaged:
                raise Corrupt("damaged")
            yield Stretch(memoryview(b""), nothing, nothing, np.array([at]), QueueOffset(at + 1))


def queue(file: File, follow: Follow = Follow()) -> QueueToRead:  # noqa: B008 - it is frozen
    return QueueToRead(cast("Any", file), follow, False)


def offsets(queues: list[QueueToRead], ahead: int) -> Iterator[int | None]:
    """Each message's, and ``None`` for the end of a queue."""
    for each, stretches in in_turn(iter(queues), ahead):
        yield from (int(stretch.queue_offsets[0]) for stretch in stretches)
        if each.run is None:
            yield None


@pytest.mark.parametrize("ahead", [1, 2, 3, 7, 64])
def test_all_come_in_their_order(ahead: int) -> None:
    first = queue(File([Run(2 * n, 2, 1 + 4 * (n % 3)) for n in range(10)]), Follow(3))
    second, none = queue(File([Run(5, 2), Run(9, 1)])), queue(File([]))
    assert list(offsets([first, none, second], ahead)) == [*range(3, 20), None, None, 5, 6, 9, None]


def test_short_ones_are_under_way_at_once_of_later_queues_too() -> None:
    """Each reading waits for two others: one after another none would end."""
    file = File([Run(0, 1), Run(1, 1)], meet=3)
    other = File([Run(0, 1)])
    other._barrier = file._barrier
    assert list(offsets([queue(file), queue(other)], 4)) == [0, 1, None, 0, None]


def test_no_more_than_so_many_are_under_way() -> None:
    file = File([Run(at, 1) for at in range(20)])
    given = offsets([queue(file)], 4)
    next(given)
    assert len(file.read) <= 4
    given.close()
    assert len(file.read) <= 4, "who drops it has nothing more read"


def test_long_ones_are_read_when_it_is_their_turn_by_who_wants_them() -> None:
    file = File([Run(0, 2), Run(2, 2, block_count=500), Run(4, 2)])
    assert list(offsets([queue(file)], 4)) == [*range(6), None]
    assert file.read[2] == threading.current_thread().name
    assert file.read[4] != threading.current_thread().name


@pytest.mark.parametrize("ahead", [1, 4])
def test_what_lies_before_damage_is_given(ahead: int) -> None:
    given = offsets([queue(File([Run(0, 2), Run(2, 4), Run(6, 2)], damaged=4))], ahead)
    assert [next(given) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(Corrupt):
        next(given)
