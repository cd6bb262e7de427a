"""A real 5.x broker archived to a real S3 server, at the pace of the defaults.

One broker, one daemon and one bucket serve the module; the Java client sends every kind of message there is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.kit import golden
from tests.kit.broker import Broker
from tests.kit.client import Outcome
from tests.kit.daemonproc import Daemon
from tests.kit.faultproxy import FaultProxy
from tests.kit.oracle import read_store
from tests.kit.process import PATIENCE
from tests.kit.realdaemon import (
    COMPRESSED,
    DEFAULTS,
    Answer,
    Follower,
    Truth,
    consume_queues,
    same_content,
    tiered,
)
from tests.kit.s3server import S3Server
from tiered.archive.read.flatfile import RunReader

NO_LOOKS = {"sinks.look_ms": 3_600_000, "tables.interval_ms": 86_400_000}
"""Orders of sinks and tables are looked for by the clock, idle or not: not within this module."""

pytestmark = [pytest.mark.broker, pytest.mark.s3server]

TOPIC = "Kinds"
QUEUES = 4
RETRY_TOPIC = "%RETRY%retrying"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMON: dict[str, Any] = {"topic": TOPIC, "tags": "blau,süß,C", "unicode": 1}


@dataclass
class World:
    """What the module shares. ``done``: what the client said, by kind of message."""

    broker: Broker
    daemon: Daemon
    proxy: FaultProxy
    truth: Truth
    environment: dict[str, str]
    done: dict[str, Outcome]

    def wait_archived(self) -> None:
        self.daemon.wait_archived(self.truth.look())

    def tiered(self, *arguments: object) -> Answer:
        answer = tiered(*arguments, "--archive", self.truth.url, environment=self.environment)
        assert answer.code == 0, answer.err
        return answer

    def stored(self, topic: str) -> list[golden.SlowRecord]:
        return [record for record in golden.records(self.broker.store_dir) if record.topic == topic]


@pytest.fixture(scope="module")
def world(broker: Broker, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    work = tmp_path_factory.mktemp("s3")
    environment = s3_server.environment()
    with FaultProxy(f"127.0.0.1:{s3_server.port}") as proxy:
        url = f"s3://{s3_server.bucket()}/archive?endpoint={proxy.url}&region=us-east-1"
        daemon = Daemon(work, broker.store_dir, url, environment=environment, **{**DEFAULTS, **NO_LOOKS})
        with daemon.running():
            truth = Truth(broker, url, s3_server.store(endpoint=proxy.url))
            world = World(broker, daemon, proxy, truth, environment, {})
            world.done = send_every_kind(world)
            yield world
            assert daemon.stop() == 0, daemon.output()


def send_every_kind(world: World) -> dict[str, Outcome]:
    """Normal, compressed, batch, delayed, transactional and retried messages, several kinds at once."""
    world.broker.create_topic(TOPIC, queues=QUEUES)
    client = world.broker.client()
    started = {
        "normal": client.start("produce", n=600, min=0, max=3000, **COMMON),
        "batch": client.start("batch", n=64, first=100_000, **COMMON),
        "delay": client.start("delay", n=8, first=200_000, level=1, **COMMON),
    }
    done = {kind: running.wait() for kind, running in started.items()}
    started = {
        "transaction": client.start("transaction", n=12, first=300_000, **COMMON),
        "compressed": client.start(
            "produce", n=20, first=400_000, min=2000, max=9000, compress_over=500, **COMMON
        ),
    }
    done |= {kind: running.wait() for kind, running in started.items()}
    done["retry"] = client.run("retry", topic=TOPIC, group="retrying", n=3)
    world.truth.sent(*(done[kind] for kind in done if kind != "retry"))
    expected = 600 + 64 + 8 + done["transaction"].summary["committed"] + 20
    deadline = time.monotonic() + 30 * PATIENCE
    while len(world.stored(TOPIC)) < expected or len(world.stored(RETRY_TOPIC)) < 3:
        assert time.monotonic() < deadline, Counter(r.topic for r in golden.records(world.broker.store_dir))
        time.sleep(0.1)
    return done


def test_every_kind_arrives_once_in_order_byte_for_byte(world: World) -> None:
    world.wait_archived()
    verdict = world.truth.prove()
    assert len(world.truth.acknowledged) == 704
    records = list(golden.records(world.broker.store_dir))
    assert verdict.messages == len(records)
    assert len(world.broker.commitlog_files()) >= 2  # it rolled on the way
    kinds = Counter(record.topic for record in records)
    assert min(kinds[name] for name in (TOPIC, SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, RETRY_TOPIC)) > 0
    assert Counter(r.sys_flag & 0xC for r in records if r.topic == TOPIC)[8] == 8  # committed
    assert sum(bool(r.sys_flag & COMPRESSED) for r in records) == 20
    assert {r.reconsume_times for r in records if r.topic == RETRY_TOPIC} == {1}
    state = world.truth.archive().state
    assert (list(state.closed_parts()), list(state.gaps()), list(state.phys_gaps())) == ([], [], [])
    assert world.daemon.metric("tiered_rewinds_total") == 0


def test_a_rolled_back_message_stays_in_the_half_topic(world: World) -> None:
    lines = world.done["transaction"].lines()
    rolled_back = {line["unique_key"] for line in lines if line["kind"] == "rollback"}
    assert len(rolled_back) == 4
    answer = world.tiered("read", "--topic", HALF_TOPIC, "--queue", 0, "--count", 0, "--format", "json")
    assert {row["unique_key"] for row in answer.lines()} == {line["unique_key"] for line in lines}
    new = {
        golden.parse_record(data).properties[b"UNIQ_KEY"].decode()
        for data in Follower(world.truth.archive()).look(TOPIC)
    }
    assert not rolled_back & new
    assert {line["unique_key"] for line in lines} - rolled_back <= new


def test_raw_reading_gives_the_brokers_own_bytes(world: World) -> None:
    stored = read_store(world.broker.store_dir)
    for topic, queue in ((TOPIC, 3), (RETRY_TOPIC, 0), (SCHEDULE_TOPIC, 0)):
        where = ("--topic", topic, "--queue", queue, "--count", 0)
        assert world.tiered("read", *where, "--format", "raw").out == b"".join(stored[topic, queue]), topic


def test_system_topics_are_archived_and_hidden(world: World) -> None:
    shown = {row["topic"] for row in world.tiered("topics", "--json").rows()}
    assert shown == {TOPIC, RETRY_TOPIC}
    every = {row["topic"]: row for row in world.tiered("topics", "--json", "--system").rows()}
    stored = Counter(record.topic for record in golden.records(world.broker.store_dir))
    assert {topic: row["messages"] for topic, row in every.items()} == stored
    assert every.keys() > shown
    assert {row["topic"] for row in world.tiered("queues", "--json").rows()} == shown


def test_queue_bounds_are_the_brokers_own_answers(world: World) -> None:
    world.wait_archived()
    rows = world.tiered("queues", "--json", "--system", "--state", world.daemon.state).rows()
    assert len(rows) >= QUEUES + 4
    for row in rows:
        broker_says = world.broker.offsets(row["topic"], row["queue_id"])
        assert range(row["min_offset"], row["max_offset"]) == broker_says, row
        assert row["commit_offset"] == row["dispatch_offset"] == broker_says.stop, row
    client_says = world.broker.client().run("offsets", topics=TOPIC, queues=QUEUES).answers
    ours = {(row["topic"], row["queue_id"]): (row["min_offset"], row["max_offset"]) for row in rows}
    assert len(client_says) == QUEUES
    for answer in client_says:
        assert ours[answer["topic"], answer["queue_id"]] == (answer["min"], answer["max"])


def test_columns_are_the_brokers_consume_queues(world: World) -> None:
    """Physical offset, size and tags code of every row, delivery times of delayed messages included."""
    archive = world.truth.archive()
    reader = RunReader(archive.state, archive.objects)
    found: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    names = ("physical_offset", "size", "tags_code")
    for queue in archive.state.queues():
        units = found.setdefault((queue.queue.topic, queue.queue.queue_id), {})
        for run in archive.state.runs(queue.queue, queue.generation or 0):
            columns = reader.columns(run, names)
            rows = zip(*(columns[name].tolist() for name in names), strict=True)
            units |= dict(zip(range(run.first_queue_offset, run.end), rows, strict=True))
    assert found == consume_queues(world.broker.store_dir)
    delivery_times = [code for _, _, code in found[SCHEDULE_TOPIC, 0].values()]
    assert min(delivery_times) > 1_600_000_000_000
    assert {code for _, _, code in found[TOPIC, 1].values()} == {
        java_hash(tag) for tag in ("blau", "süß", "C")
    }


def java_hash(text: str) -> int:
    """``String.hashCode`` of characters of the basic plane."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def test_queries_find_what_the_client_sent(world: World) -> None:
    lines = world.done["normal"].lines()
    line = next(line for line in lines if " " in line["keys"])
    for question in (
        ("--topic", TOPIC, "--unique-key", line["unique_key"]),
        ("--topic", TOPIC, "--key", line["keys"].split(" ")[0]),
        ("--msg-id", line["offset_msg_id"]),
    ):
        (row,) = world.tiered("query", "--json", *question).rows()
        assert (row["queue_id"], row["queue_offset"]) == (line["queue_id"], line["queue_offset"])
        assert row["unique_key"] == line["unique_key"]
    where = ("--topic", TOPIC, "--queue", line["queue_id"])
    asked = ("--offset", line["queue_offset"], "--count", 1, "--format", "raw")
    assert same_content(line, golden.parse_record(world.tiered("read", *where, *asked).out))
    records = [r for r in world.stored(TOPIC) if r.queue_id == 2]
    time_ms = records[len(records) // 2].store_timestamp
    first = next(r.queue_offset for r in records if r.store_timestamp >= time_ms)
    answer = world.tiered("query", "--json", "--topic", TOPIC, "--queue", 2, "--time", time_ms).rows()
    assert answer["queue_offset"] == first


def test_readable_within_moments_of_the_append(
    world: World, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Broker's store time to the first look of an independent reader that has the message in its hands."""
    messages, rate = 5000, 500
    world.broker.create_topic("Steady", queues=QUEUES)
    follower = Follower(world.truth.archive())
    load = world.broker.client().start(
        "produce", topic="Steady", n=messages, rate=rate, min=1024, max=1024, threads=4
    )
    latencies: list[int] = []
    deadline = time.monotonic() + 60 * PATIENCE
    while len(latencies) < messages:
        assert time.monotonic() < deadline, len(latencies)
        new = follower.look("Steady")
        now_ms = time.time_ns() // 1_000_000
        latencies += [now_ms - golden.parse_record(data).store_timestamp for data in new]
        time.sleep(0.05)
    world.truth.sent(load.wait())
    p50, p99 = (np.percentile(latencies, [50, 99]) / 1000).tolist()
    with capsys.disabled():
        print(
            f"\n  append → readable at {rate}/s: p50 {p50:.2f} s, p99 {p99:.2f} s, max {max(latencies) / 1000:.2f} s"
        )
    record_property("p50_seconds", p50)
    record_property("p99_seconds", p99)
    assert 0 < p50 < 5.0
    world.wait_archived()
    world.truth.prove(deep=False)


def test_an_idle_broker_costs_no_request(world: World) -> None:
    world.wait_archived()
    quiet_from = world.truth.look()
    time.sleep(1.5)  # past the last flush's own requests
    before, counted = len(world.proxy.exchanges), requests(world.daemon)
    time.sleep(5.0)
    assert world.truth.look() == quiet_from, "the broker itself wrote something"
    assert requests(world.daemon) == counted
    assert len(world.proxy.exchanges) == before
    assert counted > 0 < before


def requests(daemon: Daemon) -> float:
    """Requests to the store, by the daemon's own count."""
    lines = daemon.ask("/metrics")[1].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("tiered_requests_total{"))
