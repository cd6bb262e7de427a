"""The phi accrual detector: how suspicion grows, by what, and what is not held against a node."""

from __future__ import annotations

import random
from math import erfc, log10, sqrt

import pytest

from tiered.gateway.nodes.phi import MOST_PHI, PhiAccrual


def beating(gaps: list[float], grace: float = 0.0) -> tuple[PhiAccrual, float]:
    """A node whose heartbeats came so far apart, and the time of the last."""
    phi, now = PhiAccrual(1.0, grace), 100.0
    phi.began(now)
    for gap in gaps:
        now += gap
        phi.heard(now)
    return phi, now


def test_phi_is_what_the_normal_distribution_says() -> None:
    """Against the definition, with a spread that is believed."""
    chance = random.Random(7)
    gaps = [max(chance.gauss(1.0, 0.5), 0.01) for _ in range(100)]
    phi, now = beating(gaps)
    known = [*gaps, 1.0]
    mean = sum(known) / len(known)
    spread = sqrt(sum((gap - mean) ** 2 for gap in known) / len(known))
    assert spread > 0.3
    for late in (0.0, 0.5, 1.0, 2.0, 3.0):
        expected = -log10(0.5 * erfc((late - mean) / spread / sqrt(2)))
        assert phi.phi(now + late) == pytest.approx(expected)


def test_suspicion_only_grows_while_a_node_is_silent_and_has_an_end() -> None:
    phi, now = beating([1.0] * 20, grace=2.0)
    found = [phi.phi(now + late / 10) for late in range(200)]
    assert found == sorted(found)
    assert found[10] < 0.1
    assert phi.phi(now + 3.0) < 1.0, "a beat that is late is forgiven"
    assert phi.phi(now + 5.0) > 8.0, "five seconds of silence are not"
    assert phi.phi(now + 1e6) == MOST_PHI


def test_irregular_heartbeats_are_given_more_time() -> None:
    regular, at = beating([1.0] * 50)
    irregular, then = beating([0.2, 1.8] * 25)
    assert irregular.phi(then + 3.0) < 8.0 < regular.phi(at + 3.0)


def test_before_the_first_heartbeat_it_is_expected_all_the_same() -> None:
    phi = PhiAccrual(1.0, 2.0)
    assert phi.phi(1e9) == 0.0, "nobody waits for one"
    phi.began(50.0)
    assert phi.phi(51.0) < 1.0
    assert phi.phi(56.0) > 8.0


def test_who_slept_has_heard_nobody_being_silent() -> None:
    phi, now = beating([1.0] * 20)
    phi.slept(3600.0)
    assert phi.phi(now + 3600.5) < 1.0
    assert phi.phi(now + 3605.0) > 8.0


def test_after_an_absence_it_is_measured_anew() -> None:
    phi, now = beating([1.0] * 20)
    phi.began(now + 600.0)
    phi.heard(now + 601.0)
    assert phi.phi(now + 605.0) > 8.0, "the absence itself is no gap between heartbeats"


def test_who_answers_something_else_is_not_silent_and_its_beats_are_measured_as_before() -> None:
    phi, now = beating([1.0] * 20, grace=2.0)
    for late in range(1, 20):
        phi.seen(now + late)
        assert phi.phi(now + late + 1) < 1.0
    assert phi.phi(now + 19 + 6) > 8.0
    phi.heard(now + 20)
    assert phi.phi(now + 22) < 1.0
