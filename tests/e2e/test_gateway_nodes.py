"""Unmodified consumers far behind, whose messages read nodes read: all of it comes once, whatever becomes of the nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.laggard import HELD, Laggard
from tests.kit.nodeproc import ReadNode

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

MOST_STALLED_SECONDS = 5.0


@pytest.fixture
def nodes(cold: ColdScene, request: pytest.FixtureRequest) -> Iterator[list[ReadNode]]:
    """Three read nodes over the S3 server's archive, which announce themselves where the test says so."""
    archive = cold.archives["s3"]
    membership = getattr(request, "param", "")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                ReadNode(
                    cold.directory,
                    archive.url,
                    cold.group(f"node-{number}"),
                    environment=archive.environment,
                    **{
                        "source.broker": cold.broker.name,
                        "serve.membership": membership,
                        "serve.name": f"{request.node.originalname}-{number}",
                    },  # type: ignore[arg-type]
                ).running()
            )
            for number in range(3)
        ]


@pytest.fixture
def gateway(cold: ColdScene, nodes: list[ReadNode]) -> Iterator[Gateway]:
    membership = str(nodes[0].settings["serve.membership"])
    addresses = "" if membership else ",".join(node.address for node in nodes)
    settings = {"gateway.read_nodes": addresses, "gateway.membership": membership}
    with cold.gateway("s3", **settings).running() as gateway:
        yield gateway


def reads(gateway: Gateway, outcome: str) -> float:
    return gateway.metric("tiered_node_reads_total", outcome=outcome) or 0.0


def test_nodes_read_what_consumers_get(cold: ColdScene, gateway: Gateway, nodes: list[ReadNode]) -> None:
    client = cold.client(name_server=gateway.address)
    consumer = client.start("push", topic=TOPIC, group=cold.group("nodes"), **ending(len(cold.sent)))
    found = compare(cold.sent, consumer.wait().lines())
    assert found.exact, str(found)
    assert reads(gateway, "given") > 0
    assert reads(gateway, "failed") == reads(gateway, "here") == 0
    assert sum(node.given() > 0 for node in nodes) >= 2, "four queues are one node's"
    assert gateway.status()["read_nodes"] == {node.address: "answers" for node in nodes}
    place = {(node.status()["archive"], node.status()["ready"]) for node in nodes}
    assert len(place) == 1
    assert next(iter(place))[1] is True


@pytest.mark.parametrize("nodes", ["bucket"], indirect=True)
def test_nodes_die_and_hang_and_come_back_and_consumers_only_wait(
    cold: ColdScene, gateway: Gateway, nodes: list[ReadNode]
) -> None:
    laggard = Laggard(cold, gateway.address, "nodes-die")
    consumer = laggard.start(rate=400)
    consumer.wait_taken(laggard.total // 10)
    stalls = []
    for what in (nodes[0].kill, nodes[1].pause, nodes[2].stop):
        before = consumer.taken()
        assert before < laggard.total * 3 // 4, "the nodes went too late"
        what()
        began = time.monotonic()
        consumer.wait_taken(before + HELD * len(laggard.begin))  # more than the client held already
        stalls.append(time.monotonic() - began - HELD * len(laggard.begin) / 400)
    assert reads(gateway, "here") > 0
    assert all(said != "answers" for said in gateway.status()["read_nodes"].values())
    nodes[0].start()
    nodes[1].resume()
    given = reads(gateway, "given")
    laggard.wait_end(consumer)
    found = laggard.judge(consumer.finish().lines())
    assert found.exact, str(found)
    assert max(stalls) < MOST_STALLED_SECONDS, stalls
    print(f"stalled for {stalls}; by nodes again: {reads(gateway, 'given') - given}")
