"""A broker that was installed anew behind the gateway: what the archive has of its former life is not served."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.command import archive_once
from tests.kit.daemonproc import wait_for
from tests.kit.gatewayproc import Gateway

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "Twice"
OLD, NEW = 60, 10


def produce(broker: Broker, count: int) -> list[int]:
    """Send messages; where each lies in the log."""
    broker.create_topic(TOPIC, 1)
    sent = broker.client().run("produce", topic=TOPIC, n=count, queues=1, min=200, max=400).lines()
    return sorted(int(line["offset_msg_id"][-16:], 16) for line in sent)


@pytest.mark.parametrize("version", [cache.ROCKETMQ_5, cache.ROCKETMQ_4])
def test_its_former_messages_are_not_served(tmp_path: Path, version: str) -> None:
    url = f"file://{tmp_path / 'archive'}"
    with (
        NameServer(version, tmp_path / "namesrv") as name_server,
        Broker(version, tmp_path / "broker", name_server) as broker,
    ):
        places = produce(broker, OLD)
        assert archive_once(broker.store_dir, url).code == 0
        gateway = Gateway(tmp_path, name_server.address, url)
        with gateway.running():
            checked = "tiered_gateway_broker_checks_total"
            wait_for(lambda: gateway.metric(checked, outcome="same") == 1, "a broker that was compared", 30)
            assert gateway.ready()
            broker.kill()
            shutil.rmtree(broker.store_dir)
            broker.start()
            produce(broker, NEW)
            old = {"offset": str(places[-1])}
            assert remoting.request(broker.address, remoting.VIEW_MESSAGE, old).code == 1
            answer = remoting.request(gateway.broker(TOPIC), remoting.VIEW_MESSAGE, old)
            assert (answer.code, answer.body) == (2, b""), answer
            assert "installed anew" in answer.remark
            code, said = gateway.ask("/readyz")
            assert code == 503
            assert b"installed anew" in said
            assert gateway.metric("tiered_gateway_broker_differs") == 1
