"""The record codec against stores that RocketMQ's own code wrote, every record and every unit of them."""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.kit import golden
from tiered.codec.checksum import verify_crc_property
from tiered.codec.record import consumequeue
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import Frames, Stop, scan, verify
from tiered.codec.record.hosts import encode_message_id
from tiered.codec.record.message import Message, decode_message, encode_message
from tiered.codec.record.properties import key_hash, property_columns

pytestmark = pytest.mark.depends_only_on_imports("tests/data/golden")

MAX_RECORD = 4 * 1024 * 1024 + 64 * 1024


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    yield list(golden.stores(tmp_path_factory.mktemp("golden")))
    _slow.cache_clear()
    _decoded.cache_clear()


@functools.cache
def _slow(store: Path) -> list[golden.SlowRecord]:
    """What the slow reader says, which takes its time."""
    return list(golden.records(store))


@functools.cache
def _decoded(raw: bytes) -> Message:
    """A record by the decoder of one: several tests ask for each of 20,000."""
    return decode_message(raw)


def _batches(store: Path) -> list[tuple[int, bytes, Frames, MessageBatch]]:
    found = []
    for path in golden.commitlog_files(store):
        data, base = path.read_bytes(), int(path.name)
        frames = scan(data, base=base, max_record_bytes=MAX_RECORD)
        proven = verify(data, frames, base)
        assert len(proven) == len(frames), proven.detail
        assert proven.stop in (Stop.BLANK, Stop.ZERO)
        found.append((base, data, proven, decode_headers(data, proven)))
    return found


def test_every_record_agrees_with_the_slow_reader(roots: list[Path]) -> None:
    total = 0
    for store in roots:
        slow = _slow(store)
        row = 0
        for base, data, frames, batch in _batches(store):
            columns = property_columns(batch)
            keys: dict[int, list[int]] = defaultdict(list)
            for at, hashed in zip(columns.key_row.tolist(), columns.key_hash.tolist()):
                keys[at].append(hashed)
            for at, header in enumerate(batch.headers):
                want = slow[row]
                assert bytes(batch.record(at)) == want.raw
                assert int(header["position"]) + base == want.physical_offset == header["physical_offset"]
                for name in ("queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp", "store_timestamp",
                             "reconsume_times", "prepared_transaction_offset", "body_crc", "version"):  # fmt: skip
                    assert header[name] == getattr(want, name), name
                body_at = int(header["body_position"])
                assert data[body_at : body_at + int(header["body_length"])] == want.body
                assert batch.topics[header["topic_index"]] == want.topic
                assert columns.tags[columns.tag[at]] == want.properties.get(b"TAGS", b"")
                wanted = [
                    want.properties.get(b"UNIQ_KEY", b""),
                    *want.properties.get(b"KEYS", b"").split(b" "),
                ]
                assert keys[at] == [key_hash(want.topic, key) for key in wanted if key]
                owned = 0 if want.sys_flag & 0xC in (0x4, 0xC) else 1
                assert columns.queue_offsets[at] == owned
                row += 1
            assert frames.blank_length in (None, len(data) - frames.end)
        assert row == len(slow) > 0
        total += row
    assert total > 20255 + 312


