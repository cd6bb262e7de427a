"""A sink into Kafka beside Kafka's own MirrorMaker 2, which copies as many messages from one topic to another."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.bench.run import Row, expect
from tests.bench.sinkkafka import BODY_BYTES, PARTITIONS, ours, raw, shown, the_log
from tests.kit import cache
from tests.kit.kafkabroker import MEMORY, KafkaBroker, kafka_broker
from tests.kit.process import Child

ROUNDS = 3
WAIT_SECONDS = 180.0
LOOK_SECONDS = 0.05


def sink_mirror(work: Path, messages: int) -> list[Row]:
    """Medians of rounds that take turns. The mirror's clock starts with its first record, so its start does not count; ours
    with the first write. Its source is what the raw producer wrote."""
    batch, rates = the_log(messages), {"ours": list[float](), "theirs": list[float]()}
    with kafka_broker(work / "kafka") as kafka:
        for number in range(ROUNDS + 1):  # the first warms Kafka up
            mine = messages / ours(kafka, f"ours-{number}", "transactional", batch)
            source = f"source{number}"
            raw(kafka, source, "idempotent", batch)
            theirs = messages / mirrored(kafka, work / f"mirror-{number}", source, messages)
            if number:
                rates["ours"].append(mine)
                rates["theirs"].append(theirs)
    ratio = statistics.median(rates["ours"]) / statistics.median(rates["theirs"])
    what = f"{messages:,} messages of {BODY_BYTES} B into Kafka, exactly once"
    their = f"{shown(rates['theirs'])}, MirrorMaker {cache.MIRROR_VERSION}, at least once"
    return [Row(what, shown(rates["ours"]), their, f"{ratio:.2f}", "> 1")]


def mirrored(kafka: KafkaBroker, work: Path, topic: str, messages: int) -> float:
    """Seconds from the first record of the copy to the last."""
    work.mkdir()
    settings = work / "mirror.properties"
    settings.write_text("".join(f"{name} = {value}\n" for name, value in _settings(kafka, topic).items()))
    jars = f"{cache.mirror_jars()}/*"
    command = [
        "java", *MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars,
        "org.apache.kafka.connect.mirror.MirrorMaker", str(settings),
    ]  # fmt: skip
    child = Child("MirrorMaker", command, work / "log")
    try:
        return _copied(kafka, f"a.{topic}", messages)
    finally:
        child.kill()


def _settings(kafka: KafkaBroker, topic: str) -> dict[str, object]:
    """One cluster under two names; the defaults of both, but that a new topic is not waited for, and no more is copied."""
    return {
        "clusters": "a, b", "a.bootstrap.servers": kafka.address, "b.bootstrap.servers": kafka.address,
        "a->b.enabled": "true", "a->b.topics": topic, "b->a.enabled": "false", "replication.factor": 1,
        "checkpoints.topic.replication.factor": 1, "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1, "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1, "config.storage.replication.factor": 1, "tasks.max": PARTITIONS,
        "emit.checkpoints.enabled": "false", "emit.heartbeats.enabled": "false", "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false", "a.consumer.auto.offset.reset": "earliest",
        "a.config.storage.topic": f"mm-configs.a.{topic}", "a.offset.storage.topic": f"mm-offsets.a.{topic}",
        "a.status.storage.topic": f"mm-status.a.{topic}", "b.config.storage.topic": f"mm-configs.b.{topic}",
        "b.offset.storage.topic": f"mm-offsets.b.{topic}", "b.status.storage.topic": f"mm-status.b.{topic}",
        "dedicated.mode.enable.internal.rest": "false",
    }  # fmt: skip


def _copied(kafka: KafkaBroker, topic: str, messages: int) -> float:
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "bench-ends"})
    deadline, begun, there = time.monotonic() + WAIT_SECONDS, 0.0, 0
    try:
        while there < messages and time.monotonic() < deadline:
            there = sum(_end(consumer, topic, number) for number in range(PARTITIONS))
            now = time.perf_counter()
            begun = begun or (now - LOOK_SECONDS if there else 0.0)
            time.sleep(LOOK_SECONDS)
    finally:
        consumer.close()
    expect(there, messages, "records were mirrored")
    return now - begun


def _end(consumer: Consumer, topic: str, number: int) -> int:
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1])
    except KafkaException:
        return 0  # it is not there yet
