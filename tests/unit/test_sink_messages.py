"""What drivers are given of a batch: the messages as RocketMQ's consumers see them."""

from __future__ import annotations

import bz2
import struct
import zlib
from dataclasses import replace

import lz4.frame
import numpy as np
import pytest
import zstandard

from tests.kit.pipeline import INNER_BATCH
from tiered.codec.record.message import Message, decode_message, encode_properties
from tiered.codec.record.unpack import SYS_NEED_UNWRAP, inflated, inner_messages
from tiered.sink.contract.samples import batch_of, hostile, message_of, ordinary
from tiered.sink.messages import messages_of
from tiered.sink.propertycolumns import property_columns

COMPRESSED = 0x1
PLAIN = b"a body that is compressed " * 40
PACKED = {
    0x000: zlib.compress(PLAIN),
    0x100: lz4.frame.compress(PLAIN[:300]) + lz4.frame.compress(PLAIN[300:]),
    0x200: zstandard.compress(PLAIN[:300]) + zstandard.compress(PLAIN[300:]),
    0x300: zlib.compress(PLAIN) + b"what follows is left out",
}


def inner(*messages: tuple[int, bytes, dict[str, str]]) -> bytes:
    """The body of an inner batch, as RocketMQ's producers encode it."""
    made = b""
    for flag, body, properties in messages:
        area = encode_properties(properties)
        size = 22 + len(body) + len(area)
        made += (
            struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(area)) + area
        )
    return made


def of(*messages: Message):
    return messages_of(batch_of(messages)[0])


def test_columns_are_those_of_the_messages() -> None:
    samples = ordinary(3) + hostile()
    found = messages_of(batch_of(samples)[0])
    for at, message in enumerate(samples):
        assert found.topics[found.topic[at]] == message.topic
        assert (found.queue_id[at], found.queue_offset[at]) == (message.queue_id, message.queue_offset)
        assert (found.store_timestamp[at], found.born_timestamp[at]) == (
            message.store_timestamp,
            message.born_timestamp,
        )
        assert {name: value.decode() for name, value in found.properties[at]} == dict(message.properties)
        assert found.message_id[at] == message.message_id
        assert found.unique_key[at] == message.properties["UNIQ_KEY"].encode()
        assert found.tags[at] == (None if message.tags is None else message.tags.encode())
    assert [body.content for body in found.bodies()] == [message.body for message in samples]


def test_properties_are_columns_where_all_messages_have_the_same_names() -> None:
    alike = [message_of("T", 0, at, b"", {"TAGS": "t" * (at + 1), "KEYS": f"k{at}"}) for at in range(3)]
    for messages in (alike, [replace(m, properties={}) for m in alike], []):
        found = of(*messages)
        columns = property_columns(found.entries, len(found))
        assert columns is not None
        rows = zip(*columns.values, strict=True) if columns.values else [()] * len(found)
        assert [list(zip(columns.names, row, strict=True)) for row in rows] == found.properties
    usual = {"TAGS": "t", "KEYS": "k"}
    others: tuple[list[dict[str, str]], ...] = (
        [usual, {"TAGS": "t"}], [usual, {"KEYS": "k", "TAGS": "t"}], [usual, {"TAGS": "t", "KEYT": "k"}],
        [usual, {"TAGS": "t", "KEYSS": "k"}], [{"TAGS": "t"}, {"TAGS": "t", "TAGT": "k", "TAGU": "k"}],
        [{"TAGS": "t", "KEYS": "k", "TAGT": "t"}, {"KEYS": "k"}],
    )  # fmt: skip
    for properties in others:
        found = of(*(replace(alike[0], properties=own) for own in properties))
        assert property_columns(found.entries, len(found)) is None, properties
    twice = replace(alike[0], properties={"A": "one", "B": "two"})
    batch, buffer = batch_of([twice])
    buffer[buffer.index(b"B\x01two")] = ord("A")
    found = messages_of(batch)
    assert property_columns(found.entries, 1) is None, "of equal names the last counts"
    uneven = {"A": "one"}, {"B": "two", "A": "one", "C": "two"}
    batch, buffer = batch_of([replace(alike[0], properties=own) for own in uneven])
    buffer[buffer.index(b"C\x01two")] = ord("B")
    found = messages_of(batch)
    assert property_columns(found.entries, 2) is None, "in turn, but not of as many each"


def test_rows_that_are_not_given_are_left_out() -> None:
    samples = ordinary(4)
    rows = [1, 2, 7]
    found = messages_of(batch_of(samples, rows)[0])
    assert [body.content for body in found.bodies()] == [samples[row].body for row in rows]
    assert found.unique_key == [samples[row].properties["UNIQ_KEY"].encode() for row in rows]
    assert found.message_id == [samples[row].message_id for row in rows]
    part = found.since(1, 3)
    assert part.unique_key == found.unique_key[1:]
    assert part.properties == found.properties[1:]
    assert part.queue_offset.tolist() == found.queue_offset[1:].tolist()


