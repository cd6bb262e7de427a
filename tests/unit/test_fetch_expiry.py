"""Expiry by group progress: positions, rates, verdicts, bounds."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tiered.fetch.base import CacheVerdict, Expiry, ReaderId
from tiered.fetch.expiry import GroupExpiry
from tiered.fetch.groups import SEEK_OFFSETS, GroupProgress, ReaderPosition
from tiered.model import MessageQueue
from tiered.settings import Fetch

Q = MessageQueue("T", 0)
OTHER = MessageQueue("T", 1)
FAST, SLOW = ReaderId("fast"), ReaderId("slow")


def policy(most_positions: int = 1000) -> GroupExpiry:
    return GroupExpiry(expiry_seconds=10, wanted_seconds=60, live_seconds=120, most_positions=most_positions)


def progress(most_positions: int = 1000) -> GroupProgress:
    return GroupProgress(live_seconds=120, most_positions=most_positions)


def run(
    expiry: GroupExpiry, reader: ReaderId, rate: float, *, start: float = 0.0, end: float, first: int = 0
) -> int:
    """``reader`` reads evenly, five steps a second, from ``start`` to ``end``; where it is then."""
    steps = round((end - start) * 5)
    for step in range(steps + 1):
        expiry.observe(reader, Q, first + round(step * rate / 5), start + step / 5)
    return first + round(steps * rate / 5)


def rate_of(expiry: GroupExpiry, reader: ReaderId) -> float | None:
    return next(rate for who, _, _, rate in expiry.positions() if who == reader)


# ---- positions and rates


def test_a_rate_is_known_from_the_second_step_and_follows_a_change_of_speed() -> None:
    position = ReaderPosition(FAST, Q, 0, 0.0)
    assert position.rate is None
    position.step(32, 32, 0.1)
    assert position.rate == pytest.approx(320)
    now, offset = 0.1, 32
    for _ in range(400):
        now, offset = now + 0.1, offset + 5
        position.step(offset, 5, now)
    assert position.rate == pytest.approx(50, rel=0.1)


def test_a_reader_that_pulls_once_a_minute_has_its_rate_between_pulls_too() -> None:
    position = ReaderPosition(SLOW, Q, 0, 0.0)
    for minute in range(1, 6):
        position.step(32 * minute, 32, 60.0 * minute)
    arrival = position.arrival(160 + 16, 300.0 + 90.0)
    assert position.rate == pytest.approx(32 / 60)
    assert arrival == pytest.approx(390 + 30)


def test_steps_at_one_instant_are_counted_together() -> None:
    position = ReaderPosition(FAST, Q, 0, 0.0)
    for step in range(1, 11):
        position.step(32 * step, 32, 0.0)
    assert position.rate is None
    position.step(352, 32, 1.0)
    assert position.rate == pytest.approx(352)


def test_a_pause_is_not_a_speed() -> None:
    expiry = policy()
    at = run(expiry, FAST, 1000, end=20)
    expiry.observe(FAST, Q, at + 200, 80.0)
    rate = rate_of(expiry, FAST)
    assert rate is not None
    assert rate > 800


def test_a_silent_reader_is_expected_to_stay_silent_for_as_long_again() -> None:
    position = ReaderPosition(FAST, Q, 0, 0.0)
    for step in range(1, 101):
        position.step(100 * step, 100, step / 10)
    assert position.arrival(11_000, 10.0) == pytest.approx(11.0)
    assert position.arrival(11_000, 11.0) == pytest.approx(12.0)  # a second is nothing yet
    assert position.arrival(11_000, 40.0) == pytest.approx(40 + 29 + 1)
    assert position.arrival(10_000, 40.0) == pytest.approx(40 + 29)


def test_a_seek_moves_the_position_and_not_the_rate() -> None:
    known = progress()
    for step in range(50):
        known.observe(FAST, Q, 100 * step, step / 10)
    known.observe(FAST, Q, 5_000_000, 5.0)  # a leap
    known.observe(FAST, Q, 5_000_100, 5.1)
    known.observe(FAST, Q, 40, 5.2)  # a step back
    known.observe(FAST, Q, 20_100, 5.3, begin=20_000)  # said to be one
    known.observe(FAST, Q, 20_200, 5.4, begin=20_100)
    (position,) = known
    assert position.offset == 20_200
    assert position.rate is not None
    assert 900 < position.rate < 1010


def test_a_leap_of_exactly_the_bound_is_still_reading() -> None:
    known = progress()
    known.observe(FAST, Q, 0, 0.0)
    known.observe(FAST, Q, SEEK_OFFSETS, 1.0)
    known.observe(SLOW, Q, 0, 0.0)
    known.observe(SLOW, Q, SEEK_OFFSETS + 1, 1.0)
    assert [p.rate for p in known] == [SEEK_OFFSETS, 0.0]


def test_standing_gives_live_readers_nearest_first_and_at_most_so_many() -> None:
    known = progress()
    for number in range(20):
        known.observe(ReaderId("g", str(number)), Q, number * 10, 0.0 if number == 5 else 100.0)
    near, arrived = known.standing(Q, 100, 150.0, 6)
    assert [p.offset for p in near] == [90, 80, 70, 60, 40, 30]  # number 5 was seen too long ago
    assert len(known) == 19
    assert arrived == 100.0
    assert known.standing(Q, 0, 150.0, 6) == ([], 100.0)
    assert known.standing(OTHER, 100, 150.0, 6) == ([], None)
    assert known.standing(Q, 0, 500.0, 6) == ([], None)
    assert len(known) == 0


def test_positions_are_bounded_and_the_one_seen_longest_ago_goes() -> None:
    known = progress(most_positions=3)
    for number in range(3):
        known.observe(ReaderId(f"g{number}"), Q, 0, float(number))
    known.observe(ReaderId("g0"), Q, 10, 3.0)
    known.observe(ReaderId("g3"), OTHER, 0, 4.0)
    assert [(p.reader.group, p.queue) for p in known] == [("g2", Q), ("g0", Q), ("g3", OTHER)]
    for number in range(10_000):
        known.observe(ReaderId("flood", str(number)), MessageQueue("T", number), number, 5.0)
        known.alive(ReaderId("beat", str(number)), 5.0)
    assert len(known) == 3
    assert len(known._lines) <= 3
    assert len(known._alive) <= 3


def test_a_position_is_small() -> None:
    position = ReaderPosition(FAST, Q, 0, 0.0)
    assert sys.getsizeof(position) + 3 * 32 + 4 * 24 < 512


def test_heavy_traffic_keeps_the_line_of_a_queue_sorted() -> None:
    known = progress(most_positions=40)
    chance = random.Random(7)
    truth: dict[ReaderId, int] = {}
    for step in range(5000):
        reader = ReaderId("g", str(chance.randrange(60)))
        truth[reader] = offset = chance.randrange(200)
        known.observe(reader, Q, offset, step / 100)
        if step % 97 == 0:
            known.forget(reader)
    offsets = [p.offset for p in known._lines[Q].positions]
    assert offsets == sorted(offsets)
    assert sorted(offsets) == sorted(truth[p.reader] for p in known)
    assert len(offsets) <= 40


# ---- verdicts


def test_it_is_the_port() -> None:
    port: Expiry = GroupExpiry.of(Fetch(cache_expiry_ms=1000))
    assert port.verdict(Q, 0, 10, 0.0, 0.9).keep
    assert not port.verdict(Q, 0, 10, 0.0, 1.0).keep


def test_with_nobody_known_age_decides() -> None:
    expiry = policy()
    expiry.observe(FAST, OTHER, 0, 0.0)
    assert expiry.verdict(Q, 0, 250, 0.0, 9.9) == CacheVerdict(True)
    assert expiry.verdict(Q, 0, 250, 0.0, 10.0) == CacheVerdict(False)


def test_a_block_that_every_group_has_passed_is_dropped_at_once() -> None:
    expiry = policy()
    fast = run(expiry, FAST, 1000, end=20)
    slow = run(expiry, SLOW, 500, end=20)
    assert (fast, slow) == (20_000, 10_000)
    assert expiry.verdict(Q, 9_750, 10_000, 19.9, 20.0) == CacheVerdict(False)
    assert expiry.verdict(Q, 9_750, 10_001, 19.9, 20.0) == CacheVerdict(True, 20.0)


def test_while_groups_arrive_what_all_have_passed_lingers_for_its_age() -> None:
    expiry = policy()
    run(expiry, FAST, 1000, end=20)
    assert not expiry.verdict(Q, 19_000, 19_250, 19.9, 20.0).keep
    expiry.observe(SLOW, Q, 30_000, 20.0)
    assert expiry.verdict(Q, 19_000, 19_250, 19.9, 20.1) == CacheVerdict(True)
    assert not expiry.verdict(Q, 1_000, 1_250, 1.0, 20.1).keep
    run(expiry, SLOW, 1000, start=20.2, end=30.2, first=30_000)
    assert not expiry.verdict(Q, 19_000, 19_250, 30.1, 30.2).keep


def test_a_block_that_a_slower_group_will_reach_soon_stays_however_old_it_is() -> None:
    expiry = policy()
    run(expiry, FAST, 1000, end=40)
    slow = run(expiry, SLOW, 500, end=40)
    verdict = expiry.verdict(Q, slow + 15_000, slow + 15_250, 0.0, 40.0)
    assert verdict.keep
    assert verdict.wanted_at == pytest.approx(40 + 30, abs=0.5)


def test_a_block_that_nobody_will_reach_in_time_is_dropped_at_once() -> None:
    expiry = policy()
    fast = run(expiry, FAST, 1000, end=40)
    slow = run(expiry, SLOW, 10, end=40)
    assert expiry.verdict(Q, slow + 500, slow + 750, 39.9, 40.0).keep
    assert expiry.verdict(Q, slow + 700, slow + 950, 39.9, 40.0) == CacheVerdict(False)
    assert expiry.verdict(Q, fast + 59_000, fast + 59_250, 39.9, 40.0).keep
    assert not expiry.verdict(Q, fast + 61_000, fast + 61_250, 39.9, 40.0).keep


def test_a_faster_group_from_further_behind_is_the_one_that_counts() -> None:
    expiry = policy()
    run(expiry, SLOW, 10, end=40, first=30_000)
    fast = run(expiry, FAST, 500, end=40)
    verdict = expiry.verdict(Q, 31_000, 31_250, 0.0, 40.0)
    assert verdict.wanted_at == pytest.approx(40 + (31_000 - fast) / 500, rel=0.01)


def test_a_reader_whose_rate_is_not_known_yet_gives_a_block_its_age() -> None:
    expiry = policy()
    expiry.observe(FAST, Q, 0, 0.0)
    assert expiry.verdict(Q, 0, 250, 0.0, 0.1) == CacheVerdict(True, 0.1)
    assert expiry.verdict(Q, 250, 500, 0.0, 0.1) == CacheVerdict(True)
    assert expiry.verdict(Q, 250, 500, 0.0, 10.0) == CacheVerdict(False)


def test_a_group_that_stops_holds_less_and_less_and_then_nothing() -> None:
    expiry = policy()
    at = run(expiry, FAST, 1000, end=20)
    assert expiry.verdict(Q, at + 30_000, at + 30_250, 0.0, 20.0).keep
    assert not expiry.verdict(Q, at + 30_000, at + 30_250, 0.0, 60.0).keep
    assert expiry.verdict(Q, at, at + 250, 0.0, 60.0).keep
    assert not expiry.verdict(Q, at, at + 250, 0.0, 85.0).keep


def test_a_reader_not_seen_for_the_time_out_is_as_good_as_gone() -> None:
    expiry = GroupExpiry(expiry_seconds=10, wanted_seconds=1000, live_seconds=30, most_positions=10)
    at = run(expiry, SLOW, 100, end=20)
    run(expiry, FAST, 1000, end=60)
    assert expiry.verdict(Q, at, at + 250, 0.0, 49.9).keep
    assert not expiry.verdict(Q, at, at + 250, 0.0, 50.1).keep


def test_a_heartbeat_keeps_a_reader_live_and_good_bye_ends_it() -> None:
    expiry = GroupExpiry(expiry_seconds=10, wanted_seconds=1000, live_seconds=30, most_positions=10)
    at = run(expiry, SLOW, 100, end=20)
    run(expiry, FAST, 1000, end=60)
    expiry.alive(SLOW, 45.0)
    expiry.alive(ReaderId("unknown"), 45.0)
    assert expiry.verdict(Q, at, at + 250, 0.0, 60.0).keep
    expiry.forget(SLOW)
    assert not expiry.verdict(Q, at, at + 250, 0.0, 60.0).keep
    assert [who for who, *_ in expiry.positions()] == [FAST]


def test_a_committed_offset_shows_life_and_never_steps_back() -> None:
    expiry = GroupExpiry(expiry_seconds=10, wanted_seconds=1000, live_seconds=30, most_positions=10)
    at = run(expiry, SLOW, 100, end=20)
    expiry.heard(SLOW, Q, at - 500, 45.0)
    assert [offset for _, _, offset, _ in expiry.positions()] == [at]
    assert expiry.verdict(Q, at, at + 250, 0.0, 60.0).keep
    assert not expiry.verdict(Q, at - 250, at, 0.0, 60.0).keep
    expiry.heard(SLOW, Q, at + 250, 61.0)
    assert not expiry.verdict(Q, at, at + 250, 0.0, 61.0).keep
    expiry.heard(FAST, OTHER, 7, 61.0)
    assert expiry.positions()[-1] == (FAST, OTHER, 7, None)


def test_broadcasting_clients_have_a_position_each_and_all_live_ones_must_pass() -> None:
    expiry = policy()
    clients = [ReaderId("b", f"client{n}") for n in range(3)]
    for client, rate in zip(clients, (1000, 800, 400), strict=True):
        run(expiry, client, rate, end=20)
    assert len(expiry.positions()) == 3
    assert not expiry.verdict(Q, 7_750, 8_000, 19.9, 20.0).keep
    assert expiry.verdict(Q, 8_000, 8_250, 0.0, 20.0) == CacheVerdict(True, 20.0)
    assert expiry.verdict(Q, 15_000, 15_250, 0.0, 20.0).wanted_at == pytest.approx(20 + 17.5, abs=0.5)
    expiry.forget(clients[2])
    assert not expiry.verdict(Q, 8_000, 8_250, 19.9, 20.0).keep
    assert not expiry.verdict(Q, 15_750, 16_000, 19.9, 20.0).keep


def test_a_group_and_its_broadcasting_client_are_two_readers() -> None:
    expiry = policy()
    expiry.observe(ReaderId("g"), Q, 500, 0.0)
    expiry.observe(ReaderId("g", "c"), Q, 0, 0.0)
    assert expiry.verdict(Q, 0, 250, 0.0, 1.0).wanted_at == 1.0


def test_many_threads_at_once_leave_one_consistent_picture() -> None:
    expiry = policy(most_positions=64)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for step in range(400):
            reader = ReaderId("g", str(chance.randrange(100)))
            expiry.observe(reader, Q, chance.randrange(10_000), float(step))
            expiry.verdict(Q, chance.randrange(10_000), 10_000, 0.0, float(step))
            if step % 50 == 0:
                expiry.forget(reader)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(expiry.positions()) <= 64
    line = expiry._progress._lines[Q].positions
    assert sorted(line, key=lambda p: p.offset) == line
    assert {(p.reader, p.queue) for p in line} == {(who, queue) for who, queue, *_ in expiry.positions()}
