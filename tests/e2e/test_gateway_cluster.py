"""A cluster of two brokers, each with its own archive and gateway, the gateways in a row: one address for the consumers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kit import cache, remoting
from tests.kit.broker import NameServer
from tests.kit.coldscene import TOPIC, ColdScene, cold_scene, ending
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MESSAGES = 6000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ColdScene, ColdScene]]:
    """Two brokers that have deleted most of one topic, built side by side."""
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        names = stack.enter_context(NameServer(cache.ROCKETMQ_5, directory / "namesrv"))

        def build(name: str) -> ColdScene:
            return stack.enter_context(
                cold_scene(directory / name, messages=MESSAGES, name_server=names, broker_name=name)
            )

        first, second = pool.map(build, ("broker-a", "broker-b"))
        yield first, second


def stored_by(scene: ColdScene, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of one broker, told by the store host in their ids: queue ids are the same at both."""
    (of_one,) = {line["offset_msg_id"][:16] for line in scene.sent}
    return [line for line in lines if line["offset_msg_id"].startswith(of_one)]


def fronted(gateway: Gateway) -> list[str]:
    """Brokers that a gateway stands for."""
    return [broker["broker"] for broker in gateway.status()["brokers"]]


def test_a_consumer_reads_what_both_brokers_deleted(brokers: tuple[ColdScene, ColdScene]) -> None:
    first, second = brokers
    assert first.cold() > MESSAGES // 2
    assert second.cold() > MESSAGES // 2
    with first.gateway(**{"gateway.brokers": "own"}).running() as inner:
        row = {"gateway.brokers": "own", "gateway.namesrv_upstream": inner.address}
        with second.gateway(**row).running() as outer:
            addresses = remoting.route_addresses(outer.address, TOPIC)
            assert len(addresses) == 2
            assert not addresses & {first.broker.address, second.broker.address}, "both are fronted"
            assert fronted(inner) == [first.broker.address]
            assert fronted(outer) == [second.broker.address]
            client = first.client(name_server=outer.address)
            lines = client.run(
                "push", topic=TOPIC, group=first.group("cluster"), **ending(2 * MESSAGES)
            ).lines()
    assert len(lines) == 2 * MESSAGES
    for scene in brokers:
        found = compare(scene.sent, stored_by(scene, lines))
        assert found.exact, str(found)
