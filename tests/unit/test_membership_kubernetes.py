"""Leases of Kubernetes, against a fake of the API: the objects, conflicts, tokens, watches, what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.fakekubernetes import NAMESPACE, fake_kubernetes
from tests.kit.memberships import KubernetesRegistry, card, names
from tiered.archive.keys import ArchiveKeys
from tiered.clock import ManualClock
from tiered.errors import Conflict, Invalid, Unavailable
from tiered.membership.base import MemberState
from tiered.membership.kubernetes import ApiServer, KubernetesMembership

MINE = card()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[KubernetesRegistry]:
    with fake_kubernetes() as api:
        yield KubernetesRegistry(api, tmp_path / "token")


def test_the_objects_fit_the_schema(registry: KubernetesRegistry) -> None:
    import kubernetes_validate  # late: slow to import

    lease = registry.open().announce(card("ü/x"))
    lease.renew(card("ü/x"))
    assert len(registry.api.written) == 2
    for written in registry.api.written:
        found = {**written, "metadata": {k: v for k, v in written["metadata"].items() if k != "uid"}}
        kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)


def test_idle_costs_what_the_docs_say(registry: KubernetesRegistry) -> None:
    lease = registry.open().announce(MINE)
    reader = registry.open()
    registry.api.asked.clear()
    lease.renew(MINE)
    reader.members()
    registry.wait_briefly(reader)
    assert registry.api.asked == ["PUT", "GET", "WATCH"]


def test_a_watch_ends_with_any_change_and_with_the_close(registry: KubernetesRegistry) -> None:
    one, reader = registry.open(), registry.open()

    def waiting() -> threading.Thread:
        thread = threading.Thread(target=reader.wait, args=(600.0, threading.Event()), daemon=True)
        thread.start()
        return thread

    reader.members()
    for change in (lambda: one.announce(MINE), lambda: one.announce(MINE.said(MemberState.DRAINING))):
        thread = waiting()
        change()
        thread.join(60)
        assert not thread.is_alive()
        reader.members()
    thread = waiting()
    while registry.api.asked[-1] != "WATCH":
        pass
    reader.close()
    thread.join(60)
    assert not thread.is_alive()


def test_what_somebody_else_wrote_into_ones_own_lease_is_no_loss(registry: KubernetesRegistry) -> None:
    """`kubectl annotate`, and a write of one's own that was not heard of."""
    lease = registry.open().announce(MINE)
    with registry.api.changed:
        (item,) = registry.api.objects.values()
        registry.api.put("MODIFIED", {**item})
    lease.renew(MINE.said(MemberState.DRAINING))
    (found,) = registry.open().members().there
    assert found.card.state is MemberState.DRAINING
    with registry.api.changed:
        (item,) = registry.api.objects.values()
        registry.api.put("DELETED", item)
    lease.renew(MINE)
    assert names(registry.open().members()) == ["node-1"]


def test_a_lease_lost_while_draining_leaves_the_new_one_alone(registry: KubernetesRegistry) -> None:
    lease = registry.open().announce(MINE)
    registry.open().announce(card(process="e" * 32))
    lease.leave()
    assert len(registry.api.objects) == 1
    again = registry.open().announce(card(process="d" * 32))
    registry.open().announce(card(process="e" * 32))
    with pytest.raises(Conflict):
        again.renew(MINE.said(MemberState.DRAINING))
    again.leave()
    assert names(registry.open().members()) == ["node-1"]


def test_a_token_that_is_renewed_in_place(registry: KubernetesRegistry) -> None:
    reader = registry.open()
    reader.members()
    registry.api.token = "the next one"
    with pytest.raises(Unavailable, match="token"):
        reader.members()
    registry.token.write_text("the next one\n")
    reader.members()


def test_what_is_not_allowed_names_the_manifest(registry: KubernetesRegistry) -> None:
    server = ApiServer(registry.api.url, registry.token, registry.token)
    there = KubernetesMembership("elsewhere", KEYS, ManualClock(), 1.0, server)
    for ask in (there.members, lambda: there.announce(MINE)):
        with pytest.raises(Invalid, match=r"deploy/kubernetes-nodes\.yaml"):
            ask()


def test_outside_of_a_pod_it_says_so(tmp_path: Path) -> None:
    nowhere = ApiServer("https://127.0.0.1:1", tmp_path / "token", tmp_path / "ca.crt")
    with pytest.raises(Invalid, match="service account of the pod"):
        KubernetesMembership(NAMESPACE, KEYS, ManualClock(), 1.0, nowhere).members()


def test_another_archives_nodes_are_others(registry: KubernetesRegistry) -> None:
    registry.open().announce(MINE)
    server = ApiServer(registry.api.url, registry.token, registry.token)
    other = KubernetesMembership(NAMESPACE, ArchiveKeys("c", "b"), ManualClock(), 1.0, server)
    assert names(other.members()) == []
    other.announce(MINE)
    assert len(registry.api.objects) == 2


def test_of_a_time_without_answers_nothing_counts(registry: KubernetesRegistry) -> None:
    registry.open().announce(MINE)
    reader = registry.open()
    reader.members()
    registry.pass_time(registry.lease_ms / 1000 - 1, reader.members)
    with registry.away():
        registry.clock.advance(60)
        with pytest.raises(Unavailable):
            reader.members()
    assert names(reader.members()) == ["node-1"]


def test_a_lying_clock_in_a_lease_changes_nothing(registry: KubernetesRegistry) -> None:
    registry.clock.set_wall(1)
    registry.open().announce(MINE)
    registry.clock.set_wall(2**42)
    reader = registry.open()
    assert names(reader.members()) == ["node-1"]
    registry.pass_time(registry.lease_ms / 1000 - 1, reader.members)
    assert names(reader.members()) == ["node-1"]
    registry.pass_time(1, reader.members)
    assert names(reader.members()) == []
