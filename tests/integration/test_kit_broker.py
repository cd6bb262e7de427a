"""What the real client says it wrote is what an independent reader finds in the real broker's files.

Nothing of ``tiered`` takes part: these tests show that the kit's counterparts and readers can be trusted.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache, golden
from tests.kit.broker import Broker, NameServer
from tests.kit.client import Outcome
from tests.kit.golden import SlowRecord
from tests.kit.realdaemon import expire, settled_minimums

pytestmark = pytest.mark.broker

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


def by_id(records: list[SlowRecord]) -> dict[str, SlowRecord]:
    """Records by offset message id: store host and physical offset in hexadecimal."""
    return {
        (record.store_host + struct.pack(">q", record.physical_offset)).hex().upper(): record
        for record in records
    }


def of_topic(records: list[SlowRecord], topic: str) -> list[SlowRecord]:
    return [record for record in records if record.topic == topic]


def wait_for(store: Path, enough: Callable[[list[SlowRecord]], bool]) -> list[SlowRecord]:
    """The broker's records once ``enough`` of them are there (delayed and retried ones come later)."""
    deadline = time.monotonic() + 30
    while not enough(records := list(golden.records(store))):
        assert time.monotonic() < deadline, Counter(record.topic for record in records)
        time.sleep(0.1)
    return records


def check_acknowledged(outcome: Outcome, records: list[SlowRecord], topic: str) -> None:
    """Every acknowledged message lies where its id says, with the body, keys, tags and properties that were sent."""
    found = by_id(records)
    for line in outcome.lines():
        record = found[line["offset_msg_id"]]
        assert record.topic == topic
        assert record.queue_offset == line["queue_offset"]
        if topic == line["topic"]:
            assert record.queue_id == line["queue_id"]
        check_content(line, record)


def check_content(line: dict[str, Any], record: SlowRecord) -> None:
    assert len(record.body) == line["body_bytes"]
    assert record.body_crc == line["body_crc"]
    assert hashlib.sha256(record.body).hexdigest() == line["body_sha256"]
    kept = {name.decode(): value.decode() for name, value in record.properties.items()}
    assert kept["UNIQ_KEY"] == line["unique_key"]
    assert kept.get("KEYS") == line["keys"]
    assert kept.get("TAGS") == line["tags"]
    for name in ("seq", "region", "名前"):
        assert kept.get(name) == line["properties"].get(name)


def check_queues(store: Path, records: list[SlowRecord], topic: str, queues: int) -> None:
    """Queue offsets go up by one from zero, and the consume queue names exactly these records."""
    log: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for record in of_topic(records, topic):
        assert record.queue_offset == len(log[record.queue_id])
        log[record.queue_id][record.queue_offset] = (record.physical_offset, len(record.raw))
    assert len(log) == queues
    directories = {queue: path for name, queue, path in golden.queues(store) if name == topic}
    for queue, expected in log.items():
        units = golden.consume_queue(directories[queue])
        assert {offset: unit[:2] for offset, unit in units.items()} == expected


def produce_all_kinds(broker: Broker, topic: str, normal: int) -> dict[str, Outcome]:
    """Normal, batch, delayed, transactional and retried messages, one kind after the other."""
    broker.create_topic(topic, queues=4)
    client = broker.client()
    common: dict[str, Any] = {"topic": topic, "tags": "blau,süß,C", "unicode": 1}
    done = {"normal": client.run("produce", n=normal, min=0, max=3000, **common)}
    done["batch"] = client.run("batch", n=64, first=100_000, **common)
    done["delay"] = client.run("delay", n=8, first=200_000, level=1, **common)
    done["transaction"] = client.run("transaction", n=12, first=300_000, **common)
    done["retry"] = client.run("retry", topic=topic, group="retrying", n=3)
    return done


