"""A sink into a real Kafka beside the raw producer of the same client: the same bytes, headers and partitions, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from tests.bench.run import Row
from tests.kit.kafkabroker import KafkaBroker, kafka_broker
from tests.kit.sinkscene import PLACE
from tiered.codec.record.batch import MessageBatch
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import SinkBatch, SinkPosition
from tiered.sink.contract.samples import batch_of, message_of
from tiered.sink.kafka.kind import KafkaKind
from tiered.sink.kafka.records import headers_of, keys_of, times_of
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kinds import SinkPlace
from tiered.sink.messages import messages_of
from tiered.sink.order import SinkOrder

QUEUES, PARTITIONS = 8, 4
FLUSH_BYTES, WRITE_MESSAGES = 8 << 20, 4_096
BODY_BYTES = 200
ROUNDS = 3
MODES = ("transactional", "idempotent")


def sink_kafka(work: Path, messages: int) -> list[Row]:
    """Rates of both modes, ours and raw, medians of rounds that take turns; and one mode beside the other."""
    batch = the_log(messages)
    rates: dict[tuple[str, str], list[float]] = {}
    with kafka_broker(work / "kafka") as kafka:
        for number in range(ROUNDS + 1):  # the first warms Kafka up
            for mode in MODES:
                for who, run in (("raw", raw), ("ours", ours)):
                    rate = messages / run(kafka, f"{who}-{mode}-{number}", mode, batch)
                    if number:
                        rates.setdefault((who, mode), []).append(rate)
    middle = {key: statistics.median(found) for key, found in rates.items()}
    rows = [
        Row(
            f"live log to Kafka, {mode}, {BODY_BYTES} B and its headers", shown(rates["ours", mode]),
            f"{shown(rates['raw', mode])}, the same client's producer", f"{middle['ours', mode] / middle['raw', mode]:.2f}",
            "≥ 0.7",
        )
        for mode in MODES
    ]  # fmt: skip
    both = middle["ours", "transactional"] / middle["ours", "idempotent"]
    return [
        *rows,
        Row(
            "transactional beside idempotent",
            *map(shown, (rates["ours", m] for m in MODES)),
            f"{both:.2f}",
            "≥ 0.8",
        ),
    ]


def shown(rates: list[float]) -> str:
    """The median, and the lowest and highest."""
    return f"{statistics.median(rates):,.0f}/s ({min(rates):,.0f}–{max(rates):,.0f})"


def the_log(messages: int) -> MessageBatch:
    """Messages of some queues in turn, with tags and keys."""
    body = bytes(range(BODY_BYTES))
    made = [
        message_of(
            "Bench", at % QUEUES, at // QUEUES, body, {"TAGS": "created", "KEYS": f"order-{at:08d}", "WAIT": "true"},
            physical=at * 400,
        )
        for at in range(messages)
    ]  # fmt: skip
    return batch_of(made)[0].messages


def parts(batch: MessageBatch) -> list[tuple[int, int, bool]]:
    """Rows of each write, and whether a flush follows."""
    found, size = [], 0
    for first in range(0, len(batch), WRITE_MESSAGES):
        end = min(first + WRITE_MESSAGES, len(batch))
        size += int(batch.headers["size"][first:end].sum())
        flush = size >= FLUSH_BYTES or end == len(batch)
        size = 0 if flush else size
        found.append((first, end, flush))
    return found


def options(kafka: KafkaBroker, name: str, mode: str) -> dict[str, str]:
    """Of the sink, which the raw producer is told, too."""
    return {
        "brokers": kafka.address,
        "topic": name,
        "mode": mode,
        "partitions": str(PARTITIONS),
        "timeout_ms": "60000",
    }


def ours(kafka: KafkaBroker, name: str, mode: str, batch: MessageBatch) -> float:
    """Seconds from the first write to the end of the last flush."""
    place = SinkPlace(PLACE.archive_id, PLACE.cluster, PLACE.broker, 1, name)
    kafka.create(name, PARTITIONS, retention_ms="-1")
    sink = KafkaKind().open(SinkOrder(name, "kafka", options(kafka, name, mode)), place)
    started = time.perf_counter()
    for first, end, flush in parts(batch):
        sink.write(SinkBatch(batch, np.arange(first, end)))
        if flush:
            queues = {MessageQueue("Bench", q): Follow(end // QUEUES, end) for q in range(QUEUES)}
            sink.flush(SinkPosition(FeedPosition(PhysicalOffset(end)), queues))
    seconds = time.perf_counter() - started
    sink.close()
    return seconds


def raw(kafka: KafkaBroker, name: str, mode: str, batch: MessageBatch) -> float:
    """The same by calls of ``produce`` alone, with everything that they take made before: nothing is reported, nothing kept."""
    settings = KafkaSettings.of(SinkOrder(name, "kafka", options(kafka, name, mode)))
    messages = messages_of(SinkBatch(batch, np.arange(len(batch))))
    made = list(
        zip(
            messages.stored, keys_of(messages, "keys"), (messages.queue_id % PARTITIONS).tolist(),
            times_of(messages, settings), headers_of(messages, "0" * 12), strict=True,
        )
    )  # fmt: skip
    kafka.create(name, PARTITIONS, retention_ms="-1")
    producer = Producer(settings.producer(name))
    transactional = mode == "transactional"
    if transactional:
        producer.init_transactions(60)
    started, begun = time.perf_counter(), False
    for first, end, flush in parts(batch):
        if transactional and not begun:
            producer.begin_transaction()
            begun = True
        produce_all(producer, name, made[first:end])
        if flush:
            producer.flush(60)
            if transactional:
                producer.commit_transaction(60)
                begun = False
    return time.perf_counter() - started


def produce_all(producer: Any, topic: str, made: list[tuple[Any, ...]]) -> None:
    """Call after call, waiting while the client is full."""
    produce: Callable[..., None] = producer.produce
    for number, (value, key, partition, at, headers) in enumerate(made):
        while True:
            try:
                produce(topic, value, key, partition, None, None, at, headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_024 == 0:
            producer.poll(0)
