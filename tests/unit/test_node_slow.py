"""Slow nodes: by the median of the others, never by few reads or small differences, and never more than half."""

from __future__ import annotations

import pytest

from tiered.gateway.nodes.slow import ENOUGH, RESTS, WINDOW_SECONDS, ReadTimes, slow_ones

NOW = 1000.0


def times(seconds: float, count: int = ENOUGH, at: float = NOW) -> ReadTimes:
    made = ReadTimes()
    for _ in range(count):
        made.took(seconds, at)
    return made


def found(factor: float = 4, now: float = NOW, **nodes: ReadTimes) -> list[str]:
    return list(slow_ones(nodes, factor, now))


def test_a_node_far_above_the_median_of_the_others_is_slow() -> None:
    assert found(a=times(0.05), b=times(0.06), c=times(0.5)) == ["c"]
    assert found(a=times(0.05), b=times(0.5)) == ["b"]
    assert slow_ones({"a": times(0.05), "b": times(0.07), "c": times(0.5)}, 4, NOW)["c"] == pytest.approx(
        (0.5, 0.06)
    )


def test_one_read_that_took_long_is_not_a_slow_node() -> None:
    one = times(0.05, 20)
    one.took(30.0, NOW)
    assert found(a=times(0.05), b=times(0.05), c=one) == []


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (times(0.5, ENOUGH - 1), "too few reads"),
        (times(0.5, at=NOW - WINDOW_SECONDS - 1), "long ago"),
        (times(0.19), "below the factor"),
    ],
)
def test_what_does_not_count(other: ReadTimes, why: str) -> None:
    assert found(a=times(0.05), b=times(0.05), c=other) == [], why


def test_small_differences_are_nothing_and_the_setting_turns_it_off() -> None:
    assert found(a=times(0.001), b=times(0.001), c=times(0.02)) == []
    assert found(0, a=times(0.05), b=times(5.0)) == []
    assert found(a=times(5.0)) == [], "nobody to compare with"


def test_never_more_than_half_are_slow_and_the_slowest_first() -> None:
    assert found(a=times(0.05), b=times(0.05), c=times(0.05), d=times(0.6), e=times(0.5), f=times(0.7)) == [
        "f",
        "d",
        "e",
    ]
    assert len(found(a=times(0.01), b=times(0.5), c=times(2.0))) == 1
    resting = times(0.5)
    resting.rest(NOW)
    assert found(a=times(0.01), b=resting, c=times(2.0)) == []


def test_a_node_rests_longer_each_time_and_is_judged_by_what_it_does_afterwards() -> None:
    one = times(1.0)
    assert one.rest(NOW) == RESTS.seconds(1)
    assert one.rests_until == NOW + RESTS.seconds(1)
    later = one.rests_until + 1
    assert one.median(later) is None
    for _ in range(ENOUGH):
        one.took(1.0, later)
    assert found(a=times(0.05, at=later), b=times(0.05, at=later), c=one, now=later) == ["c"]
    assert one.rest(later) == RESTS.seconds(2)
    fast = one.rests_until + 1
    for _ in range(ENOUGH):
        one.took(0.05, fast)
    assert found(a=times(0.05, at=fast), b=times(0.05, at=fast), c=one, now=fast) == []
    assert one.rest(fast) == RESTS.seconds(1)
