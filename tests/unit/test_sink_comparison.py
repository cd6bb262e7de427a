"""Differences between an archive and a destination: each kind is found, counted once and named by its first offset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch, SinkPosition
from tiered.sink.comparison.base import ANOTHER_SINKS, Marks
from tiered.sink.comparison.comparing import SinkComparison, merged
from tiered.sink.comparison.content import content_of
from tiered.sink.comparison.found import TOTALS, Compared, SinkVerdict
from tiered.sink.comparison.holes import Holes
from tiered.sink.comparison.scope import QueueScope, SinkScope

Q = MessageQueue("T", 0)
Mark = tuple[int, int, int]
"""Offset, origin, content."""


def marks(rows: Sequence[Mark], queue: MessageQueue = Q) -> Marks:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    zero = np.zeros(len(rows), np.int64)
    return Marks(
        (queue,), zero, columns[:, 0], columns[:, 1].astype(np.uint64), columns[:, 2].astype(np.uint64)
    )


def message(offset: int) -> Mark:
    return offset, 1_000 + offset, 7 * offset


@dataclass
class Archive:
    """Messages of one queue; given out a few at a time. ``physical``: twice the offset."""

    offsets: Sequence[int]
    start: int = 0
    lost: Sequence[int] = ()

    def least(self, queue: MessageQueue) -> int:
        return self.start

    def between(self, queue: MessageQueue, first: int, end: int) -> Iterator[Marks]:
        found = [message(o) for o in self.offsets if first <= o < end]
        for at in range(0, len(found), 3):
            yield marks(found[at : at + 3])

    def replaced(self, queue: MessageQueue, offsets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.isin(offsets, self.lost)

    def before(self, queue: MessageQueue, physical: int) -> Iterator[Marks]:
        yield marks([message(o) for o in self.offsets if 2 * o < physical])


@dataclass
class There:
    """A destination. ``dead``: offsets in its place for dead letters."""

    rows: Sequence[Mark]
    ordered: bool = True
    late: bool = False
    dead: Sequence[int] = ()
    unreadable: str | None = None
    asked: list[Collection[MessageQueue]] = field(default_factory=list)

    def position(self) -> SinkPosition | None:
        return None

    def target(self, queue: MessageQueue) -> MessageQueue:
        return queue

    def lane(self, queue: MessageQueue) -> str:
        return ""

    def given(self, batch: SinkBatch) -> Marks:
        raise NotImplementedError

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        self.asked.append(set(queues))
        for at in range(0, len(self.rows), 4):
            yield marks(self.rows[at : at + 4])

    def buried(self) -> Iterator[Marks]:
        yield marks([message(o) for o in self.dead])

    def begins_late(self, queue: MessageQueue) -> bool:
        return self.late

    def unread(self) -> str | None:
        return self.unreadable

    def close(self) -> None: ...


def compared(
    there: There, *, end: int | None = 10, archive: Archive | None = None, window: int = 4, holes: int = 1_000,
    physical: int | None = None, from_first: bool = False,
) -> Compared:  # fmt: skip
    scope = SinkScope((QueueScope(Q, end, 10),), physical, from_first)
    made: Any = archive or Archive(range(10))
    return SinkComparison(made, there, scope, window=window, holes=Holes(holes)).run()


def counted(found: Compared) -> dict[str, int]:
    return {name: count for name, count in found.totals.items() if count}


def rows(*offsets: int) -> list[Mark]:
    return [message(offset) for offset in offsets]


WHOLE = rows(*range(10))


@pytest.mark.parametrize("window", [1, 3, 4, 100])
@pytest.mark.parametrize(
    ("there", "counts", "first"),
    [
        (WHOLE, {"same": 10}, None),
        (rows(0, 1, 2, 5, 6, 7, 8, 9), {"same": 8, "lost": 2}, ("lost", 3)),
        (rows(*range(6)), {"same": 6, "lost": 4}, ("lost", 6)),
        (rows(*range(3, 10)), {"same": 7, "lost": 3}, ("lost", 0)),
        ([], {"lost": 10}, ("lost", 0)),
        (rows(*range(5), 3, 4, *range(5, 10)), {"same": 10, "doubled": 2}, ("doubled", 3)),
        ([*WHOLE, *rows(2)], {"same": 10, "doubled": 1}, ("doubled", 2)),
        (rows(0, 1, 3, 2, *range(4, 10)), {"same": 10, "reordered": 1}, ("reordered", 2)),
        (rows(0, 1, 3, 2, 2, *range(4, 10)), {"same": 10, "reordered": 1, "doubled": 1}, ("doubled", 2)),
        (rows(*range(1, 10), 0), {"same": 10, "reordered": 1}, ("reordered", 0)),
        ([*rows(*range(4)), (4, 1_004, 1), *rows(*range(5, 10))], {"same": 9, "changed": 1}, ("changed", 4)),
        ([*WHOLE, *rows(10, 11)], {"same": 10, "ahead": 2}, None),
        ([(2, 5, 5), *WHOLE], {"same": 10, "others": 1}, None),
        ([*rows(0, 1), (2, 5, 5), *rows(*range(3, 10))], {"same": 9, "others": 1, "lost": 1}, ("lost", 2)),
    ],
)  # fmt: skip
def test_each_difference_is_found_once(
    there: list[Mark], counts: dict[str, int], first: tuple[str, int] | None, window: int
) -> None:
    found = compared(There(there), window=window)
    assert counted(found) == counts
    told = {(each.first, each.first_offset) for each in found.queues if each.different}
    assert told == (set() if first is None else {first})
    assert found.verdict == (SinkVerdict.SAME if first is None else SinkVerdict.DIFFERENT)


@pytest.mark.parametrize("window", [1, 100])
@pytest.mark.parametrize("late", [False, True])
def test_another_sinks_messages_are_counted_and_nothing_else(window: int, *, late: bool) -> None:
    """Before, among, ahead of ours and with the dead letters; of queues that are not compared as well."""
    theirs = [(offset, ANOTHER_SINKS, 7 * offset) for offset in range(3, 12)]
    there = There([*theirs[:4], *rows(*range(3, 8)), *theirs[4:]], late=late)
    found = compared(there, end=8, window=window)
    begins = {"not_comparable": 3} if late else {"lost": 3}
    assert counted(found) == {"same": 5, **begins, "other_sinks": 9}
    assert merged([found, compared(There(WHOLE))]).totals["other_sinks"] == 9
    elsewhere = There([])
    elsewhere.read = lambda queues: iter([marks(theirs, MessageQueue("Other", 0))])  # type: ignore[method-assign]
    elsewhere.buried = lambda: iter([marks([(2, ANOTHER_SINKS, 0)])])  # type: ignore[method-assign]
    assert counted(compared(elsewhere, end=4)) == {"lost": 4, "other_sinks": 10}


def test_what_lies_where_a_lost_tail_lay_has_its_id_and_is_no_double() -> None:
    there = [*rows(*range(7)), (7, 1_007, 1), *rows(7, 8, 9)]
    assert counted(compared(There(there), archive=Archive(range(10), lost=(7, 8)))) == {
        "same": 10,
        "others": 1,
    }
    assert compared(There(there)).totals["doubled"] == 1


@pytest.mark.parametrize("window", [1, 4, 100])
def test_what_is_not_there_on_one_side_for_a_reason_is_not_compared(window: int) -> None:
    trimmed = compared(There(WHOLE), archive=Archive(range(4, 10), 4), window=window)
    assert (counted(trimmed), trimmed.verdict) == ({"same": 6, "not_comparable": 4}, SinkVerdict.INCOMPLETE)
    late = compared(There(rows(*range(3, 10)), late=True), window=window)
    assert (counted(late), late.verdict) == ({"same": 7, "not_comparable": 3}, SinkVerdict.INCOMPLETE)
    now = compared(There(rows(*range(3, 10))), from_first=True, window=window)
    assert counted(now) == {"same": 7, "not_comparable": 3}
    nothing = compared(There([]), from_first=True, window=window)
    assert (counted(nothing), nothing.verdict) == ({"not_comparable": 10}, SinkVerdict.INCOMPLETE)


def test_a_message_that_the_archive_does_not_have_is_extra() -> None:
    """At a gap, or one that the sink's shape leaves out."""
    found = compared(There(WHOLE), archive=Archive([0, 1, 2, 4, 5, 6, 7, 8, 9]))
    assert counted(found) == {"same": 9, "extra": 1}
    assert (found.queues[0].first, found.queues[0].first_offset) == ("extra", 3)


