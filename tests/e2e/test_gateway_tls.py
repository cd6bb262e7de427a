"""TLS on both sides of the gateway: clients that check its certificate, and a broker and name server whose it checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache, gatewayproc
from tests.kit.broker import NO_TLS
from tests.kit.certificates import Authority
from tests.kit.client import read_lines
from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.process import ChildError

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

VERSIONS = [cache.ROCKETMQ_5, cache.ROCKETMQ_4]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(certificates: Path) -> Authority:
    return Authority(certificates / "ours")


@pytest.fixture(scope="module")
def stranger(certificates: Path) -> Authority:
    """An authority that has signed nothing here."""
    return Authority(certificates / "another")


@pytest.fixture(scope="module")
def shown(authority: Authority) -> dict[str, str]:
    """Settings of a gateway that shows a certificate."""
    made = authority.issue("gateway")
    return {"gateway.tls_certificate": str(made.certificate), "gateway.tls_key": str(made.key)}


@pytest.fixture(scope="module")
def gateway(cold: ColdScene, shown: dict[str, str]) -> Iterator[Gateway]:
    with cold.gateway("posix", **shown).running() as gateway:
        yield gateway


def trusting(authority: Authority) -> dict[str, str]:
    """Properties of a Java client that speaks TLS only, and only to whom the authority has signed."""
    return {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_checks_the_certificate_reads_everything(
    cold: ColdScene, gateway: Gateway, authority: Authority, version: str
) -> None:
    client = cold.client(version, name_server=gateway.address)
    group = cold.group("tls")
    outcome = client.run(
        "push", topic=TOPIC, group=group, **ending(len(cold.sent)), properties=trusting(authority)
    )
    found = compare(cold.sent, outcome.lines())
    assert found.exact, str(found)


def test_a_client_that_trusts_another_authority_gets_nothing(
    cold: ColdScene, gateway: Gateway, stranger: Authority, tmp_path: Path
) -> None:
    client = cold.client(name_server=gateway.address)
    group = cold.group("tls-stranger")
    out = tmp_path / "received.jsonl"
    with pytest.raises(ChildError, match="MQClientException"):
        client.run("pull", topic=TOPIC, group=group, start="0", out=out, properties=trusting(stranger))
    assert list(read_lines(out)) == []


def test_a_client_without_tls_is_served_on_the_same_port(cold: ColdScene, gateway: Gateway) -> None:
    outcome = cold.client(name_server=gateway.address).run(
        "push", topic=TOPIC, group=cold.group("clear"), **ending(len(cold.sent))
    )
    found = compare(cold.sent, outcome.lines())
    assert found.exact, str(found)


@pytest.fixture(scope="module")
def encrypted(cold: ColdScene, authority: Authority) -> Iterator[ColdScene]:
    """The scene, its servers started again with certificates. They still take clients that speak in the clear."""
    made = authority.issue("server")
    properties = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(made.certificate),
        "tls.server.keyPath": str(made.key),
    }
    restarted(cold, properties)
    yield cold
    restarted(cold, NO_TLS)


def restarted(scene: ColdScene, properties: dict[str, str]) -> None:
    scene.broker.kill()
    scene.name_server.kill()
    for server in (scene.name_server, scene.broker):
        server.properties = dict(properties)
        server.start()


@pytest.mark.parametrize("version", VERSIONS)
def test_tls_all_the_way(
    encrypted: ColdScene, shown: dict[str, str], authority: Authority, version: str
) -> None:
    upstream: dict[str, Any] = {
        "gateway.tls_upstream": True,
        "gateway.tls_upstream_ca": str(authority.certificate),
    }
    with encrypted.gateway("posix", **shown, **upstream).running() as gateway:
        client = encrypted.client(version, name_server=gateway.address)
        group = encrypted.group("tls-both")
        outcome = client.run(
            "push", topic=TOPIC, group=group, **ending(len(encrypted.sent)), properties=trusting(authority)
        )
        found = compare(encrypted.sent, outcome.lines())
        assert found.exact, str(found)


def test_a_gateway_that_trusts_another_authority_forwards_nothing(
    encrypted: ColdScene, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatewayproc, "START_SECONDS", 2.0)
    upstream: dict[str, Any] = {
        "gateway.tls_upstream": True,
        "gateway.tls_upstream_ca": str(stranger.certificate),
    }
    gateway = encrypted.gateway("posix", **upstream)
    try:
        with pytest.raises(ChildError, match="its first answer"):
            gateway.start()
        assert gateway.child.running
        assert "certificate" in gateway.output().lower()
    finally:
        gateway.kill()
