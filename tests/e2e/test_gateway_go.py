"""Consumers made with RocketMQ's client for Go, far behind, with the gateway between: everything comes once, as it was sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.goconsumer import GoConsumer

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.goclient, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    with cold.gateway("posix").running() as gateway:
        yield gateway


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_everything_comes_once(cold: ColdScene, gateway: Gateway, orderly: bool) -> None:
    group = cold.group(f"go-{orderly}")
    consumer = GoConsumer(cold.directory, gateway.address, TOPIC, group, n=len(cold.sent), orderly=orderly)
    try:
        found = compare(cold.sent, consumer.lines())
    finally:
        consumer.kill()
    assert found.complete, str(found)
    assert not found.repeated, str(found)
    assert not (orderly and found.disordered), str(found)
    assert consumer.summary() == {"consumed": len(cold.sent), "ended": "all"}


def test_a_tag_selects_the_same_messages(cold: ColdScene, gateway: Gateway) -> None:
    wanted = [line for line in cold.sent if line["tags"] == "paid"]
    consumer = GoConsumer(
        cold.directory, gateway.address, TOPIC, cold.group("go-tag"), n=len(wanted), sub="paid"
    )
    try:
        found = compare(wanted, consumer.lines())
    finally:
        consumer.kill()
    assert found.complete, str(found)
    assert not found.repeated, str(found)
