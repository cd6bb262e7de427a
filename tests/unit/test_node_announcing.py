"""A node says that it is there: joins, renews, drains, leaves; and a gateway follows, and keeps what it knows."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.memberships import LEASE_MS, BucketRegistry, card, names, other
from tiered.daemon.announcing import AGAIN_SECONDS, Announcer, node_card
from tiered.daemon.following import Following
from tiered.errors import Invalid
from tiered.gateway.nodes.fleet import NodePlace
from tiered.membership.base import Members, MemberState
from tiered.metrics import Metrics
from tiered.settings import Serve

EVERY = LEASE_MS / 1000 / 3


class Node:
    """A node's announcements, in a registry in memory."""

    def __init__(self, registry: BucketRegistry, mine: Any = None) -> None:
        self.ready = True
        self.registry = registry
        self.metrics = Metrics()
        self.announcer = Announcer(
            registry.open(), mine or card(), lambda: self.ready, registry.clock, self.metrics
        )

    def live(self, seconds: float) -> None:
        """As its service does."""
        end = self.registry.clock.monotonic() + seconds
        while self.registry.clock.monotonic() < end:
            wanted = self.announcer.step().wait_seconds
            assert wanted is not None
            assert 0 <= wanted <= 1
            self.registry.clock.advance(max(wanted, 0.01))

    def seen(self) -> list[MemberState]:
        return [member.card.state for member in self.registry.open().members().there]

    def shown(self) -> list[str]:
        return [
            state
            for state in ("none", "joining", "live", "draining")
            if self.metrics.value("tiered_node_member", state=state)
        ]


def test_it_joins_lives_drains_and_leaves() -> None:
    node = Node(BucketRegistry())
    node.ready = False
    assert node.shown() == ["none"]
    node.live(0.1)
    assert (node.seen(), node.shown()) == ([MemberState.JOINING], ["none"])
    node.ready = True
    node.live(1.0)
    node.announcer.publish()
    assert (node.seen(), node.shown()) == ([MemberState.LIVE], ["live"])
    node.announcer.drain()
    node.live(1.0)
    assert node.seen() == [MemberState.DRAINING]
    node.announcer.close()
    assert (node.seen(), node.shown()) == ([], ["none"])
    node.live(3 * EVERY)
    assert node.seen() == [], "who has left says nothing more"


def test_it_renews_in_time_and_not_more_often() -> None:
    registry = BucketRegistry()
    node = Node(registry)
    node.live(0.1)
    registry.asked.clear()
    node.live(10 * EVERY)
    assert 9 <= registry.asked.count("put") <= 11
    assert node.announcer.status()["problem"] is None


def test_the_second_of_a_name_says_so_once_and_takes_over_when_the_first_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = BucketRegistry()
    first, second = Node(registry), Node(registry, other(card()))
    with caplog.at_level(logging.INFO, "tiered.node"):
        for _ in range(40):
            first.live(0.3)
            second.live(0.3)
        assert "another process has this read node's name" in str(second.announcer.problem)
        assert first.announcer.problem is None
        assert [record.levelname for record in caplog.records] == ["INFO", "ERROR"]
        second.live(2.5 * LEASE_MS / 1000)
        assert second.announcer.problem is None
        first.live(EVERY)
        assert "went to another process" in str(first.announcer.problem)
        for _ in range(20):
            first.live(0.5)
            second.live(0.5)
    assert "has this read node's name" in str(first.announcer.problem)
    (found,) = registry.open().members().there
    assert found.card.process == "f" * 32


def test_two_at_one_address_do_not_take_the_name_from_each_other_for_ever() -> None:
    """Loopback on two hosts: each believes that the other cannot be alive any more; once, not again and again."""
    registry = BucketRegistry()
    first = Node(registry)
    first.live(0.1)
    second = Node(registry, replace(card(), process="e" * 32))
    holders = []
    for _ in range(30):
        second.live(0.5)
        first.live(0.5)
        holders += [member.card.process for member in registry.open().members().there]
    assert set(holders) == {"e" * 32}


def test_a_bucket_that_is_away_costs_the_announcement_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = BucketRegistry()
    node = Node(registry)
    node.live(0.1)
    caplog.clear()
    with registry.away(), caplog.at_level(logging.INFO, "tiered.node"):
        registry.asked.clear()
        node.live(60)
        assert registry.asked.count("put") <= 2 * 60 / min(AGAIN_SECONDS, EVERY) + 2
        assert "does not answer" in str(node.announcer.problem)
    assert len(caplog.records) == 1
    assert node.metrics.value("tiered_membership_failures_total")
    node.live(AGAIN_SECONDS + 1)
    assert (node.announcer.problem, node.seen()) == (None, [MemberState.LIVE])
    node.announcer.drain()
    with registry.away():
        node.live(1.0)
        node.announcer.close()


