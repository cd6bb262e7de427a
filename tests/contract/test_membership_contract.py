"""One suite over every registry of read nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.memberships import LEASE_MS, BucketRegistry, card, names, other
from tiered.errors import Conflict, Unavailable
from tiered.membership.base import Membership, MemberState

LEASE_SECONDS = LEASE_MS / 1000


@pytest.fixture(params=["bucket"])
def registry(request: pytest.FixtureRequest) -> Iterator[Any]:
    with ExitStack():
        yield BucketRegistry()


@pytest.fixture
def one(registry: Any) -> Iterator[Membership]:
    yield from _opened(registry)


@pytest.fixture
def two(registry: Any) -> Iterator[Membership]:
    yield from _opened(registry)


@pytest.fixture
def reader(registry: Any) -> Iterator[Membership]:
    yield from _opened(registry)


def _opened(registry: Any) -> Iterator[Membership]:
    made = registry.open()
    yield made
    made.close()


def test_nobody_is_there(reader: Membership) -> None:
    found = reader.members()
    assert (found.there, found.troubles, found.silent) == ((), {}, {})


def test_a_node_is_seen_as_it_says_and_until_it_leaves(one: Membership, reader: Membership) -> None:
    mine = card(capacity=3, state=MemberState.JOINING)
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


def test_several_nodes_and_names_that_hurt(one: Membership, two: Membership, reader: Membership) -> None:
    wanted = ["a/b", "ü ~%", ".hidden", "A" * 63]
    leases = [driver.announce(card(name)) for driver, name in zip((one, two) * 2, wanted, strict=True)]
    assert names(reader.members()) == sorted(wanted)
    leases[1].leave()
    assert names(reader.members()) == sorted({*wanted} - {wanted[1]})


def test_who_is_silent_is_gone_and_who_renews_stays(
    registry: Any, one: Membership, two: Membership, reader: Membership
) -> None:
    one.announce(card("dead"))
    alive = two.announce(card("alive"))

    def look() -> None:
        alive.renew(card("alive"))
        reader.members()

    look()
    assert names(reader.members()) == ["alive", "dead"]
    registry.pass_time(LEASE_SECONDS / 2, look)
    assert names(reader.members()) == ["alive", "dead"]
    registry.pass_time(LEASE_SECONDS, look)
    assert names(reader.members()) == ["alive"]


def test_the_second_of_a_name_is_refused_until_the_first_is_silent(
    registry: Any, one: Membership, two: Membership, reader: Membership
) -> None:
    first, second = card(), other(card())
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
    registry.pass_time(2 * LEASE_SECONDS, both)
    assert [member.card for member in reader.members().there] == [first]
    registry.pass_time(LEASE_SECONDS * 1.5, try_it)
    assert [member.card for member in reader.members().there] == [second]
    with pytest.raises(Conflict, match="went to another process"):
        lease.renew(first)
    lease.leave()
    with pytest.raises(Conflict):
        one.announce(first, anew=False)
    assert [member.card for member in reader.members().there] == [second]


def test_a_process_that_starts_again_where_it_was_has_its_name_at_once(
    one: Membership, two: Membership
) -> None:
    first = card()
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
    lease = one.announce(card("sick"))
    two.announce(card("well"))
    registry.damage("sick")
    found = reader.members()
    assert names(found) == ["well"]
    assert list(found.troubles) == ["sick"]
    assert "cannot be read" in found.troubles["sick"]
    lease.leave()
    one.announce(card("sick"))
    found = reader.members()
    assert (names(found), found.troubles) == (["sick", "well"], {})


def test_while_it_does_not_answer_nobody_is_declared_gone(
    registry: Any, one: Membership, reader: Membership
) -> None:
    lease = one.announce(card())
    assert names(reader.members()) == ["node-1"]

    def look() -> None:
        with pytest.raises(Unavailable):
            reader.members()
        with pytest.raises(Unavailable):
            lease.renew(card())

    with registry.away():
        registry.pass_time(2 * LEASE_SECONDS, look)
    assert names(reader.members()) == ["node-1"]
    lease.renew(card())
    assert names(reader.members()) == ["node-1"]


def test_a_wait_ends_with_its_time_and_with_the_stop(registry: Any, reader: Membership) -> None:
    reader.members()
    registry.wait_briefly(reader)
    stop = threading.Event()
    stop.set()
    reader.wait(3600, stop)
