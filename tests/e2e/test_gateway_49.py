"""A 4.9 broker behind the gateway, with clients of its own version and of 5.x.

It knows no lite pull request, so lite consumers of 5.x get nothing from it, with or without a gateway.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.consumerkinds import KINDS
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CHOSEN = (
    "push-4.9.7",
    "push-orderly-4.9.7",
    "lite-begin-4.9.7",
    "pull-4.9.7",
    "push-5.5.0",
)


@pytest.fixture(scope="module")
def cold(cold_49: ColdScene) -> ColdScene:
    """The scene with the older broker."""
    return cold_49


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    """One that asks the broker about every pull first; others do without for a second."""
    with cold.gateway("posix", **{"gateway.cold_recheck_ms": 0}).running() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def consumers(cold: ColdScene, gateway: Gateway) -> Iterator[dict[str, Running]]:
    """All of them, side by side."""
    kinds = {str(kind): kind for kind in KINDS}
    started = {}
    for name in CHOSEN:
        kind = kinds[name]
        client = cold.client(kind.version, name_server=gateway.address)
        started[name] = client.start(
            kind.command, topic=TOPIC, group=cold.group(name), **ending(len(cold.sent)), **kind.options
        )
    yield started
    for consumer in started.values():
        consumer.kill()


def test_without_the_gateway_most_of_it_is_skipped(cold: ColdScene) -> None:
    hot = len(cold.sent) - cold.cold()
    client = cold.client()
    lines = client.run("push", topic=TOPIC, group=cold.group("absent"), n=hot, idle=60).lines()
    skipped = compare(cold.sent, lines).skipped
    print(f"{len(skipped):,} of {len(cold.sent):,} messages skipped")
    assert len(skipped) == cold.cold() > len(cold.sent) // 2


@pytest.mark.parametrize("name", CHOSEN)
def test_with_it_everything_comes_once_and_in_order(
    cold: ColdScene, consumers: dict[str, Running], name: str
) -> None:
    found = compare(cold.sent, consumers[name].wait().lines())
    assert found.exact, str(found)


def test_the_broker_was_asked_about_every_pull(gateway: Gateway, consumers: dict[str, Running]) -> None:
    assert all(consumer.wait().lines() for consumer in consumers.values())
    assert gateway.metric("tiered_cold_unasked_total") == 0
