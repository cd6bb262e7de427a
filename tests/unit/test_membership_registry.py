"""What a setting of membership names, and what is wrong with one that names nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kit import cache
from tiered.clock import Clock, ManualClock
from tiered.daemon.checks import cautions, check
from tiered.daemon.config import load
from tiered.errors import Invalid
from tiered.membership.open import open_membership
from tiered.membership.registry import Registry, parse_membership
from tiered.provider.memory import MemoryProvider
from tiered.settings import Archive, Settings, Store


def parsed(text: str) -> Registry:
    found = parse_membership(text, key="serve.membership")
    assert found is not None
    return found


def test_what_names_something() -> None:
    assert parse_membership("", key="serve.membership") is None
    assert parsed("bucket") == Registry("bucket")
    assert parsed("etcd://a:1,[::1]:2/x/y/") == Registry("etcd", (("a", 1), ("::1", 2)), "x/y")
    assert parsed("etcds://a:1/x") == Registry("etcd", (("a", 1),), "x", tls=True)
    assert parsed("kubernetes:read-nodes") == Registry("kubernetes", place="read-nodes")


@pytest.mark.parametrize(
    "text",
    [
        "Bucket",
        "etcd:",
        "etcd://a:1",
        "etcd://a:1/",
        "etcd://a/x",
        "etcd://u:p@a:1/x",
        "etcds://u:p@a:1/x",
        "etcds://a:1",
        "kubernetes:",
        "kubernetes:A_b",
        "zk://a:1/x",
    ],
)
def test_what_names_nothing(text: str) -> None:
    with pytest.raises(Invalid, match=r"gateway\.membership"):
        parse_membership(text, key="gateway.membership")


def test_a_list_and_a_membership_are_not_both_looked_at() -> None:
    both = {"TIERED_GATEWAY_MEMBERSHIP": "bucket", "TIERED_GATEWAY_READ_NODES": "a:1"}
    with pytest.raises(Invalid, match=r"gateway\.read_nodes and gateway\.membership are both set"):
        check(load(env=both))
    check(load(env={"TIERED_GATEWAY_MEMBERSHIP": "bucket", "TIERED_SERVE_MEMBERSHIP": "etcd://a:1/x"}))


def test_what_etcd_needs_comes_in_pairs_and_a_password_in_the_clear_is_said() -> None:
    for name, missing in (
        ("USER", "password"),
        ("PASSWORD", "user"),
        ("KEY", "certificate"),
        ("CERTIFICATE", "key"),
    ):
        with pytest.raises(Invalid, match="go together") as caught:
            check(load(env={f"TIERED_ETCD_{name}": "x"}))
        assert caught.value.fields["missing"] == f"etcd.{missing}"
    user = {"TIERED_ETCD_USER": "u", "TIERED_ETCD_PASSWORD": "p"}
    for scheme, said in (("etcd", True), ("etcds", False)):
        loaded = load(env={**user, "TIERED_SERVE_MEMBERSHIP": f"{scheme}://a:1/x"})
        check(loaded)
        assert any("in the clear" in one for one in cautions(loaded.settings)) == said
    assert "p" in loaded.secrets()


def test_every_driver_is_opened_without_a_request() -> None:
    settings = replace(Settings(), archive=Archive(url="s3://bucket/prefix"))
    for text in ("bucket", "etcd://127.0.0.1:1/x", "etcds://127.0.0.1:1/x", "kubernetes:here"):
        made = open_membership(text, settings, ManualClock(), key="serve.membership", look_seconds=1.0)
        assert made is not None
        made.close()
    assert open_membership("", settings, ManualClock(), key="serve.membership", look_seconds=1.0) is None
    with pytest.raises(Invalid, match=r"archive\.url"):
        open_membership("bucket", Settings(), ManualClock(), key="serve.membership", look_seconds=1.0)


def test_leases_are_neither_locked_nor_stored_for_a_month(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Store] = []

    def opened(url: str, store: Store, clock: Clock, **options: object) -> MemoryProvider:
        seen.append(store)
        return MemoryProvider("", clock)

    monkeypatch.setattr("tiered.membership.open.open_provider", opened)
    store = Store(object_lock_ms=86_400_000, storage_class="STANDARD_IA")
    settings = replace(Settings(), archive=Archive(url="s3://bucket/prefix"), store=store)
    open_membership("bucket", settings, ManualClock(), key="serve.membership", look_seconds=1.0)
    assert [(one.object_lock_ms, one.storage_class, one.attempts) for one in seen] == [(0, "", 1)]


def test_etcd_is_built_from_what_is_pinned() -> None:
    module = (cache.ETCD_DIRECTORY / "go.mod").read_text()
    assert f"require go.etcd.io/etcd/server/v3 {cache.ETCD}\n" in module
    sums = (cache.ETCD_DIRECTORY / "go.sum").read_text().splitlines()
    pinned = f"go.etcd.io/etcd/server/v3 {cache.ETCD}"
    assert len([line for line in sums if line.startswith((f"{pinned} h1:", f"{pinned}/go.mod h1:"))]) == 2
    files = {path.name for path in cache.ETCD_DIRECTORY.iterdir()}
    assert files == {path.name for path in cache.ETCD_SOURCES}, "another source gives another binary"
