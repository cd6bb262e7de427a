"""The rule of replay: nothing that a group was skipped over is forgotten, whenever it is looked at."""

from __future__ import annotations

import random

import pytest

from tiered.replay.base import GroupPosition
from tiered.replay.rule import Aging, judge, without


def test_a_group_that_reads_in_time_is_owed_nothing() -> None:
    known, owed = judge(None, 100, 0)
    assert (known, owed) == (GroupPosition(100, 100, 0), None)
    known, owed = judge(known, 300, 100, aged=100)
    assert (known, owed) == (GroupPosition(300, 100, 100), None)


def test_a_minimum_that_passes_a_position_makes_a_debt_once() -> None:
    known, owed = judge(GroupPosition(100, 100, 0), 100, 250, aged=100)
    assert owed == range(100, 250)
    assert known == GroupPosition(100, 250, 250)
    assert judge(known, 100, 250, aged=100) == (known, None)
    assert judge(known, 100, 300, aged=100)[1] == range(250, 300), "only what is new"
    assert judge(known, 250, 250, aged=100)[1] is None, "the broker moved the group by itself"


def test_a_position_that_jumped_before_the_minimum_shows_it_is_still_owed() -> None:
    """The broker has deleted up to 500 and skipped there; its minimum still says 100. Later it says 500."""
    known, owed = judge(GroupPosition(100, 100, 100), 520, 100, aged=100)
    assert owed is None
    known, owed = judge(known, 540, 500, aged=100)
    assert owed == range(100, 500)
    assert judge(known, 560, 500, aged=520) == (GroupPosition(560, 520, 500), None)


def test_a_group_seen_for_the_first_time_far_behind() -> None:
    assert judge(None, 10, 90) == (GroupPosition(10, 90, 90), range(10, 90))


def test_a_reset_by_an_operator_wants_everything_from_there() -> None:
    known = GroupPosition(1000, 900, 200)
    assert judge(known, 50, 200, aged=990) == (GroupPosition(50, 200, 200), range(50, 200))
    assert judge(known, 300, 200, aged=990) == (GroupPosition(300, 300, 200), None), (
        "the broker has all of it"
    )


def test_a_topic_made_anew_begins_anew() -> None:
    assert judge(GroupPosition(1000, 900, 200), 0, 0, aged=900) == (GroupPosition(0, 0, 0), None)


@pytest.mark.parametrize(
    ("wanted", "owed", "left"),
    [
        (range(10, 20), [], [range(10, 20)]),
        (range(10, 20), [range(0, 10), range(20, 30)], [range(10, 20)]),
        (range(10, 20), [range(0, 12), range(15, 16), range(18, 40)], [range(12, 15), range(16, 18)]),
        (range(10, 20), [range(5, 25)], []),
        (range(10, 20), [range(14, 16), range(12, 15)], [range(10, 12), range(16, 20)]),
    ],
)
def test_what_is_owed_already_is_not_owed_twice(wanted: range, owed: list[range], left: list[range]) -> None:
    assert without(wanted, owed) == left


def test_aging_tells_the_newest_position_that_is_old_enough() -> None:
    aging = Aging()
    assert aging.note(0, 10, 20) is None
    assert aging.note(5, 10, 20) is None
    assert aging.note(15, 30, 20) is None
    assert aging.note(20, 40, 20) == 10
    assert aging.note(34, 50, 20) == 10
    assert aging.note(35, 50, 20) == 30
    assert aging.note(90, 50, 20) == 50
    assert aging.note(91, 7, 20) is None, "a position that goes back forgets what was before"
    assert aging.note(111, 7, 20) == 7


class Model:
    """One queue of a broker: files go first, the minimum follows later; a group reads, and is skipped over what is gone."""

    def __init__(self, chance: random.Random, lag: int) -> None:
        self.chance = chance
        self.end = 500
        self.gone = 0
        self.minimum = 0
        self.position = 0
        self.handed: list[int] = []
        self.skipped: list[int] = []
        self._lag = lag
        self._due: list[tuple[int, int]] = []

    def tick(self, now: int) -> None:
        """One second."""
        self.end += self.chance.randrange(30)
        if self.chance.random() < 0.1:
            self.gone = min(self.end, self.gone + self.chance.randrange(200))
            self._due.append((now + self.chance.randrange(self._lag + 1), self.gone))
        self.minimum = max([self.minimum, *(gone for at, gone in self._due if at <= now)])
        if self.chance.random() < 0.6:
            if self.position < self.gone:
                self.skipped += range(self.position, self.gone)
                self.position = self.gone
            upto = min(self.end, self.position + self.chance.randrange(40))
            self.handed += range(self.position, upto)
            self.position = upto


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_skipped_is_owed_and_little_twice(seed: int) -> None:
    chance = random.Random(seed)
    lag, poll = 12, chance.choice([1, 3, 7])
    model, aging = Model(chance, lag), Aging()
    known, _ = judge(None, 0, 0, aging.note(-1, 0, lag + poll))
    owed: list[int] = []
    restarts: list[int] = []
    owed_at: dict[int, int] = {}
    handed_at: dict[int, int] = {}
    for now in range(600):
        before = len(model.handed)
        model.tick(now)
        handed_at |= dict.fromkeys(model.handed[before:], now)
        if now % poll == 0 or now == 599:
            reported = model.position  # asked first; the minimum may move before it is asked
            if chance.random() < 0.3:
                model.minimum = max(model.minimum, chance.randint(model.minimum, model.gone))
            known, more = judge(known, reported, model.minimum, aging.note(now, reported, lag + poll))
            owed += more or ()
            owed_at |= dict.fromkeys(more or (), now)
            if chance.random() < 0.03:
                aging = Aging()  # a restart: only what is durable is known
                restarts.append(now)
    model.minimum = model.gone
    for now in range(600, 640):
        known, more = judge(known, model.position, model.minimum, aging.note(now, model.position, lag + poll))
        owed += more or ()
    assert len(owed) == len(set(owed)), "nothing is owed twice"
    assert set(model.skipped) <= set(owed)
    for n in set(owed_at) & set(handed_at):
        lately = owed_at[n] - handed_at[n] <= 2 * (lag + poll)
        assert lately or any(handed_at[n] <= at + lag + poll for at in restarts if at <= owed_at[n])
