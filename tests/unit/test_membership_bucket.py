"""Leases in the bucket: what is put and removed, lost answers, lying clocks, and what walks over an archive make of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.memberships import LEASE_MS, LOOK_SECONDS, BucketRegistry, card, names, other
from tests.kit.storefakes import Scripted
from tiered.archive.keys import LEASE_PREFIX
from tiered.archive.log.identity import ensure_identity, kept_identity
from tiered.archive.read.find import list_archives
from tiered.clock import Clock, ManualClock
from tiered.codec.summedline import encode_line
from tiered.daemon.checks import check
from tiered.daemon.config import load
from tiered.errors import Conflict, Corrupt, Invalid, Unavailable
from tiered.membership.base import Membership, MemberState
from tiered.membership.bucket import BucketMembership, decode_lease, encode_lease, first_number
from tiered.membership.open import open_membership
from tiered.provider.memory import MemoryProvider
from tiered.settings import Archive, Settings, Store

MINE = card()
FIRST = first_number(MINE)


def at(number: int) -> str:
    return f"lease/node-1/{FIRST + number:020d}"


def refused(reader: Membership) -> None:
    with pytest.raises(Unavailable):
        reader.members()


def leases(registry: BucketRegistry) -> list[str]:
    return [str(KEYS.path(stored.key)) for stored in registry.bare.list(KEYS.key(LEASE_PREFIX))]


def test_each_renewal_is_a_number_and_the_older_one_is_removed() -> None:
    registry = BucketRegistry()
    lease = registry.open().announce(MINE)
    for number in range(3):
        assert leases(registry) == [at(number)]
        lease.renew(MINE)
    lease.leave()
    assert leases(registry) == []


def test_idle_costs_what_the_docs_say() -> None:
    registry = BucketRegistry()
    one, reader = registry.open(), registry.open()
    lease = one.announce(MINE)
    reader.members()
    registry.asked.clear()
    lease.renew(MINE)
    assert registry.asked == ["put", "list", "delete"]
    registry.asked.clear()
    reader.members()
    assert registry.asked == ["list", "get"]
    registry.asked.clear()
    for _ in range(10):
        reader.members()
    assert registry.asked == ["list"] * 10


def test_a_clock_that_lies_in_a_lease_changes_nothing() -> None:
    """By its own time one node wrote a year ago, the other one will in a year."""
    registry = BucketRegistry()
    reader = registry.open()
    for name, now_ms in (("late", 1), ("early", 2**50)):
        data = encode_lease(card(name), 0, now_ms)
        registry.bare.put(KEYS.lease(name, 0), [data])
    assert names(reader.members()) == ["early", "late"]
    registry.clock.set_wall(2**51)
    assert names(reader.members()) == ["early", "late"]
    registry.pass_time(LEASE_MS / 1000 - LOOK_SECONDS, reader.members)
    assert names(reader.members()) == ["early", "late"]
    registry.pass_time(LOOK_SECONDS, reader.members)
    found = reader.members()
    assert (names(found), sorted(found.silent)) == ([], ["early", "late"])


def test_who_was_asleep_has_seen_nobody_silent() -> None:
    registry = BucketRegistry()
    reader = registry.open()
    registry.open().announce(MINE)
    reader.members()
    registry.clock.advance(3600)
    assert names(reader.members()) == ["node-1"]


def test_of_a_minute_in_which_the_bucket_answers_503_nothing_counts() -> None:
    registry = BucketRegistry()
    reader = registry.open()
    registry.open().announce(MINE)
    registry.pass_time(LEASE_MS / 1000 - LOOK_SECONDS, reader.members)
    with registry.away():
        registry.pass_time(60, lambda: refused(reader))
    assert names(reader.members()) == ["node-1"]
    registry.pass_time(2 * LOOK_SECONDS, reader.members)
    assert names(reader.members()) == []


def test_a_lease_that_says_it_holds_for_years_holds_ten_minutes() -> None:
    registry = BucketRegistry()
    fields = {"format": 1, "number": 0, "written_ms": 0, **MINE.fields(), "lease_ms": 10**9}
    registry.bare.put(KEYS.lease("node-1", 0), [encode_line(fields)])
    (found,) = registry.open().members().there
    assert found.card.lease_ms == 600_000


@pytest.mark.parametrize("lost", ["lost", "dropped"])
def test_a_renewal_whose_answer_is_lost_is_settled(lost: str) -> None:
    clock = ManualClock()
    bare = MemoryProvider("", clock)
    store = Scripted(bare, [])
    one = BucketMembership(store, KEYS, clock, 1.0)
    lease = one.announce(MINE)
    assert [member.number for member in one.members().there] == [FIRST]
    store._script.extend([lost, "ok"])
    lease.renew(MINE.said(MemberState.DRAINING))
    (found,) = one.members().there
    assert (found.number, found.card.state) == (FIRST + 1, MemberState.DRAINING)


def test_a_renewal_that_came_late_is_its_own_and_the_state_of_now_follows() -> None:
    """The put of the live node was not heard of; its next one says that it drains, under a number that is taken: by itself."""
    registry = BucketRegistry()
    lease = registry.open().announce(MINE)
    registry.bare.put(KEYS.lease("node-1", FIRST + 1), [encode_lease(MINE, FIRST + 1, 5)])
    lease.renew(MINE.said(MemberState.DRAINING))
    assert leases(registry) == [at(2)]
    (found,) = registry.open().members().there
    assert found.card.state is MemberState.DRAINING


def test_two_that_start_at_once_do_not_both_get_the_name() -> None:
    """Both saw that nobody has it; create-only decides."""
    clock = ManualClock()
    bare = MemoryProvider("", clock)
    rival = encode_lease(other(MINE), FIRST, 1)

    class Racing(Scripted):
        def put(self, key, parts, *, create_only=True):  # type: ignore[no-untyped-def]
            if not self.calls or self.calls[-1][0] != "put":
                bare.put(key, [rival])
            return super().put(key, parts, create_only=create_only)

    one = BucketMembership(Racing(bare, []), KEYS, clock, 1.0)
    with pytest.raises(Conflict, match="went to another process"):
        one.announce(MINE)
    assert [member.card for member in one.members().there] == [other(MINE)]


def test_a_lease_lost_while_draining_leaves_the_new_one_alone() -> None:
    registry = BucketRegistry()
    lease = registry.open().announce(MINE)
    registry.open().announce(other(MINE, address=MINE.address))
    with pytest.raises(Conflict):
        lease.renew(MINE.said(MemberState.DRAINING))
    lease.leave()
    assert leases(registry) == [at(1)]


def test_a_name_that_went_on_unnoticed_is_not_taken_along() -> None:
    registry = BucketRegistry()
    lease = registry.open().announce(MINE)
    registry.open().announce(other(MINE, address=MINE.address))
    lease.leave()
    assert leases(registry) == [at(1)]


def test_who_slept_while_its_name_went_on_hears_of_it_though_its_next_number_is_free_again() -> None:
    registry = BucketRegistry()
    sleeper, lively = (
        registry.open().announce(MINE),
        registry.open().announce(other(MINE, address=MINE.address)),
    )
    for _ in range(5):
        lively.renew(other(MINE))
    with pytest.raises(Conflict, match="went to another process"):
        sleeper.renew(MINE)
    assert leases(registry) == [at(6)]


def test_an_old_number_that_cannot_be_removed_now_is_removed_later() -> None:
    clock = ManualClock()
    bare = MemoryProvider("", clock)
    store = Scripted(bare, [])
    lease = BucketMembership(store, KEYS, clock, 1.0).announce(MINE)
    store._script.extend(["ok", "dropped"])
    with pytest.raises(Unavailable):
        lease.renew(MINE)
    assert len(list(bare.list(""))) == 2
    lease.renew(MINE)
    assert [stored.key for stored in bare.list("")] == [KEYS.lease("node-1", FIRST + 2)]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "node-2"},
        {"number": 8},
        {"address": "nowhere"},
        {"state": "fine"},
        {"wire": [1]},
        {"wire": ["1", 2]},
        {"capacity": 0},
        {"lease_ms": None},
        {"process": ""},
        {"process": "zz" * 16},
        {"version": 3},
    ],
)
def test_what_makes_no_sense_in_a_lease_is_damage(change: dict[str, object]) -> None:
    data = encode_lease(MINE, 7, 5)
    assert decode_lease(data, "key", "node-1", 7) == MINE
    fields = {**json.loads(data.splitlines()[0]), **change}
    with pytest.raises(Corrupt, match="this node does not count"):
        decode_lease(encode_line(fields), "key", "node-1", 7)


def test_every_changed_byte_of_a_lease_is_found() -> None:
    data = encode_lease(MINE, 7, 5)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(Corrupt):
            decode_lease(bytes(changed), "key", "node-1", 7)


def test_a_life_after_a_life_is_not_taken_for_it() -> None:
    """By who saw a lease before its node left: the next one begins at another number."""
    registry = BucketRegistry()
    one, reader = registry.open(), registry.open()
    one.announce(MINE)
    reader.members()
    registry.pass_time(LEASE_MS / 1000 - LOOK_SECONDS, reader.members)
    registry.bare.delete(KEYS.key(at(0)))
    again = card(process="12" * 16, version="0.2.0")
    registry.open().announce(again)
    (found,) = reader.members().there
    assert (found.card, found.unrenewed_seconds) == (again, 0.0)


def test_leases_make_no_archive_and_hinder_none() -> None:
    registry = BucketRegistry()
    registry.open().announce(MINE)
    provider = registry.bare
    assert kept_identity(provider, KEYS) is None
    assert list_archives(provider) == []
    ensure_identity(provider, KEYS, 1, bytes)
    assert list_archives(provider) == [("DefaultCluster", "broker-a")]


def test_on_a_file_system_a_node_that_leaves_leaves_no_directory(tmp_path: Path) -> None:
    from tiered.provider.posix import PosixProvider

    clock = ManualClock()
    provider = PosixProvider(str(tmp_path / "archive"), clock)
    ensure_identity(provider, KEYS, 1, lambda count: bytes(count))
    lease = BucketMembership(provider, KEYS, clock, 1.0).announce(card("a/b"))
    lease.renew(card("a/b"))
    assert len(list(tmp_path.rglob("lease/a%2Fb/*"))) == 1
    lease.leave()
    assert list(tmp_path.rglob("a%2Fb")) == []


def test_a_list_and_a_membership_are_not_both_looked_at() -> None:
    both = {"TIERED_GATEWAY_MEMBERSHIP": "bucket", "TIERED_GATEWAY_READ_NODES": "a:1"}
    with pytest.raises(Invalid, match=r"gateway\.read_nodes and gateway\.membership are both set"):
        check(load(env=both))
    check(load(env={"TIERED_GATEWAY_MEMBERSHIP": "bucket", "TIERED_SERVE_MEMBERSHIP": "bucket"}))
    with pytest.raises(Invalid, match=r'serve\.membership must be one of "", bucket'):
        load(env={"TIERED_SERVE_MEMBERSHIP": "zk://a:1/x"})


def test_leases_are_neither_locked_nor_stored_for_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Store] = []

    def opened(url: str, store: Store, clock: Clock, **options: object) -> MemoryProvider:
        seen.append(store)
        return MemoryProvider("", clock)

    monkeypatch.setattr("tiered.membership.open.open_provider", opened)
    store = Store(object_lock_ms=86_400_000, storage_class="STANDARD_IA")
    settings = replace(Settings(), archive=Archive(url="s3://bucket/prefix"), store=store)
    open_membership(settings, ManualClock(), look_seconds=1.0)
    assert [(one.object_lock_ms, one.storage_class, one.attempts) for one in seen] == [(0, "", 1)]
    with pytest.raises(Invalid, match=r"archive\.url"):
        open_membership(Settings(), ManualClock(), look_seconds=1.0)
