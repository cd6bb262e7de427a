"""The map of a queue's offsets at a sink, against a list of where every message lies: at what it says nothing is lost, where it
says *exactly* nothing comes again either, and it stays small."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.archive.state.offsetmap import MAX_RUNS, OffsetMap, map_of_runs, nothing_given
from tiered.archive.state.sinkmaps import pack_map, unpack_map
from tiered.errors import Corrupt

SOME = settings(max_examples=80, deadline=None)
NAME = ("Orders", "id", 1)


@dataclass
class Log:
    """A queue at a destination: ``lies`` has the destination's offset of each message."""

    chance: random.Random
    lies: dict[int, int] = field(default_factory=dict)
    next: int = 0
    free: int = 0
    known: OffsetMap | None = None
    told: OffsetMap | None = None

    def flush(self, messages: int, *, shared: float, filtered: float) -> None:
        """Some messages; ``shared``: how often another queue's record lies between two, ``filtered``: how often a message is
        left out. Behind them is a marker."""
        start, rows = self.next, []
        for _ in range(messages):
            self.free += self.chance.random() < shared
            if self.chance.random() < filtered:
                self.next += 1
                continue
            self.lies[self.next] = self.free
            rows.append((self.next, self.free))
            self.next, self.free = self.next + 1, self.free + 1
        self.free += 1
        runs = {
            "first": [a for a, _ in rows],
            "messages": [1] * len(rows),
            "target_offset": [b for _, b in rows],
        }
        told = map_of_runs(start, self.next, *NAME, runs) if rows else nothing_given(start, self.next)
        if self.told is not None and self.told.end == start and self.chance.random() < 0.5:
            told = self.told.then(told)  # the commit before may have come, or not: what it told is told again
        self.told = told
        self.learn(told)

    def learn(self, told: OffsetMap) -> None:
        self.known = told if self.known is None else self.known.then(told)
        self.known = unpack_map(pack_map(self.known))

    def back(self, to: int) -> None:
        """The source lost its tail: messages from ``to`` on are others from now on, and come behind everything."""
        assert self.known is not None
        self.known, self.next, self.told = self.known.cut(to), to, None
        self.lies = {a: b for a, b in self.lies.items() if a < to}

    def judge(self) -> None:
        known = self.known
        assert known is not None
        assert len(known) <= MAX_RUNS
        assert known.end == self.next
        for offset in range(known.start, self.next + 1):
            found = known.locate(offset)
            if found is None:
                assert not any(known.start <= a < self.next for a in self.lies), (
                    "a message that the map does not know"
                )
                continue
            here = next((self.lies[a] for a in range(offset, self.next) if a in self.lies), self.free)
            earlier = next((self.lies[a] for a in range(offset - 1, -1, -1) if a in self.lies), -1)
            # As the destination is asked: the first of these messages between the two, or else the higher one.
            lies = range(found.low, found.high)
            place = here if here in lies else found.high
            assert found.low <= here, "a message would be lost"
            assert earlier < place <= here, "a message would be lost, or come again"


@SOME
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.6]), st.sampled_from([0.0, 0.3]))
def test_nothing_is_lost_at_what_it_says(seed: int, shared: float, filtered: float) -> None:
    log = Log(random.Random(seed))
    for _ in range(12):
        if log.known is not None and log.chance.random() < 0.1:
            log.back(log.chance.randint(log.known.start, log.next))
        log.flush(log.chance.choice((0, 3, 12, 200)), shared=shared, filtered=filtered)
    assert log.known is not None
    assert log.known.start == 0, "nothing of it was forgotten"
    log.judge()


def test_a_queue_of_its_own_partition_is_exact_where_it_is_new_and_says_how_little_is_open_where_it_is_old() -> (
    None
):
    log = Log(random.Random(1))
    for _ in range(1_000):
        log.flush(3, shared=0, filtered=0)
    log.judge()
    assert log.known is not None
    assert len(pack_map(log.known)) < 1_000
    newest = [log.known.locate(log.next - at) for at in range(3 * MAX_RUNS // 4)]
    assert all(found is not None and found.exact for found in newest)
    for offset in range(log.next):
        found = log.known.locate(offset)
        assert found is not None
        assert found.high - found.low <= 1_000, "only markers are open"


def test_without_markers_it_is_one_run() -> None:
    log = Log(random.Random(1))
    for _ in range(300):
        log.flush(5, shared=0, filtered=0)
        log.free -= 1
    log.judge()
    assert log.known is not None
    assert len(log.known) == 1


def test_what_is_learned_twice_is_known_once() -> None:
    """A commit may come whose answer was lost: then the next one tells of its messages once more."""
    one = map_of_runs(0, 5, *NAME, {"first": [0], "messages": [5], "target_offset": [10]})
    both = map_of_runs(2, 7, *NAME, {"first": [2, 5], "messages": [3, 2], "target_offset": [12, 16]})
    found = one.then(both)
    assert (len(found), found.start, found.end) == (2, 0, 7)
    assert [found.locate(offset) for offset in (4, 5, 7)] == [(14, 14), (16, 16), (18, 18)]


def test_what_does_not_follow_begins_it_anew() -> None:
    one = map_of_runs(0, 5, *NAME, {"first": [0], "messages": [5], "target_offset": [10]})
    hole = map_of_runs(7, 9, *NAME, {"first": [7], "messages": [2], "target_offset": [20]})
    found = one.then(hole)
    assert (found.start, found.end, found.locate(3)) == (7, 9, None)
    before = map_of_runs(5, 6, *NAME, {"first": [5], "messages": [1], "target_offset": [0]})
    assert one.then(before).start == 5, "the destination's offsets went back: it was made anew"
    other = map_of_runs(5, 6, "Orders", "another", 1, {"first": [5], "messages": [1], "target_offset": [50]})
    assert one.then(other).start == 5


def test_retention_takes_runs_along_and_keeps_the_one_across() -> None:
    runs = {"first": [0, 10, 20], "messages": [5, 5, 5], "target_offset": [0, 6, 12]}
    known = map_of_runs(0, 25, *NAME, runs).trimmed(12)
    assert (len(known), known.start) == (2, 10)
    assert known.locate(9) is None
    found = unpack_map(pack_map(known)).locate(13)
    assert found is not None
    assert found == (9, 9)
    assert len(known.trimmed(30)) == 0


@SOME
@given(st.binary(max_size=60), st.integers(0, 99), st.integers(0, 99))
def test_damaged_runs_are_corrupt(runs: bytes, start: int, end: int) -> None:
    with suppress(Corrupt):
        found = OffsetMap.of(start, end, *NAME, 0, runs, key="here")
        assert found.start <= found.end


def test_a_value_that_is_no_map_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        unpack_map(b"\x93\x01\x02\x03")
