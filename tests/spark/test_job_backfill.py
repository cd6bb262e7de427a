"""The job ``backfill``: executors give a real Kafka the history of a daemon's sink, are killed, and the sink goes on."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.daemonproc import Daemon
from tests.kit.dyinggive import DyingGive, OvertakenGive
from tests.kit.kafkabroker import KafkaBroker, committed, kafka_broker
from tests.kit.pysparks import session
from tests.kit.realdaemon import Answer, tiered
from tests.kit.sparkscene import archive
from tiered.archive.keys import BACKFILL_PREFIX, ArchiveKeys
from tiered.archive.read.find import find_identity
from tiered.clock import SystemClock
from tiered.provider.open import open_provider
from tiered.settings import Store
from tiered.sink.book import SinkBook
from tiered_jobs.backfill import job
from tiered_jobs.main import main

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.kafka]
MESSAGES, LATER, QUEUES, PARTS = 2_000, 300, 8, 3
CONSUMED = {0: 3, 1: 100, 2: 217, 3: 249}
"""What a group has consumed of the first topic, by queue: of 250 messages each, all given by the job."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A task that dies ends the job, which is run again then. (More tries would need a context of their own.)"""
    with session() as made:
        yield made


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


class Copied:
    """An archive with a sink *copy* into Kafka and a sink *files*, of which the daemon has given nothing."""

    def __init__(self, directory: Path, kafka: KafkaBroker) -> None:
        self.store, self.kafka = directory / "store", kafka
        self.gen(MESSAGES)
        self.url = archive(self.store, directory)
        options = [f"brokers={kafka.address}", "topic=copy", "partitions=2", "timeout_ms=30000"]
        words = [word for option in options for word in ("--option", option)]
        assert self.sink("add", "copy", "--kind", "kafka", *words).code == 0
        self.provider = open_provider(self.url, Store(), SystemClock())
        self.keys = ArchiveKeys("DefaultCluster", "broker-a")
        settings: dict[str, object] = {
            "sinks.look_ms": 200, "sinks.commit_ms": 100, "sinks.flush_ms": 100, "source.groups_ms": 500,
        }  # fmt: skip
        self.daemon = Daemon(directory, self.store, self.url, **settings)

    def gen(self, messages: int) -> None:
        done = tiered("gen", "--store", self.store, "--messages", messages, "--topics", 2)
        assert done.code == 0, done.err

    def consume(self, group: str, offsets: dict[int, int]) -> None:
        """What a group has consumed of each queue of a topic, as the broker writes it down."""
        config = self.store / "config"
        config.mkdir()
        table = {f"DemoTopic0@{group}": offsets}
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
        (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {}}))

    def sink(self, *words: object) -> Answer:
        return tiered("sink", *words, "--archive", self.url, "--json")

    def ask(self, name: str) -> None:
        """As a job does that ends before it has planned anything."""
        book = SinkBook(self.provider, self.keys, find_identity(self.provider, self.keys).archive_id)
        book.change(name, SystemClock().now_ms(), os.urandom, backfill_id=os.urandom(16))

    def at(self) -> dict[str, Any]:
        rows = self.daemon.status().get("sinks", {}).get("sinks", [])
        return next((row for row in rows if row["sink"] == "copy"), {})


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaBroker) -> Iterator[Copied]:
    made = Copied(tmp_path_factory.mktemp("copied"), kafka)
    try:
        yield made
    finally:
        made.daemon.kill()
        made.provider.close()


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["backfill", *flags, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out.strip() else {}


def test_killed_tasks_and_a_live_sink_give_each_message_once(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    copied: Copied,
    spark: SparkSession,
) -> None:
    """Every part's first attempt is killed with a transaction open. What comes later the daemon gives."""
    flags = ("--archive", copied.url, "--sink", "copy")
    code, told = run(capsys, *flags, "--dry-run")
    assert (code, told["would_write"]) == (0, [f"sink copy: {MESSAGES} messages of {QUEUES} queues"])
    copied.ask("copy")
    copied.consume("billing", CONSUMED)
    copied.daemon.start()
    copied.daemon.wait_until(lambda: copied.at().get("phase") == "backfilling", "the sink waits")
    assert "has not planned" in copied.at()["why"]
    monkeypatch.setattr(job, "give", DyingGive(str(tmp_path), 3))
    codes = []
    while not codes or (codes[-1] and len(codes) <= PARTS):
        code, told = run(capsys, *flags, "--flush-bytes", "16KiB", "--tasks", str(PARTS))
        codes.append(code)
    assert (codes[0] != 0, codes[-1]) == (True, 0)
    assert (told["messages"], told["missing"], told["parts"]) == (MESSAGES, 0, PARTS)
    assert sorted(os.listdir(tmp_path)) == [str(number) for number in range(PARTS)], (
        "attempts that were killed"
    )
    copied.gen(LATER)
    total = MESSAGES + LATER
    copied.daemon.wait_until(lambda: copied.at().get("messages") == LATER, "the sink has everything")
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    places: dict[tuple[str, int, int], tuple[int, int]] = {}
    for read in committed(copied.kafka.address, "copy"):
        headers = dict(read.headers)
        queue = headers["rocketmq.topic"].decode(), int(headers["rocketmq.queue"])
        found[queue].append(int(headers["rocketmq.offset"]))
        places[*queue, found[queue][-1]] = read.partition, read.offset
    assert sum(map(len, found.values())) == total
    assert all(offsets == list(range(len(offsets))) for offsets in found.values())
    done = copied.sink("verify", "--sink", "copy")
    assert (done.code, json.loads(done.out)["same"]) == (0, total), done.err
    told_of = copied.sink("offsets", "--sink", "copy", "--group", "billing", "--state", copied.daemon.state)
    assert told_of.code == 0, told_of.err
    rows = {row["queue_id"]: (row["partition"], row["offset"]) for row in told_of.rows()}
    assert rows == {queue: places["DemoTopic0", queue, offset] for queue, offset in CONSUMED.items()}
    copied.daemon.wait_until(
        lambda: not list(copied.provider.list(copied.keys.key(BACKFILL_PREFIX))), "the bucket is tidied"
    )
    topics = copied.kafka.admin().list_topics(timeout=30).topics
    assert [name for name in topics if ".backfill." in name] == []


def test_of_two_jobs_at_once_the_later_gives_what_is_left(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    copied: Copied,
    spark: SparkSession,
) -> None:
    """The earlier ends, and says why; nothing is given twice."""
    marks, there = tmp_path / "marks", tmp_path / "there"
    marks.mkdir()
    option = ("--option", f"location={there.as_uri()}")
    copied.daemon.kill()  # so that it gives nothing of the history
    assert copied.sink("add", "files", "--kind", "file", *option).code == 0
    copied.ask("files")
    copied.daemon.start()
    monkeypatch.setattr(job, "give", OvertakenGive(str(marks)))
    flags = ("--archive", copied.url, "--sink", "files", "--tasks", "1")
    assert main(["backfill", *flags, "--json"]) != 0
    assert "a later job gives this backfill's parts" in capfd.readouterr().err
    assert main(["backfill", *flags, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["missing"], told["parts"], told["messages"] >= MESSAGES) == (0, 1, True)
    done = copied.sink("verify", "--sink", "files")
    assert (done.code, json.loads(done.out)["same"]) == (0, told["messages"]), done.err
