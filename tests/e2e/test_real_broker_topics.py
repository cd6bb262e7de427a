"""A real broker's own list of topics, as retention reads it: ``+reserve.time``, and a topic that is deleted."""

from __future__ import annotations

import json
import time

import pytest

from tests.kit.broker import Broker
from tests.kit.process import PATIENCE
from tiered.source.topics import TopicList, read_topics

pytestmark = pytest.mark.broker
HOUR_MS = 3_600_000


def listed(broker: Broker) -> TopicList:
    found = read_topics(str(broker.store_dir))
    assert found is not None
    return found


def test_reserve_time_is_read_and_a_deleted_topic_is_seen_to_be_gone(broker: Broker) -> None:
    broker.create_topic("Orders", attributes="+reserve.time=72,+message.type=NORMAL")
    broker.create_topic("Payments")
    broker.client().run("produce", topic="Orders", n=8)
    assert listed(broker).reserved_ms() == {"Orders": 72 * HOUR_MS}
    assert "Payments" in listed(broker).attributes
    broker.create_topic("Orders", attributes="-reserve.time")
    assert listed(broker).reserved_ms() == {}
    deadline = time.monotonic() + 20 * PATIENCE
    while not (broker.store_dir / "consumequeue" / "Orders").exists():
        assert time.monotonic() < deadline, "the broker makes consume queues"
        time.sleep(0.05)
    assert listed(broker).deleted(["Orders", "Payments"]) == set()
    broker.delete_topic("Orders")
    while listed(broker).deleted(["Orders", "Payments"]) != {"Orders"}:
        assert time.monotonic() < deadline, "its queues go with it"
        time.sleep(0.05)
    kept = json.loads((broker.store_dir / "config" / "topics.json").read_text())
    assert "Payments" in kept["topicConfigTable"]
