"""Read nodes in a real etcd: watches, leases that end, servers that are away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.etcdserver import Etcd, etcd
from tests.kit.memberships import EtcdRegistry, card, names
from tests.kit.ports import free_port
from tests.kit.process import PATIENCE
from tests.unit.test_membership_registry import parsed
from tiered.errors import Conflict, Unavailable
from tiered.membership.base import MemberState
from tiered.membership.etcd import EtcdMembership

pytestmark = pytest.mark.etcd

LONG = 600.0
MINE = card(lease_ms=600_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with etcd(tmp_path_factory.mktemp("etcd")) as made:
        yield made


@pytest.fixture
def registry(server: Etcd) -> EtcdRegistry:
    return EtcdRegistry(server)


class Waiting:
    """Somebody in a ``wait`` of ten minutes, in a thread."""

    def __init__(self, membership: EtcdMembership) -> None:
        self.thread = threading.Thread(target=membership.wait, args=(LONG, threading.Event()), daemon=True)
        self.thread.start()

    def ended(self) -> bool:
        self.thread.join(20 * PATIENCE)
        return not self.thread.is_alive()


def test_a_watch_ends_with_any_change_and_with_the_close(registry: EtcdRegistry) -> None:
    one, reader = registry.open(), registry.open()
    assert isinstance(reader, EtcdMembership)
    reader.members()
    waiting = Waiting(reader)
    lease = one.announce(MINE)
    assert waiting.ended()
    assert names(reader.members()) == ["node-1"]
    waiting = Waiting(reader)
    lease.renew(MINE.said(MemberState.DRAINING))
    assert waiting.ended()
    reader.members()
    waiting = Waiting(reader)
    lease.leave()
    assert waiting.ended()
    assert names(reader.members()) == []
    waiting = Waiting(reader)
    time.sleep(0.1)
    reader.close()
    assert waiting.ended()


def test_what_changed_before_the_watch_began_ends_it_too(registry: EtcdRegistry) -> None:
    one, reader = registry.open(), registry.open()
    assert isinstance(reader, EtcdMembership)
    reader.members()
    one.announce(MINE)
    assert Waiting(reader).ended()


def test_a_renewal_that_says_nothing_new_disturbs_nobody(registry: EtcdRegistry) -> None:
    one, reader = registry.open(), registry.open()
    lease = one.announce(MINE)
    (before,) = reader.members().there
    lease.renew(MINE)
    (after,) = reader.members().there
    assert before.number == after.number


def leases(server: Etcd) -> list[str]:
    return [str(one["ID"]) for one in server.ask("lease/leases", {}).body.get("leases", ())]


def test_a_lease_that_etcd_ended_is_taken_again_and_a_name_that_went_is_not(registry: EtcdRegistry) -> None:
    before = leases(registry.server)
    one, two = registry.open(), registry.open()
    lease = one.announce(MINE)
    (own,) = set(leases(registry.server)) - {*before}
    registry.server.ask("lease/revoke", {"ID": own})
    assert names(two.members()) == []
    lease.renew(MINE)
    assert names(two.members()) == ["node-1"]
    (own,) = set(leases(registry.server)) - {*before}
    registry.server.ask("lease/revoke", {"ID": own})
    rival = card(process="e" * 32, address="10.0.0.9:1", lease_ms=600_000)
    two.announce(rival)
    with pytest.raises(Conflict, match="went to another process"):
        lease.renew(MINE.said(MemberState.DRAINING))
    lease.leave()
    assert [member.card for member in two.members().there] == [rival]


def test_nothing_is_left_of_who_left_or_was_refused(registry: EtcdRegistry) -> None:
    before = leases(registry.server)
    one, two = registry.open(), registry.open()
    lease = one.announce(MINE)
    with pytest.raises(Conflict):
        two.announce(card(process="e" * 32, address="10.0.0.9:1"))
    lease.leave()
    assert leases(registry.server) == before


def test_etcd_killed_and_back(registry: EtcdRegistry) -> None:
    """Renewals and looks fail, and go on when it is back; what it kept is there."""
    one, reader = registry.open(), registry.open()
    lease = one.announce(MINE)
    with registry.away():
        for ask in (reader.members, lambda: lease.renew(MINE)):
            with pytest.raises(Unavailable, match="etcd does not answer"):
                ask()
        began = time.monotonic()
        reader.wait(0.3, threading.Event())
        assert time.monotonic() - began >= 0.3, "no look at once, again and again"
    assert names(reader.members()) == ["node-1"]
    lease.renew(MINE.said(MemberState.DRAINING))
    assert [member.card.state for member in reader.members().there] == [MemberState.DRAINING]


def test_another_server_is_asked_where_one_is_away(registry: EtcdRegistry) -> None:
    found = parsed(f"etcd://127.0.0.1:{free_port()},{registry.server.address}/{registry.prefix}")
    registry.open().announce(MINE)
    assert names(EtcdMembership(found.servers, found.place, KEYS).members()) == ["node-1"]


def test_another_archives_nodes_are_others(registry: EtcdRegistry, tmp_path: Path) -> None:
    from tiered.archive.keys import ArchiveKeys

    registry.open().announce(MINE)
    there = EtcdMembership([("127.0.0.1", registry.server.port)], registry.prefix, ArchiveKeys("c", "b"))
    assert names(there.members()) == []
