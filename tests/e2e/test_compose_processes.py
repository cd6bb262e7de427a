"""What ``deploy/compose.yaml`` starts, started without containers: the same commands and settings, with paths and addresses of
this test in place of volumes and service names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import TIERED
from tests.kit.ports import BLOCK, free_block
from tests.kit.process import Child

pytestmark = pytest.mark.broker

COMPOSE = Path(__file__).resolve().parents[2] / "deploy" / "compose.yaml"
MESSAGES = 300


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"][name]
    return found


def here(environment: dict[str, str], replaced: dict[str, str]) -> dict[str, str]:
    """The service's environment with what a container would have in its own name space replaced."""
    found = dict(environment)
    for name, value in replaced.items():
        assert name in found, f"{name} is not in the compose file"
        found[name] = value
    return found


def test_the_processes_of_compose_archive_and_serve(tmp_path: Path) -> None:
    port = free_block()
    namesrv_listen = f"127.0.0.1:{port}"
    archive = f"file://{tmp_path}/archive"
    with (
        NameServer(cache.ROCKETMQ_5, tmp_path / "namesrv") as name_server,
        Broker(cache.ROCKETMQ_5, tmp_path / "data", name_server) as broker,
    ):
        tiered, gateway = service("tiered"), service("gateway")
        archiver = Child(
            "tiered",
            (*TIERED, *tiered["command"]),
            tmp_path / "tiered.log",
            here(
                tiered["environment"],
                {
                    "TIERED_SOURCE_STORE_DIR": str(broker.store_dir),
                    "TIERED_ARCHIVE_URL": archive,
                    "TIERED_WEB_HOST": "127.0.0.1",
                },
            )
            | {"TIERED_WEB_PORT": "0"},
        )
        front = Child(
            "gateway",
            (*TIERED, *gateway["command"]),
            tmp_path / "gateway.log",
            here(
                gateway["environment"],
                {
                    "TIERED_ARCHIVE_URL": archive,
                    "TIERED_GATEWAY_STATE_DIRECTORY": str(tmp_path / "state"),
                    "TIERED_GATEWAY_NAMESRV_UPSTREAM": name_server.address,
                    "TIERED_GATEWAY_NAMESRV_LISTEN": namesrv_listen,
                    "TIERED_GATEWAY_BROKER_LISTEN_HOST": "127.0.0.1",
                    "TIERED_GATEWAY_BROKER_LISTEN_PORTS": f"{port + 3}-{port + BLOCK - 1}",
                    "TIERED_GATEWAY_WEB_LISTEN": "127.0.0.1:0",
                },
            ),
        )
        try:
            front.wait_until(lambda: _answers(namesrv_listen), 60, "its first answer")
            broker.create_topic("Composed")
            (front_address,) = remoting.route_addresses(namesrv_listen, "Composed")
            assert front_address != broker.address
            java = broker.client().through(namesrv_listen, broker=front_address)
            java.run("produce", topic="Composed", n=MESSAGES)
            assert sum(broker.offsets("Composed", queue).stop for queue in range(4)) == MESSAGES
            archiver.wait_until(
                lambda: any((tmp_path / "archive").rglob("commit/*/*")), 60, "its first commit"
            )
            for process in (archiver, front):
                process.stop(60)
                assert not process.running
        finally:
            archiver.kill()
            front.kill()


def _answers(address: str) -> bool:
    try:
        return remoting.request(address, remoting.CLUSTER).code == 0
    except OSError:
        return False
