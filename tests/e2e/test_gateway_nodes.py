"""Unmodified consumers far behind, whose messages read nodes read: all of it comes once, whatever becomes of the nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.command import tiered
from tests.kit.daemonproc import wait_for
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.kvhttp import HttpValues
from tests.kit.kvproc import ViewProcess
from tests.kit.laggard import HELD, Laggard
from tests.kit.nodeproc import ReadNode
from tests.kit.ports import free_port
from tests.kit.process import HURRIED
from tiered.archive.keys import LEASE_PREFIX, ArchiveKeys
from tiered.clock import SystemClock
from tiered.errors import TieredError
from tiered.keyvalue import Freshness, ReadRule
from tiered.model import MessageQueue
from tiered.placement.table import PlacementTable, publish_table, queue_digest
from tiered.provider.open import open_provider
from tiered.settings import Archive, Settings

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

MOST_STALLED_SECONDS = 5.0


@pytest.fixture
def nodes(cold: ColdScene, request: pytest.FixtureRequest) -> Iterator[list[ReadNode]]:
    """Three read nodes over the S3 server's archive, which announce themselves where the test says so."""
    archive = cold.archives["s3"]
    words = getattr(request, "param", "").split()
    hurried = "in-a-hurry" in words
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                ReadNode(
                    cold.directory,
                    archive.url,
                    cold.group(f"node-{number}"),
                    environment=archive.environment,
                    hurried=hurried,
                    **{
                        "source.broker": cold.broker.name,
                        "serve.membership": "bucket" if "bucket" in words else "",
                        "serve.name": f"{request.node.originalname}-{number}",
                        **({"serve.lease_ms": 3000} if hurried else {}),
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


def test_a_node_reads_the_key_value_view_of_the_archive(cold: ColdScene) -> None:
    """What was written through a view beside the broker is read from a node that only has the bucket."""
    archive = cold.archives["s3"]
    told: dict[str, Any] = {"source.broker": cold.broker.name, "kv.snapshot_ms": 0}
    view = ViewProcess(
        cold.directory, cold.broker, "beside-nodes", **told, **{"archive.url": cold.archives["posix"].url}
    )
    pages = f"127.0.0.1:{free_port()}"
    of_node: dict[str, Any] = {
        "serve.key_values": "true",
        "kv.http_listen": pages,
        "serve.key_value_writer": f"http://{view.address}",
    }
    node = ReadNode(
        cold.directory, archive.url, cold.group("kv-node"), environment=archive.environment, **told, **of_node
    )
    here = HttpValues(pages)
    try:
        there = view.start().values()
        there.create("positions")
        for number in range(100):
            there.put("positions", b"file-%d" % (number % 30), b"%d" % number)
        there.delete("positions", b"file-3")
        cold.archived()
        with node.running():
            whole = there.page("positions", b"", after=None, count=1000, rule=ReadRule(Freshness.LATEST))
            assert len(whole.entries) == 29
            assert here.page("positions", b"", after=None, count=1000) == whole
            there.put("positions", b"file-3", b"again")
            cold.archived()
            wanted = there.get("positions", b"file-3")
            wait_for(lambda: here.get("positions", b"file-3") == wanted, "the newest value on the node")
            with pytest.raises(TieredError, match="takes no writes"):
                here.put("positions", b"file-3", b"by the node")
            assert there.get("positions", b"file-3", ReadRule(Freshness.LATEST)) == wanted
    finally:
        here.close_all()
        view.end()


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


@pytest.mark.parametrize("nodes", ["bucket in-a-hurry"], indirect=True)
def test_placement_by_what_nodes_tell_moves_queues_under_a_consumer(
    cold: ColdScene, nodes: list[ReadNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All queues lie on one node; it tells what it is read, and ``tiered placement`` spreads them by that."""
    archive = cold.archives["s3"]
    for name, value in archive.environment.items():
        monkeypatch.setenv(name, value)
    settings = replace(Settings(), archive=replace(Archive(), url=archive.url))
    keys = ArchiveKeys(settings.source.cluster, cold.broker.name)
    provider = open_provider(archive.url, settings.store, SystemClock())
    names = [str(node.settings["serve.name"]) for node in nodes]
    for stored in list(provider.list(keys.key(LEASE_PREFIX))):  # of nodes that other tests killed
        if not any(f"/{name}/" in stored.key for name in names):
            provider.delete(stored.key)
    homes = {queue_digest(MessageQueue(TOPIC, queue)): names[0] for queue in cold.minimum}
    number = publish_table(provider, keys, PlacementTable(tuple(names), homes, {}, 0), -1)
    chosen = {
        "gateway.membership": "bucket",
        "gateway.member_poll_ms": 500,
        "gateway.placement": "table",
        "gateway.node_load_percent": 10_000,
    }
    with cold.gateway("s3", program=HURRIED, **chosen).running() as gateway:
        follows = gateway.child.wait_until
        follows(lambda: all(node.announced() for node in nodes), 30, "nodes that are announced")
        follows(lambda: gateway.status()["placement"]["table"] == number, 30, "the first table")
        follows(lambda: [*gateway.status()["read_nodes"].values()] == ["answers"] * 3, 30, "three nodes")
        laggard = Laggard(cold, gateway.address, "placement")
        consumer = laggard.start(rate=300)
        consumer.wait_taken(laggard.total // 20)
        assert [node.given() > 0 for node in nodes] == [True, False, False]

        words = ("placement", "--archive", archive.url, "--set", f"source.broker={cold.broker.name}")

        def told() -> int:
            rows = tiered(*words, "--json").json
            return sum(bool(row["read_bytes"]) for row in rows)

        follows(lambda: told() == len(cold.minimum), 30, "what the node is read, in its lease")
        done = tiered(*words, "--publish")
        assert done.code == 0, done.err
        follows(lambda: gateway.status()["placement"]["table"] == number + 1, 30, "the second table")
        assert laggard.committed() != laggard.ends, "the change came too late"
        given = [node.given() for node in nodes]
        laggard.wait_end(consumer)
        found = laggard.judge(consumer.finish().lines())
        assert found.exact, str(found)
        assert all(node.given() > before for node, before in zip(nodes[1:], given[1:], strict=True))
        assert reads(gateway, "here") == reads(gateway, "failed") == 0
