"""RocketMQ conformance, records and queues: cases C1 to C9 of our notes on its stores and its tiered store.

Each message goes the whole way: the broker's file, the archive, ``MessageStore``. What it is compared with comes from
RocketMQ's own code: golden stores, or vectors computed by it. C10 to C19 are in ``test_conformance_archive``.
"""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.kit import golden
from tests.kit.pipeline import PREPARED, ROLLBACK
from tests.kit.readstore import READER, Cold, cold
from tiered.archive.read.flatfile import RunReader
from tiered.codec.checksum import verify_crc_property
from tiered.codec.record.message import decode_message
from tiered.errors import Corrupt
from tiered.fetch.pull import Pull
from tiered.filter.tags import tag_filter
from tiered.model import GetMessageStatus as S
from tiered.model import MessageQueue

V4, V6 = "10.1.2.3:50001", "[2001:db8::1]:50001"
COMMIT = 0x8


def read_all(scene: Cold, topic: str, queue: int = 0) -> list[bytes]:
    """A queue from its minimum to its end, step by step as a consumer reads it."""
    found: list[bytes] = []
    offset = scene.store.min_offset(topic, queue)
    assert offset is not None
    while True:
        answer = scene.get(topic, queue, offset)
        if answer.status is S.OFFSET_OVERFLOW_ONE:
            return found
        assert answer.status is S.FOUND
        found.extend(map(bytes, answer.records))
        offset = answer.next_begin_offset


def column(scene: Cold, topic: str, queue: int, name: str) -> list[int]:
    """A row column of a queue's whole history."""
    view = scene.store.view
    reader = RunReader(view.state, view.objects)
    state = view.state.queue(MessageQueue(topic, queue))
    assert state is not None
    assert state.generation is not None
    parts = [reader.columns(run, (name,))[name] for run in view.state.runs(state.queue, state.generation)]
    return [int(v) for v in np.concatenate(parts)]


def test_c01_records_of_every_form(tmp_path: Path) -> None:
    """C1: V1 and V2, IPv4 and IPv6 hosts in all combinations, every bit of sysFlag: stored and read verbatim."""
    flags = (0, 0x1, 0x2, 0x3, COMMIT, COMMIT | 0x1, 0x40, 0x100, 0x200, 0x300, PREPARED, ROLLBACK)
    with cold(tmp_path, open_now=False) as scene:
        for version, born, store, flag in product((1, 2), (V4, V6), (V4, V6), flags):
            scene.broker.send(
                "TopicA", 0, b"body", version=version, born_host=born, store_host=store, sys_flag=flag,
                properties={"TAGS": "TagA"},
            )  # fmt: skip
        long = "%RETRY%" + "g" * 130
        scene.broker.send(long, 0, b"a topic too long for V1")
        scene.archive()
        scene.open()
        visible = [
            (m, raw)
            for m, raw in scene.broker.sent
            if m.topic == "TopicA" and m.sys_flag & 0xC in (0, COMMIT)
        ]
        assert read_all(scene, "TopicA") == [raw for _, raw in visible]
        for (sent, _), raw in zip(visible, read_all(scene, "TopicA"), strict=True):
            found = decode_message(raw)
            assert (found.born_host, found.store_host, found.version) == (
                sent.born_host, sent.store_host, sent.version,
            )  # fmt: skip
        hidden = [raw for m, raw in scene.broker.sent if m.sys_flag & 0xC in (PREPARED, ROLLBACK)]
        assert read_all(scene, "!off-queue") == hidden, (
            "prepared and rolled back: in no queue of the broker's, not lost"
        )
        (only,) = read_all(scene, long)
        assert decode_message(only).version == 2


def test_c02_last_record_blank_next_file(tmp_path: Path) -> None:
    """C2: a file ends in a blank record (here ``000000b5 cbd43194`` at 65,355 of 65,536); the log goes on in the next."""
    store = golden.unpack("rocketmq-store-b", tmp_path) / "rmqh3-after-w1/store"
    first, second, *_ = golden.commitlog_files(store)
    assert first.read_bytes()[65_355:65_363] == bytes.fromhex("000000b5cbd43194")
    with cold(tmp_path, store=store, open_now=False) as scene:
        scene.archive()
        scene.open()
        wanted = [r.raw for r in golden.records(store) if (r.topic, r.queue_id) == ("TopicA", 0)]
        assert read_all(scene, "TopicA") == wanted
        border = next(r for r in golden.records(store) if r.physical_offset == int(second.name))
        found = scene.store.view_message(int(second.name))
        assert found is not None
        assert bytes(found) == border.raw
        assert scene.store.view_message(65_355) is None, "a blank is no message"


