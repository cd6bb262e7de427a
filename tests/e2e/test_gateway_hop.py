"""The unmodified Java client and a real broker, with the gateway between: hot traffic, administration, TLS, the pages."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.client import JavaClient
from tests.kit.gatewayproc import Gateway

pytestmark = pytest.mark.broker

WIRE = Path(__file__).parent.parent / "data" / "wire"


@pytest.fixture(scope="module", params=[cache.ROCKETMQ_5, cache.ROCKETMQ_4])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    work = tmp_path_factory.mktemp("hop")
    with (
        NameServer(request.param, work / "namesrv", tls=True) as name_server,
        Broker(request.param, work / "broker", name_server, tls=True) as broker,
    ):
        broker.create_topic("Hot")
        yield broker


@pytest.fixture(scope="module")
def gateway(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Without any archive: hot traffic needs none."""
    work = tmp_path_factory.mktemp("gateway")
    with Gateway(work, broker.name_server.address, f"file://{work}/none").running() as gateway:
        yield gateway


def client(broker: Broker, gateway: Gateway, work: Path) -> JavaClient:
    return JavaClient(
        broker.version, work / "client", name_server=gateway.address, broker=gateway.broker("Hot")
    )


def page(gateway: Gateway, path: str) -> str:
    port = (Path(str(gateway.settings["gateway.state_directory"])) / "gateway-web-port").read_text().strip()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_send_and_consume(broker: Broker, gateway: Gateway, tmp_path: Path) -> None:
    java = client(broker, gateway, tmp_path)
    sent = java.run("produce", topic="Hot", n=500, tags="A,B")
    assert sum(broker.offsets("Hot", queue).stop for queue in range(4)) == 500
    consumed = java.run("consume", topic="Hot", group="g_hop", n=500)
    ids = sorted(str(line["msg_id"]) for line in consumed.lines())
    assert ids == sorted(str(line["msg_id"]) for line in sent.lines())

    status = json.loads(page(gateway, "/status"))
    assert status["ready"] is False, "there is no archive"
    assert status["archive"] != "open"
    assert status["archive"] in status["problem"]
    assert [entry["broker"] for entry in status["brokers"]] == [broker.address]
    metrics = page(gateway, "/metrics")
    assert 'tiered_gateway_requests_total{kind="send"}' in metrics
    assert 'tiered_gateway_requests_total{kind="pull"}' in metrics
    assert "tiered_gateway_archive_open 0.0" in metrics
    assert 'gateway_held_total{outcome="failed_closed"}' not in metrics


def test_administration_is_the_same_through_the_gateway(broker: Broker, gateway: Gateway) -> None:
    through = gateway.broker("Hot")
    assert through != broker.address
    for code, fields in (
        (remoting.MAX_OFFSET, {"topic": "Hot", "queueId": "0"}),
        (remoting.GET_BROKER_CONFIG, {}),
    ):
        straight, hop = (
            remoting.request(broker.address, code, fields),
            remoting.request(through, code, fields),
        )
        assert (straight.code, straight.fields) == (hop.code, hop.fields)
    unknown = remoting.request(through, 31_999)
    assert unknown.code == 3
    route = remoting.request(gateway.address, remoting.ROUTE, {"topic": "Hot"})
    plain = remoting.request(broker.name_server.address, remoting.ROUTE, {"topic": "Hot"})
    assert route.body == plain.body.replace(broker.address.encode(), through.encode())


def test_tls_on_the_same_ports(broker: Broker, tmp_path: Path) -> None:
    """A client that begins with a handshake gets TLS, one that does not is served in the clear; towards the broker TLS too."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=gateway",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    tls = {"gateway.tls_certificate": certificate, "gateway.tls_key": key, "gateway.tls_upstream": True}
    with Gateway(tmp_path, broker.name_server.address, f"file://{tmp_path}/none", **tls).running() as gateway:
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        request = (WIRE / "cluster-106.request.bin").read_bytes()
        host, port = gateway.address.split(":")
        plain = socket.create_connection((host, int(port)), 10)
        with context.wrap_socket(plain) as secret:
            assert secret.version() in ("TLSv1.2", "TLSv1.3")
            secret.sendall(request)
            assert secret.recv(4096)[8:].startswith(b'{"code":0')
        assert client(broker, gateway, tmp_path).run("produce", topic="Hot", n=20).path.exists()


def test_sigterm_ends_it_cleanly(broker: Broker, tmp_path: Path) -> None:
    with Gateway(tmp_path, broker.name_server.address, f"file://{tmp_path}/none").running() as gateway:
        gateway.child.send(signal.SIGTERM)
        assert gateway.child.wait(20) == 0
        assert "the gateway has stopped" in gateway.output()
