"""A whole daemon with a sink into a real Kafka: how long a message takes to its reader, and history beside the live log."""

from __future__ import annotations

import subprocess
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from tests.bench.live import generator, seed_store
from tests.bench.run import TIERED, Row, expect
from tests.kit.daemonproc import Daemon
from tests.kit.kafkabroker import KafkaBroker, kafka_broker
from tests.kit.realdaemon import tiered
from tests.kit.s3server import versitygw

QUEUES, PARTITIONS = 8, 4
RATE = 2_000
BODY_BYTES = 200
SLOWEST = 10_000
"""Messages a second below which a round is given up."""
DEFAULTS: dict[str, object] = {
    "source.poll_interval_ms": 20, "source.confirm_reread_ms": 200, "source.restart_check_ms": 1000,
    "dispatch.group_commit_interval_ms": 1000, "archive.resend_wait_ms": 1000, "sinks.look_ms": 200,
}  # fmt: skip
"""What the tests' daemon has otherwise, as it is by default; orders of sinks are seen sooner."""


class Reader:
    """A plain consumer at ``read_committed`` in a thread: when each record came, and the time that it carries, in ms."""

    def __init__(self, kafka: KafkaBroker, topic: str) -> None:
        self._came = array("q")
        self._stop = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": kafka.address, "group.id": "bench", "isolation.level": "read_committed",
            "enable.auto.commit": False, "fetch.wait.max.ms": 20,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(5_000, 0.02):
                if message.error() is None:
                    self._came.extend((time.time_ns() // 1_000_000, message.timestamp()[1]))

    @property
    def count(self) -> int:
        """Records that came."""
        return len(self._came) // 2

    def wait_for(self, messages: int, seconds: float) -> None:
        """Until so many came; no more may come."""
        deadline = time.monotonic() + seconds
        while self.count < messages and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(self.count, messages, "records came to the reader")

    def end(self) -> np.ndarray:
        """Both times of each record."""
        self._stop.set()
        self._thread.join(30)
        self._consumer.close()
        return np.array(self._came, np.int64).reshape(-1, 2)


@contextmanager
def reading(kafka: KafkaBroker, topic: str) -> Iterator[Reader]:
    """A reader of a topic that is made here, with as many partitions as it reads."""
    kafka.create(topic, PARTITIONS, retention_ms="-1", message_timestamp_after_max_ms=str((1 << 63) - 1))
    reader = Reader(kafka, topic)
    try:
        yield reader
    finally:
        reader._stop.set()


def add(kafka: KafkaBroker, url: str, name: str, environment: dict[str, str] | None = None) -> None:
    """A sink of all topics into the topic of its name."""
    done = tiered(
        "sink", "add", name, "--kind", "kafka", "--archive", url, "--option", f"brokers={kafka.address}", "--option",
        f"topic={name}", environment=environment,
    )  # fmt: skip
    assert done.code == 0, done.err


def sink_latency(work: Path, seconds: float) -> list[Row]:
    """Append → visible to a consumer at ``read_committed``, 2,000 messages/s, settings as they are by default."""
    store, url = work / "live", f"file://{work / 'larch'}"
    seed_store(store, 10, QUEUES)
    daemon = Daemon(work, store, url, name="sinklatency", **DEFAULTS)
    messages = 10 + int(RATE * seconds)
    with kafka_broker(work / "kafka") as kafka, daemon.running(), reading(kafka, "latency") as reader:
        daemon.wait_until(lambda: daemon.status()["lag"]["bytes"] == 0, "the first messages archived")
        add(kafka, url, "latency")
        reader.wait_for(10, 60)
        writer = generator(store, RATE, seconds, QUEUES)
        writer.wait()
        reader.wait_for(messages, 120)
        daemon.stop()
        came = reader.end()[10:]
    waited, at = (came[:, 0] - came[:, 1]) / 1000, came[:, 1] - came[:, 1].min()
    steady = waited[(at >= 1_000) & (at < 1_000 * (seconds - 1))]
    figures = np.percentile(waited, 50), np.percentile(steady, 99), np.percentile(waited, 99)
    names = (("p50", "-"), ("p99, without the first and the last second", "-"), ("p99 of all", "≤ 2 s"))
    return [
        Row(f"append → read_committed consumer, 2,000/s, {what}", f"{found:.2f} s", "-", "-", wanted)
        for (what, wanted), found in zip(names, figures, strict=True)
    ]


def appending(store: Path, messages: int) -> list[str]:
    """The command that appends messages to a log of small files."""
    return [
        *TIERED, "gen", "--store", str(store), "--messages", str(messages), "--queues", str(QUEUES), "--file-bytes", "4MiB",
        "--body-bytes", str(BODY_BYTES),
    ]  # fmt: skip


def sink_backfill(work: Path, messages: int) -> list[Row]:
    """The log given to one sink, and the same messages from an archive on a real S3 server to another one, whose broker has
    deleted them; and how long nothing came to it, up to the log's end, while that goes on."""
    store, more = work / "store", 20_000
    patience = max(300.0, messages / SLOWEST)
    subprocess.run(appending(store, messages), check=True, stdout=subprocess.DEVNULL)
    with versitygw(work / "server") as server, kafka_broker(work / "kafka") as kafka:
        url, environment = server.url(server.bucket(), "archive"), server.environment()
        daemon = Daemon(work, store, url, name="sinkbackfill", environment=environment, **DEFAULTS)
        with daemon.running(), reading(kafka, "live") as live, reading(kafka, "history") as history:
            daemon.wait_until(lambda: daemon.status()["lag"]["bytes"] == 0, "everything archived", patience)
            add(kafka, url, "live", environment)
            live.wait_for(messages, patience)
            daemon.wait_until(
                lambda: daemon.status()["sinks"]["sinks"][0]["lag_bytes"] == 0, "the sink at the end", 60
            )
            for file in sorted((store / "commitlog").iterdir())[:-1]:
                file.unlink()  # the last one is the broker's still
            writing = subprocess.Popen(
                [*appending(store, more), "--rate", str(RATE)], stdout=subprocess.DEVNULL
            )
            add(kafka, url, "history", environment)
            writing.wait()
            live.wait_for(messages + more, 60)
            history.wait_for(messages + more, 2 * patience)
            daemon.stop()
        came = [np.sort(reader.end()[:, 0]) for reader in (live, history)]
        rates = [(messages - 1) / max(1, int(at[messages - 1] - at[0])) * 1000 for at in came]
        pauses = [int(np.diff(at[at >= came[1][0]]).max()) / 1000 for at in reversed(came)]
    ours, theirs = rates[1], rates[0]
    return [
        Row(
            f"{messages:,} messages from S3 into Kafka, beside the log", f"{ours:,.0f}/s",
            f"{theirs:,.0f}/s (from the log)", f"{ours / theirs:.2f}", "≥ 0.7",
        ),
        Row(
            "the same, 2,000/s written meanwhile: longest pause", f"{pauses[0]:.2f} s",
            f"{pauses[1]:.2f} s (a sink at the log's end)", f"+ {pauses[0] - pauses[1]:.2f} s", "≤ + 1 s",
        ),
    ]  # fmt: skip