def test_holes_of_the_archive_and_of_shapes_are_not_lost() -> None:
    even = [offset for offset in range(10) if offset % 2 == 0]
    assert counted(compared(There(rows(*even)), archive=Archive(even))) == {"same": 5}
    assert counted(compared(There(rows(0, 8)), archive=Archive(even))) == {"same": 2, "lost": 3}


def test_dead_letters_are_not_lost() -> None:
    found = compared(There(rows(0, 1, *range(3, 9)), dead=[2, 9, 5]))
    assert (counted(found), found.verdict) == ({"same": 8, "dead_letters": 2}, SinkVerdict.SAME)


def test_a_destination_without_order_has_none_that_is_wrong() -> None:
    found = compared(There(WHOLE[::-1], ordered=False))
    assert (counted(found), found.verdict) == ({"same": 10}, SinkVerdict.SAME)


def test_only_what_somebody_says_is_given_can_be_lost() -> None:
    assert counted(compared(There(rows(0, 1)), end=2)) == {"same": 2}
    assert counted(compared(There([]), end=None)) == {}
    assert counted(compared(There([]), end=None, physical=6)) == {"lost": 3}


def test_what_is_trimmed_is_not_still_to_be_given() -> None:
    queues = (QueueScope(Q, 4, 10), QueueScope(Q, None, 10, 7), QueueScope(Q, 2, 10, 9))
    assert SinkScope(queues, None, False).pending == 6 + 3 + 1