def check_all_kinds(broker: Broker, topic: str, normal: int) -> None:
    done = produce_all_kinds(broker, topic, normal)
    committed = done["transaction"].summary["committed"]
    total = normal + 64 + 8 + committed
    retry_topic = "%RETRY%retrying"
    records = wait_for(
        broker.store_dir,
        lambda all_: len(of_topic(all_, topic)) >= total and len(of_topic(all_, retry_topic)) >= 3,
    )

    check_acknowledged(done["normal"], records, topic)
    check_acknowledged(done["batch"], records, topic)
    check_acknowledged(done["delay"], records, "SCHEDULE_TOPIC_XXXX")

    # The real topic holds each acknowledged message once: delayed ones after their delay, of the transactions
    # only the committed ones.
    lines = [line for kind in ("normal", "batch", "delay", "transaction") for line in done[kind].lines()]
    assert len({line["unique_key"] for line in lines}) == len(lines)
    expected = {line["unique_key"]: line for line in lines if line["kind"] != "rollback"}
    assert Counter(line["kind"] for line in expected.values()) == {
        "normal": normal,
        "batch": 64,
        "delay": 8,
        "commit": committed,
    }
    stored = of_topic(records, topic)
    assert Counter(r.properties[b"UNIQ_KEY"].decode() for r in stored) == dict.fromkeys(expected, 1)
    for record in stored:
        check_content(expected[record.properties[b"UNIQ_KEY"].decode()], record)
    assert Counter(record.sys_flag & 0xC for record in stored) == {0: total - committed, 8: committed}
    halves = of_topic(records, HALF_TOPIC)
    assert {r.properties[b"UNIQ_KEY"].decode() for r in halves} == {
        line["unique_key"] for line in done["transaction"].lines()
    }
    assert {record.sys_flag & 0xC for record in halves} == {
        0
    }  # put off as ordinary messages, marked in properties

    retried = of_topic(records, retry_topic)
    assert {record.reconsume_times for record in retried} == {1}
    assert [line["outcome"] for line in done["retry"].lines()].count("came again") == 3

    check_queues(broker.store_dir, records, topic, queues=4)
    assert [broker.offsets(topic, queue).stop for queue in range(4)] == [
        sum(record.queue_id == queue for record in stored) for queue in range(4)
    ]


def test_every_kind_of_message_of_5_x(broker: Broker) -> None:
    check_all_kinds(broker, "Kinds", normal=1200)
    assert len(broker.commitlog_files()) >= 3


def test_a_killed_broker_keeps_what_it_acknowledged_and_its_ports(broker: Broker) -> None:
    broker.create_topic("Killed", queues=2)
    address = broker.address
    sent = broker.client().run("produce", topic="Killed", n=300, queues=2)
    broker.kill()
    assert not broker.running
    assert (broker.store_dir / "abort").exists()
    check_acknowledged(sent, list(golden.records(broker.store_dir)), "Killed")
    broker.restart()
    assert broker.address == address
    assert [broker.offsets("Killed", queue) for queue in range(2)] == [range(150), range(150)]
    consumed = broker.client().run("consume", topic="Killed", group="after", n=300)
    assert consumed.summary["consumed"] == 300
    assert {line["unique_key"] for line in consumed.lines()} == {line["unique_key"] for line in sent.lines()}


def test_expired_files_go_before_a_broker_left_alone_would_look(broker: Broker) -> None:
    """Its own cleaner would look for the first time 60 s after the start."""
    broker.create_topic("Expired", queues=1)
    broker.client().run("produce", topic="Expired", n=3000, queues=1, min=1000, max=1000)
    broker.kill()
    started = time.monotonic()
    broker.start()
    gone = expire(broker)
    minimums = settled_minimums(broker, "Expired")
    assert time.monotonic() - started < 60
    assert len(gone) >= 2
    assert minimums[0] > 0


def test_every_kind_of_message_of_4_9(tmp_path: Path) -> None:
    version = cache.ROCKETMQ_4
    with (
        NameServer(version, tmp_path / "namesrv") as name_server,
        Broker(version, tmp_path / "broker", name_server) as broker,
    ):
        check_all_kinds(broker, "Kinds", normal=300)


def test_what_a_jvm_unpacks_goes_with_it(rocketmq: str, tmp_path: Path) -> None:
    """RocksDB's library and Netty's keys, tens of MiB a start, lie beside the server's files and not in /tmp."""
    with NameServer(rocketmq, tmp_path / "ns", tls=True) as server:
        assert any((tmp_path / "ns" / "tmp").iterdir())
        server.restart()
        assert any((tmp_path / "ns" / "tmp").iterdir())
    assert not (tmp_path / "ns" / "tmp").exists()
