"""The destination *kafka* against a real Kafka broker: the contract of sinks, what records are like, faults. Judged from
outside, by a plain consumer at ``read_committed``."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from tests.kit.kafkabroker import KafkaBroker, committed, kafka_broker
from tests.kit.sinkscene import PLACE
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import Sink, SinkPosition
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import TestedSink
from tiered.sink.contract.samples import Received
from tiered.sink.kafka.kind import KafkaKind
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder

pytestmark = pytest.mark.kafka
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def place() -> SinkPlace:
    """Another sink in each test."""
    return replace(PLACE, name=f"sink-{next(_numbers)}")


def order_of(kafka: KafkaBroker, place: SinkPlace, **options: str) -> SinkOrder:
    """Topics of a name that no other test has."""
    named = {
        "brokers": kafka.address,
        "topic": f"{place.name}.{{topic}}",
        "partitions": "2",
        "timeout_ms": "30000",
    }
    return SinkOrder(place.name, "kafka", {**named, **options})


def open_sink(kafka: KafkaBroker, place: SinkPlace, **options: str) -> Sink:
    return KafkaKind().open(order_of(kafka, place, **options), place)


def behind(offsets: dict[MessageQueue, int], physical: int = 1) -> SinkPosition:
    return SinkPosition(FeedPosition(PhysicalOffset(physical)), {q: Follow(n, 7) for q, n in offsets.items()})


class TestedKafka(TestedSink):
    largest_body = 600 << 10
    huge = 4_000

    def __init__(self, kafka: KafkaBroker, place: SinkPlace, **options: str) -> None:
        self.kafka, self.place, self.options = kafka, place, options

    def open(self) -> Sink:
        return open_sink(self.kafka, self.place, **self.options)

    def read(self) -> list[Received]:
        topics = self.kafka.admin().list_topics(timeout=30).topics
        found = [
            read
            for topic in topics
            if topic.startswith(f"{self.place.name}.")
            for read in committed(self.kafka.address, topic)
        ]
        return [_received(read.headers, read.value or b"") for read in found]

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        pid = self.kafka.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def away(self) -> AbstractContextManager[None]:
        self.options["timeout_ms"] = "3000"
        return self.stopped()


def _received(headers: list[tuple[str, bytes]], body: bytes) -> Received:
    own = {name: value for name, value in headers if name.startswith("rocketmq.")}
    properties = {name: value.decode() for name, value in headers if not name.startswith("rocketmq.")}
    topic, queue, offset = (own[f"rocketmq.{name}"].decode() for name in ("topic", "queue", "offset"))
    return Received(topic, int(queue), int(offset), body, properties)


class TestExactlyOnce(SinkContract):
    @pytest.fixture
    def tested(self, kafka: KafkaBroker, place: SinkPlace) -> TestedKafka:
        return TestedKafka(kafka, place)


class TestAtLeastOnce(SinkContract):
    @pytest.fixture
    def tested(self, kafka: KafkaBroker, place: SinkPlace) -> TestedKafka:
        return TestedKafka(kafka, place, mode="idempotent")
