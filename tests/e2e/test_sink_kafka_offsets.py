"""A group that consumed a part at a real RocketMQ broker goes on at a real Kafka: nothing is lost, and as many messages come
again as was said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.kit import remoting
from tests.kit.broker import Broker
from tests.kit.daemonproc import Daemon
from tests.kit.kafkabroker import KafkaBroker, Read, committed, kafka_broker
from tests.kit.realdaemon import Answer, log_end, tiered

pytestmark = [pytest.mark.broker, pytest.mark.kafka]

TOPIC, GROUP, QUEUES = "Moving", "g_moving", 4
FIRST, MORE = 1_200, 900
CONSUMED = {0: 100, 1: 300, 2: 410, 3: 525}
"""What the group has consumed at the end, by queue: of 525 messages each."""
SINKS = {"own": QUEUES, "shared": 1}
"""Sinks, and how many partitions their topics have."""


class Moving:
    """A broker with messages, its archive, two sinks that have everything, and a group that has a part."""

    def __init__(self, work: Path, broker: Broker, kafka: KafkaBroker) -> None:
        self.broker, self.kafka = broker, kafka
        self.url = f"file://{work / 'archive'}"
        settings: dict[str, object] = {
            "sinks.look_ms": 200, "sinks.commit_ms": 200, "sinks.flush_ms": 50, "source.groups_ms": 500,
        }  # fmt: skip
        self.daemon = Daemon(work, broker.store_dir, self.url, **settings)

    def fill(self) -> None:
        broker = self.broker
        broker.create_topic(TOPIC, queues=QUEUES)
        self.daemon.start()
        for name in SINKS:
            self.add(name, name)
        broker.client().run("produce", topic=TOPIC, n=FIRST)
        got = broker.client().run("consume", topic=TOPIC, group=GROUP, n=FIRST).lines()
        assert len(got) == FIRST
        broker.client().run("produce", topic=TOPIC, n=MORE)
        for queue, offset in CONSUMED.items():
            told = {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": str(queue),
                "commitOffset": str(offset),
            }
            assert remoting.request(broker.address, remoting.UPDATE_CONSUMER_OFFSET, told).code == 0
        self.daemon.wait_until(self.settled, "sinks at the end, and the group's offsets seen", 90)

    def add(self, name: str, target: str) -> None:
        """A sink into the topics of ``target``, which are its own or another sink's."""
        options = (
            f"brokers={self.kafka.address}", f"partitions={SINKS[target]}", "replication=1", f"topic={target}.{{topic}}",
        )  # fmt: skip
        words = [word for option in options for word in ("--option", option)]
        done = tiered("sink", "add", name, "--kind", "kafka", "--topic", TOPIC, "--archive", self.url, *words)
        assert done.code == 0, done.err

    def at_the_end(self, sinks: int) -> bool:
        """Whether so many sinks have all that the broker has."""
        rows = self.daemon.status().get("sinks", {}).get("sinks", [])
        return [row["position"] for row in rows] == [log_end(self.broker)] * sinks

    def settled(self) -> bool:
        if not self.at_the_end(len(SINKS)):
            return False
        done = tiered(
            "groups", "--archive", self.url, "--state", self.daemon.state, "--prefix", GROUP, "--json"
        )
        seen = (
            {row["queue_id"]: row["next_offset"] for row in done.rows() if row["topic"] == TOPIC}
            if done.code == 0
            else {}
        )
        if seen != CONSUMED:
            return False
        first = self.ask("own").rows()
        return sum(row["again"] or 0 for row in first) == 0

    def ask(self, sink: str, *more: object, group: str = GROUP) -> Answer:
        return tiered(
            "sink", "offsets", "--sink", sink, "--group", group, "--archive", self.url, "--state", self.daemon.state,
            "--json", *more,
        )  # fmt: skip


@pytest.fixture(scope="module")
def moving(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moving]:
    work = tmp_path_factory.mktemp("moving")
    with kafka_broker(work / "kafka") as kafka:
        made = Moving(work, broker, kafka)
        try:
            made.fill()
            yield made
        finally:
            made.daemon.kill()


def place(read: Read) -> tuple[int, int]:
    headers = dict(read.headers)
    return int(headers["rocketmq.queue"]), int(headers["rocketmq.offset"])


