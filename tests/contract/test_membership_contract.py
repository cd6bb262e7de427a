"""One suite over every registry of read nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.memberships import BucketRegistry, names, other
from tests.kit.memberships import card as of_node
from tiered.errors import Conflict, Unavailable
from tiered.membership.base import Card, Membership, MemberState


@pytest.fixture(params=[BucketRegistry])
def registry(request: pytest.FixtureRequest) -> Any:
    return request.param()


def card(registry: Any, name: str = "node-1", **changed: Any) -> Card:
    return of_node(name, lease_ms=registry.lease_ms, **changed)


@pytest.fixture
def one(registry: Any) -> Iterator[Membership]:
    yield from _opened(registry)


@pytest.fixture
def two(registry: Any) -> Iterator[Membership]:
    yield from _opened(registry)


@pytest.fixture
def reader(registry: Any) -> Iterator[Membership]:
    yield from _opened(registry)


def seconds(registry: Any) -> float:
    return float(registry.lease_ms) / 1000


def _opened(registry: Any) -> Iterator[Membership]:
    made = registry.open()
    yield made
    made.close()


def test_nobody_is_there(registry: Any, reader: Membership) -> None:
    found = reader.members()
    assert (found.there, found.troubles, found.silent) == ((), {}, {})


def test_a_node_is_seen_as_it_says_and_until_it_leaves(
    registry: Any, one: Membership, reader: Membership
) -> None:
    mine = card(registry, capacity=3, state=MemberState.JOINING)
    lease = one.announce(mine)
    assert [member.card for member in reader.members().there] == [mine]
    for state in (MemberState.LIVE, MemberState.DRAINING):
        mine = mine.said(state)
        lease.renew(mine)
        assert [member.card for member in reader.members().there] == [mine]
        assert [member.card for member in one.members().there] == [mine]
    lease.leave()
    assert (reader.members().there, reader.members().silent) == ((), {})
    lease.leave()
    one.announce(mine)
    assert names(reader.members()) == ["node-1"]


def test_several_nodes_and_names_that_hurt(
    registry: Any, one: Membership, two: Membership, reader: Membership
) -> None:
    wanted = ["a/b", "ü ~%", ".hidden", "A" * 63]
    leases = [
        driver.announce(card(registry, name)) for driver, name in zip((one, two) * 2, wanted, strict=True)
    ]
    assert names(reader.members()) == sorted(wanted)
    leases[1].leave()
    assert names(reader.members()) == sorted({*wanted} - {wanted[1]})


def test_who_is_silent_is_gone_and_who_renews_stays(
    registry: Any, one: Membership, two: Membership, reader: Membership
) -> None:
    one.announce(card(registry, "dead"))
    alive = two.announce(card(registry, "alive"))

    def look() -> None:
        alive.renew(card(registry, "alive"))
        reader.members()

    look()
    assert names(reader.members()) == ["alive", "dead"]
    registry.pass_time(seconds(registry) / 2, look)
    assert names(reader.members()) == ["alive", "dead"]
    assert registry.until(lambda: names(reader.members()) == ["alive"], look)


def test_the_second_of_a_name_is_refused_until_the_first_is_silent(
    registry: Any, one: Membership, two: Membership, reader: Membership
) -> None:
    first, second = card(registry), other(card(registry))
    lease = one.announce(first)

    def try_it() -> None:
        with suppress(Conflict):
            two.announce(second)

    def both() -> None:
        lease.renew(first)
        try_it()
        reader.members()

    with pytest.raises(Conflict, match=r"has this read node's name.*10\.0\.0\.1.*serve\.name"):
        two.announce(second)
    registry.pass_time(2 * seconds(registry), both)
    assert [member.card for member in reader.members().there] == [first]
    assert registry.until(lambda: [member.card for member in reader.members().there] == [second], try_it)
    with pytest.raises(Conflict, match="went to another process"):
        lease.renew(first)
    lease.leave()
    with pytest.raises(Conflict):
        one.announce(first, anew=False)
    assert [member.card for member in reader.members().there] == [second]


def test_a_process_that_starts_again_where_it_was_has_its_name_at_once(
    registry: Any, one: Membership, two: Membership
) -> None:
    first = card(registry)
    again = replace(first, process="e" * 32)
    lease = one.announce(first)
    with pytest.raises(Conflict):
        two.announce(again, anew=False)
    two.announce(again)
    assert [member.card.process for member in two.members().there] == [again.process]
    with pytest.raises(Conflict):
        lease.renew(first)


def test_what_one_node_left_damaged_concerns_nobody_else(
    registry: Any, one: Membership, two: Membership, reader: Membership
) -> None:
    lease = one.announce(card(registry, "sick"))
    two.announce(card(registry, "well"))
    registry.damage("sick")
    found = reader.members()
    assert names(found) == ["well"]
    assert list(found.troubles) == ["sick"]
    assert "cannot be read" in found.troubles["sick"]
    lease.leave()
    one.announce(card(registry, "sick"))
    found = reader.members()
    assert (names(found), found.troubles) == (["sick", "well"], {})


def test_while_it_does_not_answer_nobody_is_declared_gone(
    registry: Any, one: Membership, reader: Membership
) -> None:
    lease = one.announce(card(registry))
    assert names(reader.members()) == ["node-1"]

    def look() -> None:
        with pytest.raises(Unavailable):
            reader.members()
        with pytest.raises(Unavailable):
            lease.renew(card(registry))

    with registry.away():
        registry.pass_time(2 * seconds(registry), look)
    assert names(reader.members()) == ["node-1"]
    lease.renew(card(registry, capacity=7))
    (found,) = reader.members().there
    assert found.card.capacity == 7
    assert names(reader.members()) == ["node-1"]


def test_a_wait_ends_with_its_time_and_with_the_stop(registry: Any, reader: Membership) -> None:
    reader.members()
    registry.wait_briefly(reader)
    stop = threading.Event()
    stop.set()
    reader.wait(3600, stop)