def test_manifest_of_the_broker_store(roots: list[Path]) -> None:
    manifest = json.loads((golden.DATA / "broker-store.manifest.json").read_text())
    batches = _batches(roots[0])
    assert len(batches) == manifest["commitlogFiles"]
    assert sum(len(batch) for *_, batch in batches) == manifest["commitlogRecords"]
    assert sum(frames.stop is Stop.BLANK for _, _, frames, _ in batches) == manifest["blankRecords"]
    assert batches[-1][0] + batches[-1][2].end == manifest["commitlogEnd"]
    flags = np.concatenate([batch.headers["sys_flag"] for *_, batch in batches]) & 0xC
    assert {"plain": int((flags == 0).sum()), "commit": int((flags == 8).sum())} == manifest["recordKinds"]

    rows: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
    for _, _, _, batch in batches:
        names = [batch.topics[i] for i in batch.headers["topic_index"]]
        for at, (topic, queue) in enumerate(zip(names, batch.headers["queue_id"].tolist())):
            rows[topic, queue].append((int(batch.headers["queue_offset"][at]), bytes(batch.record(at))))
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, queue), found in rows.items():
        counts[topic][str(queue)] = len(found)
    assert counts == manifest["recordsInLogByTopicQueue"]

    for topic, described in manifest["topics"].items():
        for queue, want in described["queues"].items():
            found = sorted(rows[topic, int(queue)])
            records = [raw for _, raw in found]
            assert [offset for offset, _ in found] == list(range(want["minOffset"], want["maxOffset"]))
            assert len(records) == want["count"]
            assert sum(map(len, records)) == want["recordBytes"]
            assert hashlib.sha256(b"".join(records)).hexdigest() == want["sha256OfRecords"]
            for edge, raw in (("first", records[0]), ("last", records[-1])):
                message = _decoded(raw)
                assert message.queue_offset == want[edge]["queueOffset"]
                assert message.message_id == want[edge]["offsetMsgId"]
                assert message.unique_key == want[edge]["uniqKey"]
                assert message.store_timestamp == want[edge]["storeTimestamp"]
                assert len(raw) == want[edge]["size"]
            assert sum(len(_decoded(raw).body) for raw in records) == want["bodyBytes"]


def test_consume_queues_are_a_projection_of_the_log(roots: list[Path]) -> None:
    seen_schedule = False
    for store in roots:
        projected: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = defaultdict(dict)
        for base, _, _, batch in _batches(store):
            columns = property_columns(batch)
            for at in np.flatnonzero(columns.queue_offsets).tolist():
                header = batch.headers[at]
                topic = batch.topics[header["topic_index"]]
                unit = (base + int(header["position"]), int(header["size"]), int(columns.tags_code[at]))
                projected[topic, int(header["queue_id"])][int(header["queue_offset"])] = unit
        for topic, queue, directory in golden.queues(store):
            want = golden.consume_queue(directory)
            assert _vectorised_units(directory) == want
            assert projected.pop((topic, queue)) == want, (store, topic, queue)
            seen_schedule |= topic == "SCHEDULE_TOPIC_XXXX"
        assert not projected
    assert seen_schedule


def _vectorised_units(directory: Path) -> dict[int, tuple[int, int, int]]:
    found = {}
    for path in sorted(directory.iterdir()):
        units = consumequeue.decode_units(path.read_bytes())
        units = units[: consumequeue.written(units)]
        assert path.read_bytes().startswith(consumequeue.encode_units(units))
        keep = np.flatnonzero(~consumequeue.is_pre_blank(units))
        first = int(path.name) // consumequeue.UNIT_BYTES
        found.update(zip((keep + first).tolist(), units[keep].tolist()))
    return found


def test_one_record_decoder_and_encoder_agree_with_the_broker(roots: list[Path]) -> None:
    rebuilt = with_crc = 0
    for store in roots:
        for slow in _slow(store):
            message = _decoded(slow.raw)
            assert {k.encode(): v.encode() for k, v in message.properties.items()} == slow.properties
            assert message.body_crc == slow.body_crc
            assert encode_message_id(message.store_host, message.physical_offset) == message.message_id
            has_crc = b"__CRC32#" in slow.properties
            assert verify_crc_property(slow.raw) == has_crc
            with_crc += has_crc
            rebuilt += encode_message(message) == slow.raw
    assert with_crc > 300
    # Not all: a few writers leave the last 0x02 out or repeat a property.
    assert rebuilt > 20_000


def test_a_mapped_file_is_read_like_bytes(roots: list[Path]) -> None:
    path = golden.commitlog_files(roots[0])[1]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        base = int(path.name)
        frames = verify(view, scan(view, base=base, max_record_bytes=MAX_RECORD), base)
        copied = decode_headers(path.read_bytes(), frames).headers
        batch = decode_headers(view, frames)
        assert (batch.headers == copied).all()
        del batch
        view.release()
