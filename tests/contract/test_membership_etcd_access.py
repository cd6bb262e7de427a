"""A real etcd over TLS that knows users: who is let in, what is said to who is not, and tokens that end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.certificates import Authority
from tests.kit.etcdserver import Etcd, etcd
from tests.kit.memberships import card, names
from tiered.clock import ManualClock
from tiered.errors import Invalid, TieredError, Unavailable
from tiered.membership.base import Membership, MemberState
from tiered.membership.open import open_membership
from tiered.settings import Etcd as Access
from tiered.settings import Settings

pytestmark = pytest.mark.etcd

PASSWORD = "so-secret-that-nobody-sees-it"
MINE = card(lease_ms=600_000)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Etcd]:
    """Tokens hold for a second unused, which etcd looks at once a second."""
    with etcd(tmp_path_factory.mktemp("etcd"), authority, token_seconds=1) as made:
        yield made.with_users("nodes/", tiered=PASSWORD, stranger=PASSWORD)


@pytest.fixture
def access(authority: Authority) -> Access:
    return Access(user="tiered", password=PASSWORD, ca=str(authority.certificate))


def opened(server: Etcd, access: Access, scheme: str = "etcds") -> Membership:
    settings = replace(Settings(), etcd=access)
    text = f"{scheme}://{server.address}/nodes"
    made = open_membership(text, settings, ManualClock(), key="serve.membership", look_seconds=1.0)
    assert made is not None
    return made


def refused(server: Etcd, access: Access, scheme: str = "etcds") -> TieredError:
    """What is said, by whoever looks and whoever announces himself; never the password."""
    membership = opened(server, access, scheme)
    said = []
    for ask in (membership.members, lambda: membership.announce(MINE)):
        with pytest.raises(TieredError) as caught:
            ask()
        said.append(caught.value)
        assert PASSWORD not in f"{caught.value!r} {caught.value} {caught.value.fields}"
    assert str(said[0].message) == str(said[1].message)
    membership.close()
    return said[0]


def test_a_node_and_a_gateway_that_may(
    server: Etcd, access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password named by a variable and by a file; a watch, too, is a user's."""
    monkeypatch.setenv("NODES_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    node = opened(server, replace(access, password="env:NODES_PASSWORD"))
    gateway = opened(server, replace(access, password=f"file:{tmp_path / 'password'}"))
    assert names(gateway.members()) == []
    waiting = threading.Thread(target=gateway.wait, args=(600.0, threading.Event()), daemon=True)
    waiting.start()
    time.sleep(0.2)
    lease = node.announce(MINE)
    waiting.join(60)
    assert not waiting.is_alive(), "the watch saw it"
    assert names(gateway.members()) == ["node-1"]
    lease.leave()
    assert names(gateway.members()) == []
    began = time.monotonic()
    gateway.wait(1.5, threading.Event())
    assert time.monotonic() - began >= 1.5, "a watch that etcd refuses would end at once"


def test_tokens_that_end_are_renewed_and_nobody_notices(server: Etcd, access: Access) -> None:
    node, gateway = opened(server, access), opened(server, access)
    lease = node.announce(MINE)
    assert names(gateway.members()) == ["node-1"]
    time.sleep(4.5)
    lease.renew(MINE.said(MemberState.DRAINING))
    assert [member.card.state for member in gateway.members().there] == [MemberState.DRAINING]
    server.kill()
    server.start()
    lease.renew(MINE)
    assert [member.card.state for member in gateway.members().there] == [MemberState.LIVE]
    lease.leave()


def test_a_password_that_changes_is_read_anew(server: Etcd, access: Access, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the old one")
    membership = opened(server, replace(access, password=f"file:{file}"))
    with pytest.raises(Invalid, match="does not know this user with this password"):
        membership.members()
    file.write_text(PASSWORD)
    assert names(membership.members()) == []


def test_who_may_not_hears_why_and_never_the_password(server: Etcd, access: Access, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    for wrong, kind, said in (
        (replace(access, ca=str(other.certificate)), Unavailable, r"not trusted.*etcd\.ca"),
        (replace(access, ca=""), Unavailable, r"not trusted.*etcd\.ca"),
        (replace(access, password=f"{PASSWORD}!"), Invalid, r"does not know.*tiered.*etcd\.password"),
        (replace(access, user="nobody"), Invalid, r"does not know.*nobody"),
        (replace(access, user="", password=""), Invalid, r"without a name.*etcd\.user"),
        (replace(access, user="stranger"), Invalid, r"may not read and write.*stranger.*grant-permission"),
    ):
        found = refused(server, wrong)
        assert isinstance(found, kind), found
        assert re.search(said, f"{found} {found.hint}"), found
    with pytest.raises(Invalid, match=r"etcd\.ca cannot be read"):
        opened(server, replace(access, ca=str(tmp_path / "none.pem")))
    with pytest.raises(Invalid, match=r"etcd\.certificate, etcd\.key cannot be read"):
        opened(server, replace(access, certificate=access.ca, key=access.ca))
    with pytest.raises(Invalid, match=r"etcd\.password names a variable that is not set"):
        opened(server, replace(access, password="env:NOT_THERE_AT_ALL"))


def test_tls_and_none_are_not_mixed_up(server: Etcd, access: Access, tmp_path: Path) -> None:
    found = refused(server, access, "etcd")
    assert "etcds://" in f"{found} {found.hint}", found
    with etcd(tmp_path / "plain") as plain:
        found = refused(plain, access)
        assert isinstance(found, Unavailable)
        assert "TLS" in f"{found} {found.hint}" or "SSL" in str(found), found
        found = refused(plain, access, "etcd")
        assert "etcd has no users" in str(found)


def test_an_etcd_that_asks_for_a_certificate_gets_the_one_that_is_set(
    authority: Authority, tmp_path: Path
) -> None:
    with etcd(tmp_path / "asks", authority, asks=True) as server:
        own = authority.issue("node")
        access = Access(ca=str(authority.certificate))
        shown = replace(access, certificate=str(own.certificate), key=str(own.key))
        node, gateway = opened(server, shown), opened(server, shown)
        lease = node.announce(MINE)
        assert names(gateway.members()) == ["node-1"]
        lease.leave()
        stranger = Authority(tmp_path / "stranger").issue("node")
        others = replace(access, certificate=str(stranger.certificate), key=str(stranger.key))
        for refusing in (access, others):
            found = refused(server, refusing)
            assert isinstance(found, Unavailable)
            assert "etcd.certificate" in str(found.hint), found
