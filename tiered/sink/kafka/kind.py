"""The kind *kafka*: its options, and how it is opened."""

from __future__ import annotations

from tiered.clock import Clock, SystemClock
from tiered.errors import Invalid
from tiered.sink.base import Sink
from tiered.sink.comparison.base import ReadBack
from tiered.sink.kafka.client import kafka_library
from tiered.sink.kafka.reading import KafkaReadBack
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.sink import KafkaSink
from tiered.sink.kafka.topics import KafkaTopics
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder


class KafkaKind:
    """Options: ``settings``, and in ``deploy/kafka.md`` for those who set them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def lasting(self) -> tuple[str, ...]:
        """As of ``LastingKind``: a queue has one partition for good. Another cluster in ``brokers`` is found out by the
        position, which is not there."""
        return ("mode", "topic", "partition")

    def check(self, order: SinkOrder) -> None:
        settings = KafkaSettings.of(order)
        kafka_library()
        if order.in_order:
            _check_one_partition(settings)
        topics = KafkaTopics(settings, self._clock)
        topics.reachable()
        if order.in_order and "{" not in settings.topic:
            _check_has_one(topics, settings.topic)
        if not settings.create_topics and "{" not in settings.topic and not topics.find([settings.topic]):
            raise Invalid(
                "a Kafka topic is not there, and this sink does not create any", field="options.topic", found=settings.topic,
                hint="create it, or set create_topics=true",
            )  # fmt: skip

    def check_parts(self, order: SinkOrder) -> bool:
        """As of ``PartedKind``: each part has a transactional id and a position of its own."""
        return KafkaSettings.of(order).transactional

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        return KafkaSink(KafkaSettings.of(order), place, self._clock)

    def read_back(self, order: SinkOrder, place: SinkPlace) -> ReadBack:
        """As of ``ReadableKind``."""
        return KafkaReadBack(KafkaSettings.of(order), place, self._clock)


def _check_one_partition(settings: KafkaSettings) -> None:
    """``Invalid`` unless all messages are to go to one partition."""
    if "{topic}" in settings.topic or settings.partitions != 1:
        raise Invalid(
            "the order of the whole log is that of one partition", field="options.partitions",
            found=f"topic={settings.topic}, partitions={settings.partitions}", expected="topic=NAME, partitions=1",
            hint="or order the sink without --in-order: each queue's order is kept in any case",
        )  # fmt: skip


def _check_has_one(topics: KafkaTopics, name: str) -> None:
    there = topics.find([name]).get(name)
    if there is not None and there.partitions != 1:
        raise Invalid(
            "the order of the whole log is that of one partition", field="options.topic", found=name,
            partitions=there.partitions, expected=1, hint="name another topic",
        )  # fmt: skip
