"""Columns made from properties, Java's hash, consume-queue units."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tiered.codec.checksum import xxh3_64
from tiered.codec.javahash import java_hash, java_hashes
from tiered.codec.record import consumequeue
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import scan, verify
from tiered.codec.record.message import Message, decode_message, decode_properties, encode_message
from tiered.codec.record.properties import (
    SCHEDULE_TOPIC,
    PropertyColumns,
    PropertyEntries,
    key_hash,
    property_columns,
    property_values,
    tags_codes,
)
from tiered.codec.record.tagsalike import codes_of_alike
from tiered.errors import Corrupt


def message(**fields: object) -> Message:
    """A small message; fields override."""
    base = Message("TopicA", 1, 2, 0, b"body", {"TAGS": "TagA"}, store_timestamp=1_700_000_000_000)
    return replace(base, **fields)  # type: ignore[arg-type]


def columns_of(*messages: Message) -> tuple[MessageBatch, PropertyColumns]:
    """Decode messages encoded back to back."""
    data = b"".join(map(encode_message, messages))
    frames = scan(data, base=None, max_record_bytes=8 << 20)
    assert len(verify(data, frames, None)) == len(messages)
    batch = decode_headers(data, frames)
    return batch, property_columns(batch)


def with_properties(raw: bytes) -> bytes:
    """A record whose property bytes are exactly ``raw``."""
    plain = encode_message(message(properties={}))[:-2] + struct.pack(">h", len(raw)) + raw
    return struct.pack(">i", len(plain)) + plain[4:]


def test_property_columns() -> None:
    batch, columns = columns_of(
        message(properties={"TAGS": "TagB", "KEYS": "a  b c", "UNIQ_KEY": "u0"}),
        message(properties={}),
        message(topic="Other", properties={"KEYS": " x ", "TAGS": "polygenelubricants"}),
        message(properties={"TAGS": "中文", "WAIT": "true"}),
        message(properties={"TAGS": "😀", "UNIQ_KEY": "u 1"}, sys_flag=0x80 | 0x40),
        message(properties={"INNER_NUM": "7"}, sys_flag=0x80),
        message(properties={"INNER_NUM": "7"}),
        message(properties={"INNER_NUM": "99999", "KEYS": " "}, sys_flag=0x80),
        message(sys_flag=0x4),
        message(sys_flag=0xC),
        message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "18", "TAGS": "TagA"}),
        message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "99"}),
        message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "0", "TAGS": "T"}),
        message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "1_0", "TAGS": "T"}),
        message(properties={"DELAY": "3", "TAGS": "T"}),
    )
    assert columns.tags[0] == b""
    tags = [columns.tags[i].decode() for i in columns.tag]
    assert tags[:5] == ["TagB", "", "polygenelubricants", "中文", "😀"]
    deliver = 1_700_000_000_000 + 7_200_000
    assert columns.tags_code.tolist() == [
        2598920, 0, -2147483648, 646394, 1772899, 0, 0, 0, 2598919, 2598919, deliver, deliver, 84, 84, 84,
    ]  # fmt: skip
    assert columns.queue_offsets.tolist() == [1, 1, 1, 1, 1, 7, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    expected = [(0, "TopicA", "u0"), (4, "TopicA", "u 1"), (0, "TopicA", "a"), (0, "TopicA", "b"),
                (0, "TopicA", "c"), (2, "Other", "x")]  # fmt: skip
    assert columns.key_row.tolist() == [row for row, _, _ in expected]
    assert columns.key_hash.tolist() == [key_hash(topic, key) for _, topic, key in expected]
    assert key_hash("T", b"k") == xxh3_64(b"T\0k")
    assert len(batch.topics) == 3


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        (b"TAGS\x01a\x02", b"a"),
        (b"TAGS\x01a", b"a"),  # the last 0x02 may be missing
        (b"TAGS\x01a\x02TAGS\x01b", b"b"),  # the last of equal names wins
        (b"TAGS\x01a\x02TAGS\x01", b"a"),  # an empty value does not count
        (b"TAGS\x01a\x01b\x02", b"a\x01b"),  # the first 0x01 divides
        (b"\x01TAGS\x01a\x02", b""),  # an empty name
        (b"\x02\x02TAGS\x01a\x02", b"a"),
        (b"TAGS\x02\x01a\x02", b""),
        (b"TAGSX\x01a\x02TAG\x01b\x02tags\x01c\x02", b""),
        (b"TAGS", b""),
        (b"x\x01TAGS\x01a", b""),
        (b"\xff\xfe\x02TAGS\x01\xff", b"\xff"),
    ],
)
def test_properties_are_parsed_as_the_broker_does(raw: bytes, tag: bytes) -> None:
    records = [with_properties(b"TAGS\x01before"), with_properties(raw), with_properties(b"Z\x01after")]
    data = b"".join(records)
    columns = property_columns(decode_headers(data, scan(data, base=None, max_record_bytes=8 << 20)))
    assert [columns.tags[i] for i in columns.tag] == [b"before", tag, b""]
    assert decode_message(records[1]).properties.get("TAGS", "") == tag.decode("utf-8", "replace")
    assert decode_properties(raw).get("TAGS", "") == tag.decode("utf-8", "replace")


JAVA_HASHES = {
    "": 0,
    "TagA": 2598919,
    "TagB": 2598920,
    "T": 84,
    "T0": 2652,
    "TopicTest#MessageKey": 638347386,
    "polygenelubricants": -2147483648,
    "Aa": 2112,
    "BB": 2112,
    "中文": 646394,
    "😀": 1772899,
}


def test_java_hash_vectors() -> None:
    assert {text: java_hash(text) for text in JAVA_HASHES} == JAVA_HASHES
    assert java_hashes([t.encode() for t in JAVA_HASHES]).tolist() == list(JAVA_HASHES.values())
    assert java_hashes([b"", b"Aa", b"", b"TagB"]).tolist() == [0, 2112, 0, 2598920]
    assert java_hashes([]).tolist() == java_hashes([b""]).tolist()[:0]


@pytest.mark.parametrize(
    "tags",
    [
        ["TagA", "TagB", "x", "", "TagA"],
        ["TagA", "Größe", "x", "", "名前", "TagA"],
        ["t" * length for length in range(1, 300)],
        ["\x7f" * 40, "~"],
        [""],
    ],
)
def test_tags_codes_alone_are_those_of_all_columns(tags: list[str]) -> None:
    properties = [{"TAGS": tag} if tag else {"KEYS": "k"} for tag in tags]
    batch, columns = columns_of(*(message(properties=some) for some in properties * 3))
    assert tags_codes(batch).tolist() == columns.tags_code.tolist()
    assert columns.tags_code.tolist() == [java_hash(tag) for tag in tags] * 3


_AREAS = {
    "one shape": [b"UNIQ_KEY\x01%04d\x02TAGS\x01TagA\x02", b"UNIQ_KEY\x01%04d\x02TAGS\x01TagB\x02"],
    "four letters": [b"KEYS\x01%04d\x02TAGS\x01x\x02WAIT\x01u\x02", b"WAIT\x01%04d\x02TAGZ\x01x\x02KEYS\x01u\x02"],
    "two shapes of one length": [b"TAGS\x01ab\x02KEYS\x01%04d\x02", b"TAGS\x01a\x02KEYS\x01k%04d\x02"],
    "the mark of another place": [b"a\x01b\x02TAGS\x01%04d\x02", b"a\x01b\x01TAGS\x01%04d\x02"],
    "more marks": [b"KEYS\x01%04dxTAGSyab\x02", b"KEYS\x01%04d\x02TAGS\x01ab\x02"],
    "twice": [b"TAGS\x01one\x02a\x01%04d\x02TAGS\x01to\x02", b"TAGX\x01one\x02a\x01%04d\x02TAGS\x01to\x02"],
    "the last is another's": [b"TAGS\x01one\x02a\x01%04d\x02TAGS\x01two\x02", b"TAGS\x01one\x02a\x01%04d\x02TAGX\x01two\x02"],
    "not closed": [b"a\x01%04d\x02TAGS\x01abc", b"a\x01%04d\x02TAGS\x01abd"],
    "closed or not": [b"a\x01%04d\x02TAGS\x01abc\x02", b"a\x01%04d\x02TAGS\x01abcd"],
    "no value, no name, no divider": [b"TAGS\x01\x02\x01%04d\x02TAGS\x02", b"TAGS\x01\x02\x01%04d\x02TAGX\x02"],
    "a value with a divider": [b"TAGS\x01a\x01%04d\x02", b"TAGS\x01\x01a%04d\x02"],
    "none at all": [b"KEYS\x01%04d\x02", b""],
    "zero bytes": [b"TAGS\x01\x00\x7f%04d\x02", b"TAGS\x01\x03\x00%04d\x02"],
}  # fmt: skip


@pytest.mark.parametrize("areas", _AREAS.values(), ids=_AREAS)
@pytest.mark.parametrize("mixed", [False, True])
def test_tags_codes_of_areas_that_are_alike(areas: list[bytes], mixed: bool) -> None:
    """One after the other, or each kind for itself; each area's tag as a parser of one message reads it."""
    shapes = areas * 50 if mixed else [area for area in areas for _ in range(50)]
    raw = [area % number if b"%" in area else area for number, area in enumerate(shapes)]
    data = b"".join(map(with_properties, raw))
    batch = decode_headers(data, scan(data, base=None, max_record_bytes=8 << 20))
    tags = [property_values(area).get(b"TAGS", b"") for area in raw]
    expected = [java_hash(tag.decode()) for tag in tags]
    alike = codes_of_alike(batch)
    assert alike is not None
    assert alike.tolist() == tags_codes(batch).tolist() == expected
    assert property_columns(batch).tags_code.tolist() == expected


