"""The job ``kafka_compare``: a real Kafka has what a sink gave of an archive; what is done to it is found by executors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.kit.kafkabroker import KafkaBroker, committed, kafka_broker
from tests.kit.pysparks import session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import SystemClock
from tiered.feed.archived import ArchivedFeed
from tiered.metadata.memory import MemoryStore
from tiered.provider.open import open_provider
from tiered.settings import Store
from tiered.sink.base import SinkBatch, SinkPosition
from tiered.sink.book import SinkBook
from tiered.sink.choosing import Chooser
from tiered.sink.kinds import find_kind
from tiered_jobs.main import main

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[SparkSession]:
    with session() as made:
        yield made


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaBroker) -> str:
    """An archive whose sink *copy* has given all of it, and whose sink *files* nothing."""
    directory = tmp_path_factory.mktemp("compared")
    assert tiered("gen", "--store", directory / "store", "--messages", 400, "--topics", 2).code == 0
    made = archive(directory / "store", directory)
    options = [f"brokers={kafka.address}", "partitions=3", "timeout_ms=30000"]
    words = [word for option in options for word in ("--option", option)]
    assert tiered("sink", "add", "copy", "--kind", "kafka", *words, "--archive", made).code == 0
    words = ["--kind", "file", "--option", f"location=file://{directory}/out"]
    assert tiered("sink", "add", "files", *words, "--archive", made).code == 0
    _give(made)
    return made


def _give(url: str) -> None:
    """All of the archive, as the sink is given a backfill."""
    provider, keys = open_provider(url, Store(), SystemClock()), ArchiveKeys("DefaultCluster", "broker-a")
    reader = ArchiveReader(provider, keys, MemoryStore(), table_cache_bytes=1 << 20)
    archive_id = reader.at().identity.archive_id
    stored = SinkBook(provider, keys, archive_id).sink("copy")
    order = stored.order

    def takes(topic: str) -> bool:
        return order.takes(topic, system=topic.startswith(("%", "RMQ")))

    chooser = Chooser({}, takes, lambda topic, queue_id: False)
    with closing(
        find_kind("kafka").open(order, stored.place(archive_id, keys.cluster, keys.broker, 1))
    ) as sink:
        for batch in ArchivedFeed(reader, "", chooser.following, takes).through():
            rows = chooser.choose(batch).rows
            if len(rows):
                sink.write(SinkBatch(batch.messages, rows))
            sink.flush(SinkPosition(batch.position, dict(chooser.follows)))
    provider.close()


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["kafka_compare", *flags, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out.strip() else {}


def test_the_same_and_then_not(capsys: pytest.CaptureFixture[str], url: str, kafka: KafkaBroker) -> None:
    """Words and numbers are those of ``tiered sink verify``."""
    code, told = run(capsys, "--archive", url, "--sink", "copy")
    assert (code, told["verdict"], told["same"], told["lost"], told["queues"]) == (0, "same", 400, 0, 8)
    topic = sorted(
        name for name in kafka.admin().list_topics(timeout=30).topics if not name.startswith("__")
    )[0]
    record = committed(kafka.address, topic)[5]
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(topic, record.value, headers=record.headers, partition=record.partition)
    producer.flush(30)
    code, told = run(capsys, "--archive", url, "--sink", "copy", "--tasks", "2")
    assert (code, told["verdict"], told["same"], told["doubled"]) == (1, "DIFFERENT", 400, 1)
    [queue] = told["differences"]
    headers = dict(record.headers)
    assert (queue["first"], queue["first_offset"]) == ("doubled", int(headers["rocketmq.offset"]))
    verified = tiered("sink", "verify", "--sink", "copy", "--archive", url, "--json")
    assert (verified.code, json.loads(verified.out)) == (1, told)
    other = next(
        name for name in kafka.admin().list_topics(timeout=30).topics if name[:2] != "__" and name != topic
    )
    code, told = run(capsys, "--archive", url, "--sink", "copy", "--topics", other)
    assert (code, told["verdict"], told["queues"]) == (0, "same", 4)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--sink", "files"), 2),
        (("--sink", "nobody"), 5),
        (("--sink", "copy", "--from", "2026-01-01"), 2),
        (("--sink", "copy", "--topics", "NoSuchTopic?"), 5),
    ],
)
def test_what_cannot_be_compared(
    capsys: pytest.CaptureFixture[str], url: str, flags: tuple[str, ...], code: int
) -> None:
    assert run(capsys, "--archive", url, *flags)[0] == code


def test_a_dry_run_reads_nothing_of_kafka(
    capsys: pytest.CaptureFixture[str], url: str, kafka: KafkaBroker, tmp_path: Path
) -> None:
    code, told = run(capsys, "--archive", url, "--sink", "copy", "--dry-run")
    assert (code, told["would_write"]) == (0, [])
