"""Options of a sink of kind *kafka*, as values that were looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiered.errors import Invalid
from tiered.sink.kafka.naming import is_template
from tiered.sink.optionvalues import choice_of, known_options, needed, number_of, size_of, switch_of
from tiered.sink.order import SinkOrder
from tiered.text.references import resolve

PASSED = "kafka."
"""Begins options that are librdkafka's own."""
_KIB, _MIB = 1 << 10, 1 << 20
_OPTIONS = (
    "brokers", "mode", "topic", "key", "partition", "headers", "timestamp", "create_topics", "partitions", "replication",
    "topic_config", "recreated", "max_message_bytes", "too_large", "dead_letter_topic", "buffer_messages", "buffer_bytes",
    "linger_ms", "compression", "timeout_ms", "transaction_timeout_ms", "markers",
)  # fmt: skip
_OURS = (
    "bootstrap.servers", "metadata.broker.list", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks",
    "request.required.acks", "isolation.level", "message.max.bytes", "batch.size", "batch.num.messages", "linger.ms",
    "queue.buffering.max.messages", "queue.buffering.max.kbytes", "queue.buffering.max.ms", "message.timeout.ms",
    "delivery.timeout.ms", "compression.type", "compression.codec", "retries", "message.send.max.retries",
    "max.in.flight", "max.in.flight.requests.per.connection", "delivery.report.only.error", "plugin.library.paths",
    "partitioner", "allow.auto.create.topics", "enable.gapless.guarantee",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """``passed``: librdkafka's own, secrets resolved: never shown. Sizes in bytes, times in ms; ``partitions`` and
    ``replication`` of topics that are created, -1: as the brokers' default is. ``dead_letter_topic``: "" stops instead."""

    brokers: str
    transactional: bool
    topic: str
    key: str
    partition: str
    headers: bool
    born: bool
    create_topics: bool
    partitions: int
    replication: int
    topic_config: Mapping[str, str]
    refuse_recreated: bool
    max_message_bytes: int
    dead_letter_topic: str
    buffer_messages: int
    buffer_bytes: int
    linger_ms: int
    compression: str
    timeout_ms: int
    transaction_timeout_ms: int
    markers: bool
    passed: Mapping[str, str]
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, order: SinkOrder) -> KafkaSettings:
        """``Invalid``, naming the option."""
        known_options(_without_passed(order), _OPTIONS)
        passed, secrets = _passed(order)
        return cls(
            brokers=resolve(needed(order, "brokers", "host:9092,host:9092")),
            transactional=choice_of(order, "mode", ("transactional", "idempotent"), "transactional") == "transactional",
            topic=_template(order),
            key=choice_of(order, "key", ("keys", "queue", "unique", "none"), "keys"),
            partition=choice_of(order, "partition", ("queue", "hash"), "queue"),
            headers=choice_of(order, "headers", ("all", "none"), "all") == "all",
            born=choice_of(order, "timestamp", ("store", "born"), "store") == "born",
            create_topics=switch_of(order, "create_topics", default=True),
            partitions=number_of(order, "partitions", -1, least=-1, most=100_000) or -1,
            replication=number_of(order, "replication", -1, least=-1, most=1_000) or -1,
            topic_config=_pairs(order),
            refuse_recreated=choice_of(order, "recreated", ("stop", "go-on"), "stop") == "stop",
            max_message_bytes=size_of(order, "max_message_bytes", 1_000_000, least=_KIB, most=256 * _MIB),
            dead_letter_topic=_dead_letters(order),
            buffer_messages=number_of(order, "buffer_messages", 100_000, least=100, most=10_000_000),
            buffer_bytes=size_of(order, "buffer_bytes", 64 * _MIB, least=_MIB, most=2_000 * _MIB),
            linger_ms=number_of(order, "linger_ms", 20, least=0, most=10_000),
            compression=choice_of(order, "compression", ("none", "gzip", "snappy", "lz4", "zstd"), "none"),
            timeout_ms=number_of(order, "timeout_ms", 30_000, least=1_000, most=600_000),
            transaction_timeout_ms=number_of(order, "transaction_timeout_ms", 60_000, least=1_000, most=900_000),
            markers=switch_of(order, "markers", default=False),
            passed=passed,
            secrets=secrets,
        )  # fmt: skip

    @property
    def seconds(self) -> float:
        """How long any one answer is waited for."""
        return self.timeout_ms / 1000

    def client(self) -> dict[str, Any]:
        """What every client of this sink is told."""
        bounds = {"socket.timeout.ms": min(self.timeout_ms, self.transaction_timeout_ms, 60_000)}
        return {**bounds, **self.passed, "bootstrap.servers": self.brokers}

    def producer(self, transactional_id: str) -> dict[str, Any]:
        """What the producer is told besides; every buffer of librdkafka has its bound here."""
        told: dict[str, Any] = {
            "enable.idempotence": True,
            "message.max.bytes": max(self.max_message_bytes, 1_000),
            "batch.size": min(1_000_000, self.max_message_bytes),
            "queue.buffering.max.messages": self.buffer_messages,
            "queue.buffering.max.kbytes": max(1, self.buffer_bytes // _KIB),
            "linger.ms": self.linger_ms,
            "compression.type": self.compression,
            "message.timeout.ms": self.timeout_ms,
        }
        if self.transactional:
            told["transactional.id"] = transactional_id
            told["transaction.timeout.ms"] = self.transaction_timeout_ms
            told["message.timeout.ms"] = min(self.timeout_ms, self.transaction_timeout_ms)
        return {**self.client(), **told}


def _without_passed(order: SinkOrder) -> SinkOrder:
    own = {name: value for name, value in order.options.items() if not name.startswith(PASSED)}
    return SinkOrder(order.name, order.kind, own)


def _passed(order: SinkOrder) -> tuple[dict[str, str], tuple[str, ...]]:
    """librdkafka's own options, and what is secret of them."""
    passed, secrets = {}, []
    for name, value in order.options.items():
        if not name.startswith(PASSED):
            continue
        own = name.removeprefix(PASSED)
        if own in _OURS:
            raise Invalid(
                "this property of Kafka's client is not free: what the sink promises hangs on it, or it has an option",
                field=f"options.{name}", hint=f"leave it out; options: {', '.join(_OPTIONS)}",
            )  # fmt: skip
        passed[own] = resolve(value)
        if passed[own] != value:
            secrets.append(passed[own])
    return passed, tuple(secrets)


def _template(order: SinkOrder) -> str:
    text = order.options.get("topic", "{topic}")
    if not is_template(text):
        raise Invalid(
            "no name of a Kafka topic can be made of this", field="options.topic", found=ascii(text),
            expected="letters, digits, '.', '_', '-', and {topic}, {broker}, {cluster}", hint="topic=rocketmq.{topic}",
        )  # fmt: skip
    return text


def _pairs(order: SinkOrder) -> dict[str, str]:
    pairs = {}
    for part in order.options.get("topic_config", "").split(","):
        if part.strip():
            name, equals, value = (word.strip() for word in part.partition("="))
            if not name or not equals:
                raise Invalid(
                    "the configuration of topics is name=value, several joined with ','", field="options.topic_config",
                    found=part.strip(), hint="topic_config=retention.ms=-1,compression.type=zstd",
                )  # fmt: skip
            pairs[name] = value
    return pairs


def _dead_letters(order: SinkOrder) -> str:
    """The topic for what is too large, "" where that stops the sink."""
    topic = order.options.get("dead_letter_topic", "")
    buries = (
        choice_of(order, "too_large", ("stop", "dead-letter"), "dead-letter" if topic else "stop")
        == "dead-letter"
    )
    if buries and (not topic or "{" in topic or not is_template(topic)):
        raise Invalid(
            "messages that are too large need a topic to go to", field="options.dead_letter_topic", found=ascii(topic),
            hint="dead_letter_topic=too-large, or too_large=stop",
        )  # fmt: skip
    return topic if buries else ""
