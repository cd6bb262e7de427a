"""A real 4.9 broker archived to a directory: every kind of message that its client can send, and a ``kill -9``."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache, golden, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import Daemon
from tests.kit.oracle import read_store
from tests.kit.process import PATIENCE
from tests.kit.realdaemon import Truth, consume_queues, tiered
from tiered.archive.read.flatfile import RunReader
from tiered.source.life import BrokerLife

pytestmark = pytest.mark.broker

TOPIC, RETRY_TOPIC = "Kinds", "%RETRY%retrying"
COMMON: dict[str, Any] = {"topic": TOPIC, "tags": "blau,süß,C", "unicode": 1}


def send_every_kind(broker: Broker, truth: Truth) -> int:
    """All the kinds; returns how many messages come to lie in the topic."""
    broker.create_topic(TOPIC, queues=4)
    client = broker.client()
    started = [
        client.start("produce", n=900, min=0, max=3000, **COMMON),
        client.start("batch", n=64, first=100_000, **COMMON),
        client.start("delay", n=8, first=200_000, level=1, **COMMON),
    ]
    truth.sent(*(running.wait() for running in started))
    transaction = client.start("transaction", n=12, first=300_000, **COMMON)
    compressed = client.start("produce", n=20, first=400_000, min=2000, max=9000, compress_over=500, **COMMON)
    decided = transaction.wait()
    truth.sent(decided, compressed.wait())
    client.run("retry", topic=TOPIC, group="retrying", n=3)
    return 900 + 64 + 8 + 20 + int(decided.summary["committed"])


def test_every_kind_of_message_and_a_kill(tmp_path: Path) -> None:
    version = cache.ROCKETMQ_4
    with (
        NameServer(version, tmp_path / "namesrv") as name_server,
        Broker(version, tmp_path / "broker", name_server) as broker,
    ):
        truth = Truth(broker, f"file://{tmp_path / 'archive'}")
        daemon = Daemon(tmp_path, broker.store_dir, truth.url)
        with daemon.running():
            expected = send_every_kind(broker, truth)
            deadline = time.monotonic() + 30 * PATIENCE
            while (stored := topics(broker))[TOPIC] < expected or stored[RETRY_TOPIC] < 3:
                assert time.monotonic() < deadline, stored
                time.sleep(0.1)
            daemon.wait_archived(truth.look())
            truth.prove()
            for number in range(
                6
            ):  # each committed before the next one comes: nothing but the broker's files can tell
                send_claiming_to_be_a_batch(broker, number)
                daemon.wait_archived(truth.look())
            truth.prove()
            assert list(truth.archive().state.gaps()) == []
            check_columns(truth)
            check_bounds(truth)
            check_raw(truth)

            life = BrokerLife(str(broker.store_dir))
            before = life.start_ms()
            broker.kill()
            assert life.start_ms() is None
            broker.restart()
            after = life.start_ms()
            assert before is not None
            assert after is not None
            assert before < after
            life.close()
            truth.sent(broker.client().run("produce", n=200, first=500_000, **COMMON))
            daemon.wait_archived(truth.look())
            assert daemon.metric("tiered_rewinds_total") == 0
            assert daemon.stop() == 0, daemon.output()
        assert truth.prove().messages == sum(topics(broker).values())
        assert len(broker.commitlog_files()) >= 2
        state = truth.archive().state
        assert (list(state.closed_parts()), list(state.gaps()), list(state.phys_gaps())) == ([], [], [])


def send_claiming_to_be_a_batch(broker: Broker, number: int) -> None:
    """A message with the sysFlag of an inner batch of eight, which brokers of 4.9 store and do not know."""
    claims = number in (1, 2, 4)
    fields = {
        "producerGroup": "claims", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": str(0x80 if claims else 0), "bornTimestamp": str(time.time_ns() // 1_000_000),
        "flag": "0", "properties": "INNER_NUM\x018\x02" if claims else "", "reconsumeTimes": "0",
    }  # fmt: skip
    answer = remoting.request(broker.address, remoting.SEND_MESSAGE, fields, b"claim %d" % number)
    assert answer.code == 0, answer.remark


def topics(broker: Broker) -> Counter[str]:
    return Counter(record.topic for record in golden.records(broker.store_dir))


def check_columns(truth: Truth) -> None:
    archive = truth.archive()
    reader = RunReader(archive.state, archive.objects)
    found: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    names = ("physical_offset", "size", "tags_code")
    for queue in archive.state.queues():
        units = found.setdefault((queue.queue.topic, queue.queue.queue_id), {})
        for run in archive.state.runs(queue.queue, queue.generation or 0):
            columns = reader.columns(run, names)
            rows = zip(*(columns[name].tolist() for name in names), strict=True)
            units |= dict(zip(range(run.first_queue_offset, run.end), rows, strict=True))
    assert found == consume_queues(truth.broker.store_dir)


def check_bounds(truth: Truth) -> None:
    for queue in truth.archive().state.queues():
        name = queue.queue
        assert range(queue.min_offset, queue.max_offset) == truth.broker.offsets(name.topic, name.queue_id)


def check_raw(truth: Truth) -> None:
    records = read_store(truth.broker.store_dir)[RETRY_TOPIC, 0]
    where = ("--topic", RETRY_TOPIC, "--queue", 0, "--count", 0, "--format", "raw")
    answer = tiered("read", *where, "--archive", truth.url)
    assert answer.code == 0, answer.err
    assert answer.out == b"".join(records)