def test_c03_zero_tail_torn_record_and_a_file_of_a_wrong_length(tmp_path: Path) -> None:
    """C3: reading stops at zeros and at a record whose size is there and whose rest is not; no false record, ever."""
    with cold(tmp_path, open_now=False) as scene:
        for number in range(5):
            scene.broker.send("T", 0, b"%d" % number)
        scene.archive()
        scene.open()
        scene.broker.write(
            scene.broker.position, struct.pack(">i", 120)
        )  # the size of a record that never came
        scene.archive()
        scene.fresh()
        assert scene.get("T", 0, 5).status is S.OFFSET_OVERFLOW_ONE
        scene.broker.write(scene.broker.position, bytes(4))
        scene.broker.send("T", 0, b"5")
        scene.archive()
        scene.fresh()
        assert scene.get("T", 0, 5).status is S.FOUND
        (scene.broker.directory / f"{1 << 17:020d}").write_bytes(bytes(70_000))
        with pytest.raises(Corrupt, match="differ in size"):
            scene.archive()
        assert read_all(scene, "T") == scene.raws("T"), "what is archived stays readable"


def test_c04_the_whole_record_crc_holds_on_what_is_served(tmp_path: Path) -> None:
    """C4: RocketMQ's tiered copy changes bytes 28–35, which breaks ``__CRC32#``; our copy is verbatim and keeps it.

    Our counterpart of *mismatch detected*: a flipped bit is found before a byte is served, and the error names the place.
    """
    store = golden.unpack("rocketmq-store-a", tmp_path) / "rmqh1/store"
    with cold(tmp_path, store=store, open_now=False) as scene:
        scene.archive()
        reader = scene.open()
        checked = 0
        for queue in reader.queues():
            for raw in read_all(scene, queue.queue.topic, queue.queue.queue_id):
                checked += verify_crc_property(raw)
                if b"__CRC32#" in raw and raw[28:36] != bytes(8):
                    with pytest.raises(Corrupt):
                        verify_crc_property(raw[:28] + bytes(8) + raw[36:])
        assert checked > 300
        damaged = damage(scene)
        fresh = scene.open()
        with pytest.raises(Corrupt) as found:
            scene.stores[-1].get_message(Pull(READER, "TopicA", 0, 0, 32))
        assert found.value.fields["key"] in damaged
        assert "position" in found.value.fields
        fresh.close()


def damage(scene: Cold) -> set[str]:
    """Flip a bit in every block of TopicA/0; the keys of the objects hit."""
    view = scene.store.view
    state = view.state.queue(MessageQueue("TopicA", 0))
    assert state is not None
    assert state.generation is not None
    hit = set()
    for run in view.state.runs(state.queue, state.generation):
        item = view.state.object(run.object)
        assert item is not None
        key = view.objects.key_of(item)
        data = bytearray(scene.provider.get(key).data)
        for row in view.objects.block_table(item)[run.first_block : run.first_block + run.block_count]:
            data[int(row["position"]) + 9] ^= 0x10
        scene.provider.put(key, [data], create_only=False)
        hit.add(key)
    return hit


TAGS = {
    "TagA": 2598919,
    "polygenelubricants": -2147483648,
    "😀": 1772899,
    "中文": 646394,
    "Aa": 2112,
    "BB": 2112,
    None: 0,
}


def test_c05_tags_codes(tmp_path: Path) -> None:
    """C5: Java's hash over UTF-16 units, sign-extended; no tag is 0. Equal hashes (``Aa``, ``BB``) are told apart."""
    with cold(tmp_path, open_now=False) as scene:
        for tag in TAGS:
            scene.broker.send("T", 0, b"x", properties={"TAGS": tag} if tag else {})
        scene.archive()
        scene.open()
        assert column(scene, "T", 0, "tags_code") == list(TAGS.values())
        for number, tag in enumerate(TAGS):
            if tag is not None:
                found = scene.get("T", 0, 0, row_filter=tag_filter(tag))
                assert found.queue_offsets == (number,)
        assert scene.get("T", 0, 0, row_filter=tag_filter("Aa || 😀")).queue_offsets == (2, 4)