def test_too_many_holes_are_said() -> None:
    found = compared(There(WHOLE[::-2], ordered=False), holes=2, window=1)
    assert found.unread != ()
    assert found.verdict is SinkVerdict.DIFFERENT
    assert Holes(1).forgotten == set()


def test_what_cannot_be_read_is_not_the_same() -> None:
    found = compared(There(WHOLE, unreadable="one file is gone"))
    assert (found.verdict, found.unread) == (SinkVerdict.INCOMPLETE, ("one file is gone",))


def test_random_destinations_against_plain_counting() -> None:
    """Loss, doubles and late ones at random, in windows of any size, as a loop over all counts them."""
    random = np.random.default_rng(7)
    for _ in range(300):
        kept = [offset for offset in range(10) if random.random() < 0.8]
        for _ in range(int(random.integers(0, 4))):
            if kept:
                kept.insert(int(random.integers(0, len(kept) + 1)), int(random.choice(kept)))
        if kept and random.random() < 0.5:
            kept.insert(int(random.integers(0, len(kept))), kept.pop(int(random.integers(0, len(kept)))))
        seen: set[int] = set()
        wanted = dict.fromkeys(TOTALS, 0)
        for offset in kept:
            if offset in seen:
                wanted["doubled"] += 1
            elif seen and offset < max(seen):
                wanted["reordered"] += 1
            seen.add(offset)
        wanted |= {"same": len(seen), "lost": 10 - len(seen)}
        found = compared(There(rows(*kept)), window=int(random.integers(1, 12)))
        assert found.totals == wanted, kept


def test_parts_of_a_comparison_are_one() -> None:
    whole, part = compared(There(WHOLE)), compared(There(rows(0)))
    assert merged([whole, whole]).verdict is SinkVerdict.SAME
    both = merged([whole, part])
    assert (both.verdict, both.totals["same"], both.totals["lost"], both.compared_queues) == (
        "DIFFERENT",
        11,
        9,
        2,
    )
    trimmed = compared(There(WHOLE), archive=Archive(range(4, 10), 4))
    assert merged([whole, trimmed]).verdict is SinkVerdict.INCOMPLETE
    assert merged([part, trimmed]).verdict is SinkVerdict.DIFFERENT


def test_content_is_body_and_properties_in_any_order() -> None:
    same: Callable[..., int] = content_of
    assert same(b"x", [("a", "1"), ("b", "2")]) == same(b"x", [("b", "2"), ("a", "1")])
    others = {
        same(b"x", []),
        same(b"y", []),
        same(b"x", [("a", "1")]),
        same(b"x", [("a", "2")]),
        same(b"x", [("b", "1")]),
    }
    assert len(others) == 5