def test_what_a_node_says_of_itself() -> None:
    process = bytes(range(16))
    found = node_card(Serve(name="n", capacity=2, lease_ms=9_000), "10.0.0.5:10930", process)
    assert (found.name, found.address, found.capacity, found.lease_ms) == ("n", "10.0.0.5:10930", 2, 9_000)
    assert node_card(Serve(), "127.0.0.1:77", process).name.endswith(":77")
    assert node_card(Serve(advertise="pod-7.nodes:1"), "0.0.0.0:77", process).address == "pod-7.nodes:1"
    with pytest.raises(Invalid, match=r"serve\.advertise"):
        node_card(Serve(), "0.0.0.0:77", process)
    with pytest.raises(Invalid, match=r"serve\.advertise"):
        node_card(Serve(advertise="nowhere"), "10.0.0.5:77", process)


class Gateway:
    """What a gateway does, with whom it was told."""

    def __init__(self, registry: BucketRegistry) -> None:
        self.registry = registry
        self.metrics = Metrics()
        self.told: list[list[NodePlace]] = []
        self.following = Following(
            registry.open(), lambda places: self.told.append(list(places)), registry.clock, self.metrics, 1.0
        )

    def look(self, times: int = 1) -> list[str]:
        for _ in range(times):
            self.following.step()
        self.following.publish()
        return [place.name for place in self.told[-1]]


def test_it_follows_and_is_told_only_of_changes() -> None:
    registry = BucketRegistry()
    gateway = Gateway(registry)
    assert gateway.look() == []
    lease = registry.open().announce(card("a"))
    assert gateway.look() == ["a"]
    lease.renew(card("a"))
    gateway.look(3)
    assert len(gateway.told) == 2
    lease.renew(card("a", state=MemberState.DRAINING))
    gateway.look()
    assert [place.state for place in gateway.told[-1]] == ["draining"]
    lease.leave()
    assert gateway.look() == []
    assert gateway.metrics.value("tiered_gateway_members", state="there") == 0


def test_a_bucket_that_answers_503_for_a_minute_leaves_the_last_known_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = BucketRegistry()
    registry.open().announce(card("a"))
    gateway = Gateway(registry)
    gateway.look()
    caplog.clear()
    with registry.away(), caplog.at_level(logging.INFO, "tiered.gateway"):
        assert gateway.look(60) == ["a"]
        assert "does not answer" in str(gateway.following.status()["problem"])
        assert gateway.metrics.value("tiered_membership_age_seconds") == pytest.approx(60, abs=2)
    assert ["those known stay" in record.message for record in caplog.records] == [True]
    assert gateway.look(3) == ["a"]
    assert gateway.following.status()["problem"] is None
    assert gateway.look(round(LEASE_MS / 1000) + 1) == [], "now its silence counts"
    assert list(gateway.following.status()["silent"]) == ["a"]  # type: ignore[call-overload]


def test_a_damaged_lease_is_said_once_and_its_node_goes(caplog: pytest.LogCaptureFixture) -> None:
    registry = BucketRegistry()
    for name in ("a", "b"):
        registry.open().announce(card(name))
    gateway = Gateway(registry)
    assert gateway.look() == ["a", "b"]
    registry.damage("a")
    with caplog.at_level(logging.INFO, "tiered.gateway"):
        lease = registry.open().announce(card("c"))
        lease.renew(card("c"))
        fresh = Gateway(registry)
        assert fresh.look(3) == ["b", "c"]
    assert ["does not count" in record.message for record in caplog.records].count(True) == 1
    assert fresh.metrics.value("tiered_gateway_members", state="damaged") == 1


def test_a_surprise_of_a_driver_is_said_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = BucketRegistry()
    node, gateway = Node(registry), Gateway(registry)
    node.live(0.1)
    assert gateway.look() == ["node-1"]

    def surprise(*words: object) -> None:
        raise KeyError("header")

    with monkeypatch.context() as patched:
        patched.setattr("tiered.membership.bucket.numbers_below", surprise)
        assert gateway.look(3) == ["node-1"]
        assert "KeyError" in str(gateway.following.status()["problem"])
        node.live(2 * EVERY)
        assert "KeyError" in str(node.announcer.problem)
    node.live(2 * EVERY)
    gateway.look()
    assert (node.announcer.problem, gateway.following.problem) == (None, None)


def test_a_registry_of_nobody_is_no_trouble() -> None:
    assert (names(Members()), Members().troubles, Members().silent) == ([], {}, {})
