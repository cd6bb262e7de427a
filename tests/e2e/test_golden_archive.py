"""Stores written by RocketMQ itself, archived and read back byte for byte."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.kit import golden
from tests.kit.command import archive_once, tiered
from tiered.filter.topicpolicy import TopicPolicy
from tiered.model import OFF_QUEUE_TOPIC

STORES = [
    ("broker-store", "store"),
    ("rocketmq-store-a", "rmqh1/store"),
    ("rocketmq-store-b", "rmqh3-after-w1/store"),
    ("rocketmq-store-b", "rmqh3/store"),
]
Key = tuple[str, int]


@dataclass
class Golden:
    """A golden store and its archive."""

    name: str
    store: Path
    archive: str
    queues: dict[Key, list[golden.SlowRecord]] = field(default_factory=dict)

    def read(self, topic: str, queue: int, *options: object) -> bytes:
        done = tiered("read", "--topic", topic, "--queue", queue, "--archive", self.archive, "--format", "raw",
                      "--count", 0, *options)  # fmt: skip
        assert (done.code, done.err) == (0, "")
        return done.out


@pytest.fixture(scope="module", params=STORES, ids=[inner.replace("/store", "") for _, inner in STORES])
def archived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    name, inner = request.param
    directory = tmp_path_factory.mktemp(name)
    store = golden.unpack(name, directory) / inner
    done = archive_once(store, directory / "archive", process=name == "broker-store")
    assert (done.code, done.out, done.err) == (0, b"", "")
    made = Golden(name, store, f"file://{directory}/archive")
    for record in golden.records(store):
        off = record.sys_flag & 0xC in (0x4, 0xC)
        key = (OFF_QUEUE_TOPIC, 0) if off else (record.topic, record.queue_id)
        made.queues.setdefault(key, []).append(record)
    assert made.queues
    return made


def current(records: list[golden.SlowRecord], key: Key) -> list[golden.SlowRecord]:
    """Records from the last place on where queue offsets began again."""
    if key[0] == OFF_QUEUE_TOPIC:
        return records
    start = 0
    for i in range(1, len(records)):
        if records[i].queue_offset <= records[i - 1].queue_offset:
            start = i
    return records[start:]


def test_every_queue_is_byte_identical(archived: Golden) -> None:
    for key, records in archived.queues.items():
        wanted = b"".join(r.raw for r in current(records, key))
        assert archived.read(*key) == wanted, key


def test_the_table_of_queues_is_the_stores(archived: Golden) -> None:
    rows = tiered("queues", "--archive", archived.archive, "--system", "--json").json
    found = {(r["topic"], r["queue_id"]): r for r in rows}
    assert set(found) == set(archived.queues)
    for key, records in archived.queues.items():
        now, row = current(records, key), found[key]
        assert row["bytes"] == sum(len(r.raw) for r in now)
        assert row["messages"] == len(now)
        if key[0] != OFF_QUEUE_TOPIC:
            assert (row["min_offset"], row["max_offset"]) == (now[0].queue_offset, now[-1].queue_offset + 1)
        assert row["commit_offset"] == row["max_offset"]
        assert (row["oldest"], row["newest"]) == (
            min(r.store_timestamp for r in now), max(r.store_timestamp for r in now),
        )  # fmt: skip


def test_offsets_of_the_brokers_own_consume_queues(archived: Golden) -> None:
    """The n-th unit of a consume queue names the record that the archive gives for n."""
    checked = 0
    for topic, queue_id, directory in golden.queues(archived.store):
        units = golden.consume_queue(directory)
        records = {
            r.queue_offset: r for r in current(archived.queues.get((topic, queue_id), []), (topic, queue_id))
        }
        if not records:
            continue
        for offset, (physical, size, _) in units.items():
            if offset in records:
                assert (records[offset].physical_offset, len(records[offset].raw)) == (physical, size)
                checked += 1
        offset = max(records)
        wanted = records[offset].raw
        assert archived.read(topic, queue_id, "--offset", offset) == wanted
    assert checked or not any(True for _ in golden.queues(archived.store))


def test_system_topics_are_archived_and_hidden(archived: Golden) -> None:
    policy = TopicPolicy(cluster="DefaultCluster", broker="broker-a")
    all_topics = {topic for topic, _ in archived.queues}
    shown = {row["topic"] for row in tiered("topics", "--archive", archived.archive, "--json").json}
    assert shown == {t for t in all_topics if not policy.is_system(t)}
    everything = tiered("topics", "--archive", archived.archive, "--system", "--json").json
    assert {row["topic"] for row in everything} == all_topics
    off = len(archived.queues.get((OFF_QUEUE_TOPIC, 0), []))
    counted = sum(row["messages"] for row in everything if row["topic"] == OFF_QUEUE_TOPIC)
    assert counted == off


def test_the_archive_is_sound(archived: Golden) -> None:
    done = tiered("verify", "--deep", "--archive", archived.archive, "--json")
    assert done.code == 0
    report = done.json
    assert (report["verdict"], report["damage"]) == ("sound", [])
    assert report["messages"] == sum(len(r) for r in archived.queues.values())
    assert report["bytes"] == sum(len(r.raw) for records in archived.queues.values() for r in records)


def test_a_second_run_adds_nothing(archived: Golden) -> None:
    before = tiered("status", "--archive", archived.archive, "--json").json
    done = archive_once(archived.store, archived.archive)
    assert (done.code, done.err) == (0, "")
    after = tiered("status", "--archive", archived.archive, "--json").json
    assert after["messages"] == before["messages"]
    assert after["proven_offset"] == before["proven_offset"]
    assert (after["epoch"], after["seq"]) == (before["epoch"] + 1, before["seq"] + 1), (
        "one OpenEpoch, nothing else"
    )
    assert after["closed_parts"] == 0


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((golden.DATA / "broker-store.manifest.json").read_text())
    return found


@pytest.fixture(scope="module")
def broker_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("manifest")
    store = golden.unpack("broker-store", directory) / "store"
    assert archive_once(store, directory / "archive").code == 0
    return f"file://{directory}/archive"


def test_the_manifest_that_came_with_the_store(broker_store: str) -> None:
    """Counts, first and last ids and hashes that RocketMQ's own client and broker reported."""
    told = manifest()
    rows = tiered("queues", "--archive", broker_store, "--system", "--json").json
    found = {(r["topic"], str(r["queue_id"])): r for r in rows}
    queues = {(t, q): v for t, topic in told["topics"].items() for q, v in topic["queues"].items()}
    assert set(found) == set(queues)
    for (topic, queue), wanted in queues.items():
        row = found[topic, queue]
        assert (row["messages"], row["min_offset"], row["max_offset"], row["bytes"]) == (
            wanted["count"], wanted["minOffset"], wanted["maxOffset"], wanted["recordBytes"],
        )  # fmt: skip
        place = ("--topic", topic, "--queue", queue, "--archive", broker_store)
        raw = tiered("read", *place, "--format", "raw", "--count", 0).out
        assert hashlib.sha256(raw).hexdigest() == wanted["sha256OfRecords"]
        for end in ("first", "last"):
            (message,) = tiered(
                "read", *place, "--json", "--offset", wanted[end]["queueOffset"], "--count", 1
            ).rows
            assert message["msg_id"] == wanted[end]["offsetMsgId"]
            assert message["unique_key"] == wanted[end].get("uniqKey")
            assert message["store_timestamp"] == wanted[end]["storeTimestamp"]
    status = tiered("status", "--archive", broker_store, "--json").json
    assert status["messages"] == told["commitlogRecords"]
    assert status["proven_offset"] == told["commitlogEnd"]
    assert (status["gaps"], status["physical_gaps"]) == (0, [])


def test_messages_of_the_manifest_are_found_by_every_id(broker_store: str) -> None:
    told = manifest()["topics"]
    for topic in ("OrderEvents", "%RETRY%g_retry", "SCHEDULE_TOPIC_XXXX"):
        queue, wanted = next(iter(told[topic]["queues"].items()))
        last = wanted["last"]
        (by_id,) = tiered("query", "--msg-id", last["offsetMsgId"], "--archive", broker_store, "--json").json
        assert (by_id["topic"], by_id["queue_id"], by_id["queue_offset"]) == (
            topic,
            int(queue),
            last["queueOffset"],
        )
        by_key = tiered(
            "query", "--topic", topic, "--unique-key", last["uniqKey"], "--archive", broker_store, "--json"
        ).json
        assert last["offsetMsgId"] in {m["msg_id"] for m in by_key}
        at = tiered(
            "query", "--topic", topic, "--queue", queue, "--time", last["storeTimestamp"], "--archive", broker_store,
            "--json",
        ).json  # fmt: skip
        assert at["queue_offset"] <= last["queueOffset"]