@pytest.mark.parametrize(
    "areas",
    [
        [b"TAGS\x01" + b"t" * n + b"\x02" for n in range(1, 60)],
        [b"TAGS\x01" + b"t" * n + b"\x02KEYS\x01" + b"k" * (20 - n) + b"\x02" for n in range(1, 20)] * 50,
        [b"TAGS\x01\xc3\xb6\x02"] * 50,
        [b"TAGS\x01t\x02KEYS\x01" + b"k" * 2000 + b"\x02"] * 50,
    ],
    ids=["many lengths", "many shapes of one length", "not ASCII", "long"],
)
def test_areas_that_are_not_alike_are_parsed(areas: list[bytes]) -> None:
    data = b"".join(map(with_properties, areas))
    batch = decode_headers(data, scan(data, base=None, max_record_bytes=8 << 20))
    assert codes_of_alike(batch) is None
    assert tags_codes(batch).tolist() == [
        java_hash(property_values(area)[b"TAGS"].decode()) for area in areas
    ]


def test_tags_codes_of_delayed_messages_are_their_times() -> None:
    delayed = {"TAGS": "a", "DELAY": "2"}
    batch, columns = columns_of(message(topic=SCHEDULE_TOPIC, properties=delayed), message())
    assert tags_codes(batch).tolist() == columns.tags_code.tolist()
    assert columns.tags_code[0] == 1_700_000_005_000


