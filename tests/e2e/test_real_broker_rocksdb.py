"""A real broker whose consume queues and configuration are in RocksDB is archived, compared and read like any other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kit.coldscene import QUEUES, TOPIC, ColdScene, cold_scene, ending
from tests.kit.delivery import compare
from tests.kit.realdaemon import Truth, broken_promises
from tiered.archive.read.verify import Verifier
from tiered.source.grouplists import BrokerGroups, GroupConfig, GroupOffset
from tiered.source.topics import read_topics

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HOUR_MS = 3_600_000
MESSAGES = 2400


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdScene]:
    with cold_scene(
        tmp_path_factory.mktemp("rocksdb"),
        messages=MESSAGES,
        storeType="defaultRocksDB",
        transRocksDBEnable="true",
    ) as scene:
        yield scene


def test_what_the_broker_deleted_is_read_through_the_gateway(cold: ColdScene) -> None:
    assert 0 < cold.cold() < MESSAGES
    with cold.gateway("posix").running() as gateway:
        group = cold.group("rocks")
        got = cold.client(name_server=gateway.address).run(
            "push", topic=TOPIC, group=group, **ending(MESSAGES)
        )
    assert compare(cold.sent, got.lines()).exact


def test_its_topics_are_read_beside_it_without_a_byte_in_its_directories(cold: ColdScene) -> None:
    broker = cold.broker
    broker.create_topic("Reserved", attributes="+reserve.time=72,+message.type=NORMAL")
    broker.create_topic("Gone")
    assert not (broker.store_dir / "config" / "topics.json").exists()
    found = read_topics(str(broker.store_dir))
    assert found is not None
    assert found.reserved_ms() == {"Reserved": 72 * HOUR_MS}
    assert found.deleted(["Reserved", "Gone", TOPIC]) == set()
    broker.delete_topic("Gone")
    found = read_topics(str(broker.store_dir))
    assert found is not None
    assert found.deleted(["Reserved", "Gone", TOPIC]) == {"Gone"}
    assert not list(broker.store_dir.rglob("rocksdict-config.json"))


def test_its_groups_and_their_offsets_are_read_beside_it(cold: ColdScene) -> None:
    """They are there as soon as the broker has written them, which it does every few seconds."""
    cold.commit("asked", {0: 7, 3: 11})
    wanted = {GroupOffset("asked", TOPIC, 0, 7), GroupOffset("asked", TOPIC, 3, 11)}
    lists = BrokerGroups(str(cold.broker.store_dir))
    deadline = time.monotonic() + 60
    while not wanted <= set(found := lists.read(list)):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    assert "TOOLS_CONSUMER" in {each.group for each in found if isinstance(each, GroupConfig)}


def test_killed_and_started_again_it_is_still_the_same_broker(cold: ColdScene) -> None:
    """Its consume queues were never flushed: it makes them again from its log."""
    truth = Truth(cold.broker, cold.archives["posix"].url)
    cold.broker.kill()
    cold.broker.start()
    more = cold.broker.client().run("produce", topic=TOPIC, n=200, first=MESSAGES, queues=QUEUES)
    truth.sent(more, cold.broker.client().run("transaction", topic=TOPIC, n=6))
    cold.archived()
    archive = truth.archive()
    head = archive.state.head()
    assert head is not None
    assert head.highest_lineage == 1
    assert not broken_promises([*cold.sent, *truth.acknowledged], archive)
    assert Verifier(archive).run(deep=True).sound