@pytest.mark.parametrize("sink", SINKS)
def test_nothing_is_lost_and_as_many_come_again_as_was_said(moving: Moving, sink: str) -> None:
    done = moving.ask(sink, "--topic", TOPIC)
    assert done.code == 0, (done.err, done.out)
    rows = {row["queue_id"]: row for row in done.rows()}
    assert {queue: row["committed"] for queue, row in rows.items()} == CONSUMED
    lie = {place(read): read for read in committed(moving.kafka.address, f"{sink}.{TOPIC}")}
    assert len(lie) == FIRST + MORE
    for queue, row in rows.items():
        assert (row["kafka_topic"], row["again_exact"], row["why"]) == (f"{sink}.{TOPIC}", True, None)
        if CONSUMED[queue] < 525:
            here = lie[queue, CONSUMED[queue]]
            assert (row["partition"], row["offset"]) == (here.partition, here.offset)
    begin = {row["partition"]: row["start"] for row in rows.values()}
    seen = sorted(key for key, read in lie.items() if read.offset >= begin[read.partition])
    wanted = {(queue, offset) for queue, first in CONSUMED.items() for offset in range(first, 525)}
    assert wanted - set(seen) == set(), "lost"
    again = {
        queue: sum(1 for q, offset in seen if q == queue and offset < CONSUMED[queue]) for queue in CONSUMED
    }
    assert {queue: row["again"] for queue, row in rows.items()} == again
    assert (sum(again.values()) == 0) == (sink == "own"), "a queue of its own partition repeats nothing"


def test_kafkas_group_begins_there(moving: Moving) -> None:
    """Applied, and consumed by a plain member of the group; refused while it lives, and where it would go back."""
    dry = moving.ask("own", "--apply", "--dry-run")
    assert dry.code == 0, dry.err
    assert [row["why"] for row in dry.rows()] == [None] * QUEUES
    with pytest.raises(RuntimeError, match="no offset"):
        consumed(moving.kafka, GROUP, "own." + TOPIC, 1)
    assert moving.ask("own", "--apply").code == 0
    consumer = member(moving.kafka, GROUP, "own." + TOPIC)
    wanted = {(queue, offset) for queue, first in CONSUMED.items() for offset in range(first, 525)}
    got = [place_of(message) for message in taken(consumer, len(wanted))]
    assert sorted(got) == sorted(wanted)
    refused = moving.ask("own", "--apply")
    assert refused.code == 6
    assert "live members" in refused.err
    consumer.commit(asynchronous=False)
    consumer.close()
    further = moving.ask("own", "--apply")
    assert further.code == 6
    assert "would go back" in further.err
    assert moving.ask("own", "--apply", "--back").code == 0
    other = moving.ask("shared", "--apply", "--kafka-group", "another")
    assert other.code == 0, other.err
    again = member(moving.kafka, GROUP, "own." + TOPIC)
    assert sorted(place_of(message) for message in taken(again, len(wanted))) == sorted(wanted)
    again.close()


def test_two_sinks_into_one_topic_are_told_apart(moving: Moving) -> None:
    """Each sees its own records, in comparing and in translating offsets."""
    before = moving.ask("shared", "--topic", TOPIC).rows()
    moving.add("beside", "shared")
    moving.daemon.wait_until(lambda: moving.at_the_end(len(SINKS) + 1), "the second sink at the end", 60)
    assert len(committed(moving.kafka.address, f"shared.{TOPIC}")) == 2 * (FIRST + MORE)
    for sink in ("shared", "beside"):
        done = tiered("sink", "verify", "--sink", sink, "--archive", moving.url, "--json")
        told = json.loads(done.out)
        assert (done.code, told["verdict"], told["not_given_yet"]) == (0, "same", 0)
        counts = {name: told[name] for name in ("same", "lost", "doubled", "others", "other_sinks")}
        assert counts == {
            "same": FIRST + MORE,
            "lost": 0,
            "doubled": 0,
            "others": 0,
            "other_sinks": FIRST + MORE,
        }
    assert moving.ask("shared", "--topic", TOPIC).rows() == before
    offsets = {row["offset"] for row in moving.ask("beside", "--topic", TOPIC).rows()}
    assert min(offsets) >= FIRST + MORE, "behind the other sink's"


def test_what_cannot_be_is_said(moving: Moving) -> None:
    unknown = moving.ask("own", group="nobody")
    assert unknown.code == 5
    assert "no offset in a topic that this sink has given" in unknown.err
    missing = moving.ask("none")
    assert missing.code != 0
    assert "none" in missing.err
    assert moving.ask("own", "--dry-run").code == 2


def member(kafka: KafkaBroker, group: str, topic: str) -> Consumer:
    """A consumer that has joined a group and begins at what the group has."""
    consumer = Consumer({
        "bootstrap.servers": kafka.address, "group.id": group, "isolation.level": "read_committed",
        "auto.offset.reset": "error", "enable.auto.commit": False, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    consumer.subscribe([topic])
    return consumer


def taken(consumer: Consumer, count: int) -> list[Any]:
    """So many messages, and that no more come for a while."""
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            if len(found) >= count:
                return found
        elif message.error() is not None:
            raise RuntimeError(f"no offset: {message.error()}")
        else:
            found.append(message)
    raise AssertionError(f"{len(found)} of {count} messages came")


def consumed(kafka: KafkaBroker, group: str, topic: str, count: int) -> list[Any]:
    consumer = member(kafka, group, topic)
    try:
        return taken(consumer, count)
    finally:
        consumer.close()


def place_of(message: Any) -> tuple[int, int]:
    headers = dict(message.headers())
    return int(headers["rocketmq.queue"]), int(headers["rocketmq.offset"])