def test_consume_queue_units() -> None:
    golden = bytes.fromhex(
        "0000000000000000000000800000000000000000"
        "00000000000000800000008b000000000027a808"
        "000000000000010b0000008c000000000027a807"
        "0000000000010177000000a4000001a1fa17ad8d"
    )
    units = consumequeue.decode_units(golden + bytes(19))
    assert units.tolist() == [
        (0, 128, 0),
        (128, 139, 2598920),
        (267, 140, 2598919),
        (65911, 164, 1795197218189),
    ]
    assert consumequeue.encode_units(units) == golden
    file = consumequeue.decode_units(consumequeue.pre_blank(3) + golden + bytes(40))
    assert consumequeue.written(file) == 7
    assert consumequeue.is_pre_blank(file).tolist() == [True] * 3 + [False] * 6
    assert consumequeue.written(units) == 4
    assert len(consumequeue.decode_units(b"")) == 0


def test_consume_queue_ext_addresses() -> None:
    units = consumequeue.decode_units(
        bytes.fromhex("00000000000000000000009880000000000000000000000000000098000000988000000000000014")
    )
    ext = bytes.fromhex("00140000000000000054000001a1fa178696000000140000000000000054000001a1fa1786a40000")
    places = [consumequeue.ext_position(code) for code in units["tags_code"].tolist()]
    assert places == [0, 20]
    assert [consumequeue.decode_ext_tags_code(ext, place or 0) for place in places] == [84, 84]
    assert consumequeue.ext_position(-2147483648) is None
    assert consumequeue.ext_position(-2147483649) is not None
    for position in (-1, 21, 5):
        with pytest.raises(Corrupt):
            consumequeue.decode_ext_tags_code(ext, position)


def test_many_lengths_at_once() -> None:
    sent = [
        message(topic="T" * (1 + n), properties={"KEYS": "k" * (1 + n), "TAGS": "t" * n + "x"})
        for n in range(90)
    ]
    batch, columns = columns_of(*sent)
    assert [batch.topics[i] for i in batch.headers["topic_index"]] == [m.topic for m in sent]
    assert [columns.tags[i].decode() for i in columns.tag] == [m.tags for m in sent]
    assert columns.key_hash.tolist() == [key_hash(m.topic, m.keys[0]) for m in sent]


def test_values_that_are_exactly_a_text() -> None:
    values = ["PUT", "PU", "PUTT", "put", "DELETE", None, "XPUT", "PUX"]
    batch, _ = columns_of(
        *(message(properties={"a": "PUT"} if value is None else {"kind": value}) for value in values)
    )
    entries = PropertyEntries.parse(batch)
    kinds = entries.last(b"kind", len(batch))
    assert entries.says(kinds, b"PUT").tolist() == [value == "PUT" for value in values]
    assert entries.says(kinds, b"DELETE").tolist() == [value == "DELETE" for value in values]
    assert not entries.says(entries.last(b"none", len(batch)), b"PUT").any()
    bare = columns_of(message(properties={}), message(properties={}))[0]
    entries = PropertyEntries.parse(bare)
    assert entries.says(entries.last(b"kind", 2), b"PUT").tolist() == [False, False]