def test_c06_the_tags_code_of_a_delayed_message_is_its_time(tmp_path: Path) -> None:
    """C6: in SCHEDULE_TOPIC_XXXX the tags code is store time plus delay: level 3 is 10,000 ms, too high a level the last."""
    with cold(tmp_path, open_now=False) as scene:
        for level in (3, 1, 18, 99):
            scene.broker.send(
                "SCHEDULE_TOPIC_XXXX", 2, b"later", properties={"DELAY": str(level), "TAGS": "TagA"}
            )
        scene.archive()
        scene.open()
        delays = (10_000, 1000, 7_200_000, 7_200_000)
        assert column(scene, "SCHEDULE_TOPIC_XXXX", 2, "tags_code") == [
            scene.broker.time_ms + d for d in delays
        ]


def test_c07_a_queue_that_starts_at_300(tmp_path: Path) -> None:
    """C7: RocketMQ fills the consume queue below with pre-blank units; here the queue's minimum is 300, nothing is below."""
    with cold(tmp_path, open_now=False) as scene:
        for number in range(300, 305):
            scene.broker.send("T", 0, b"%d" % number, queue_offset=number)
        scene.archive()
        store = scene.open()
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (300, 305)
        found = scene.get("T", 0, 0)
        assert (found.status, found.next_begin_offset) == (S.OFFSET_TOO_SMALL, 300)
        assert scene.get("T", 0, 300).queue_offsets == (300, 301, 302, 303, 304)
        assert [q.messages for q in store.queues("T")] == [5]


def test_c08_consume_queue_ext(tmp_path: Path) -> None:
    """C8: with ConsumeQueueExt the consume queue's tags codes are addresses. Here tags come from the records alone."""
    with cold(tmp_path, open_now=False) as scene:
        queue = scene.broker.store / "consumequeue" / "T" / "0"
        queue.mkdir(parents=True)
        units = b""
        for number in range(4):
            sent = scene.broker.send("T", 0, b"x", properties={"TAGS": "TagA" if number % 2 else "TagB"})
            units += struct.pack(
                ">qiq", sent.physical_offset, len(scene.broker.sent[-1][1]), -(1 << 63) + 20 * number
            )
        (queue / f"{0:020d}").write_bytes(units)
        scene.archive()
        scene.open()
        assert column(scene, "T", 0, "tags_code") == [2598920, 2598919] * 2
        assert scene.get("T", 0, 0, row_filter=tag_filter("TagA")).queue_offsets == (1, 3)


def test_c09_the_bytes_that_rocketmq_itself_tiers(tmp_path: Path) -> None:
    """C9: RocketMQ's tiered commitlog and consume queue of a queue are a projection of what the archive has: byte for byte."""
    root = golden.unpack("rocketmq-store-b", tmp_path) / "rmqh3-after-w1"
    with cold(tmp_path, store=root / "store", open_now=False) as scene:
        scene.archive()
        scene.open()
        for topic, queue in (("TopicBatch", 3), ("TopicA", 0)):
            flat, units = b"", b""
            for raw, code in zip(
                read_all(scene, topic, queue), column(scene, topic, queue, "tags_code"), strict=True
            ):
                units += struct.pack(">qiq", len(flat), len(raw), code)
                flat += raw[:28] + struct.pack(">q", len(flat)) + raw[36:]
            assert upstream(root, topic, queue, "COMMIT_LOG") == flat
            assert upstream(root, topic, queue, "CONSUME_QUEUE") == units
        assert upstream(root, "TopicBatch", 3, "CONSUME_QUEUE")[60:] == bytes.fromhex(
            "000000000000016b000000790000000000000a5f"
        )


def upstream(root: Path, topic: str, queue: int, kind: str) -> bytes:
    """A queue's stream as RocketMQ's tiered store wrote it, its segments joined."""
    (directory,) = (root / "tiered").glob(f"*/broker-a/{topic}/{queue}/{kind}")
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir(), key=lambda p: p.name[8:]))