def test_six_byte_hosts_have_their_own_ids() -> None:
    samples = [
        Message("T", 0, at, 1000 + at, b"x", store_host=host)
        for at, host in enumerate(("127.0.0.1:10911", "[::1]:10911", "10.0.0.9:1"))
    ]
    assert of(*samples).message_id == [message.message_id for message in samples]


def test_of_equal_names_the_last_counts() -> None:
    twice = b"A\x01one\x02B\x01two\x02A\x01three\x02"
    message = Message("T", 0, 0, 0, b"", {"A": "one", "B": "two", "C": "three"})
    batch, buffer = batch_of([message, message])
    at = buffer.index(b"C\x01three")
    buffer[at : at + 1] = b"A"
    found = messages_of(batch)
    assert found.properties[0] == [("A", b"three"), ("B", b"two")]
    assert found.properties[1] == [("A", b"one"), ("B", b"two"), ("C", b"three")]
    assert decode_message(batch.messages.record(0)).properties == {"A": "three", "B": "two"}
    assert twice in bytes(buffer)


@pytest.mark.parametrize("kind", PACKED)
def test_bodies_are_decompressed(kind: int) -> None:
    found = of(
        Message("T", 0, 0, 0, PACKED[kind], sys_flag=COMPRESSED | kind), message_of("T", 0, 1, b"plain")
    )
    assert list(found.bodies()) == [(PLAIN, True), (b"plain", True)]
    assert next(iter(found.bodies(len(PLAIN)))) == (PLAIN, True)
    assert next(iter(found.bodies(len(PLAIN) - 1))) == (PACKED[kind], False), "too large is said"


@pytest.mark.parametrize("kind", [*PACKED, 0x400])
def test_bodies_that_cannot_be_read_stay_as_they_are(kind: int) -> None:
    for body in (b"", bz2.compress(PLAIN), PACKED.get(kind, b"nothing")[:40]):
        found = of(Message("T", 0, 0, 0, body, sys_flag=COMPRESSED | kind))
        # Of zstd and LZ4 no frame at all is an empty body, as for RocketMQ's client.
        assert list(found.bodies()) in (
            [(body, False)],
            [(b"", True)] if not body and kind in (0x100, 0x200) else [],
        )


def test_a_bomb_is_not_made() -> None:
    for kind, pack in ((0x100, lz4.frame.compress), (0x200, zstandard.compress), (0x300, zlib.compress)):
        assert inflated(pack(bytes(8 << 20)), COMPRESSED | kind, 1 << 10) is None


@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_batch_is_taken_apart_as_consumers_do(packed: bool) -> None:
    held = [(7, b"one", {"UNIQ_KEY": "A", "TAGS": "t"}), (8, b"", {"KEYS": "k1 k2"}), (9, b"three", {})]
    body, flags = inner(*held), INNER_BATCH | SYS_NEED_UNWRAP
    if packed:
        body, flags = zlib.compress(body), flags | COMPRESSED
    whole = Message("T", 3, 10, 500, body, {"INNER_NUM": "3"}, sys_flag=flags)
    found = of(message_of("T", 3, 9, b"before", physical=400), whole, message_of("T", 3, 13, b"behind"))
    assert found.queue_offset.tolist() == [9, 10, 11, 12, 13]
    assert found.row.tolist() == [0, 1, 1, 1, 2]
    assert [b.content for b in found.bodies()] == [b"before", b"one", b"", b"three", b"behind"]
    assert found.flag.tolist() == [0, 7, 8, 9, 0]
    assert found.tags == [None, b"t", None, None, None]
    assert found.properties[1:4] == [[("UNIQ_KEY", b"A"), ("TAGS", b"t")], [("KEYS", b"k1 k2")], []]
    assert found.unique_key[0] is not None
    assert found.unique_key[4] is not None
    assert set(found.message_id[1:4]) == {whole.message_id}


def test_an_inner_batch_that_consumers_see_whole_stays_whole() -> None:
    body = inner((0, b"one", {}), (0, b"two", {}))
    for flags, content in (
        (INNER_BATCH, body),
        (INNER_BATCH | SYS_NEED_UNWRAP, body[:-1]),
        (SYS_NEED_UNWRAP, body),
    ):
        found = of(Message("T", 0, 4, 0, content, sys_flag=flags))
        assert [b.content for b in found.bodies()] == [content]
        assert found.queue_offset.tolist() == [4]


def test_inner_messages_end_where_their_lengths_say() -> None:
    good = inner((1, b"abc", {"A": "b"}))
    assert inner_messages(good) == [(1, b"abc", b"A\x01b\x02")]
    for at in range(len(good)):
        assert at == 0 or inner_messages(good[:at]) is None
    negative = bytearray(good)
    negative[16:20] = struct.pack(">i", -1)
    assert inner_messages(negative) is None


def test_nothing_given_is_nothing() -> None:
    batch, _ = batch_of(ordinary(1), [])
    found = messages_of(batch)
    assert len(found) == 0
    assert (list(found.bodies()), found.properties, found.tags) == ([], [], [])
    assert isinstance(found.queue_offset, np.ndarray)
