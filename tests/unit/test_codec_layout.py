"""Single fields read out of a record's bytes, and what lies at places that move, against the decoder of whole records."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.unit.test_codec_message import SAMPLES
from tiered.codec.record.header import read_headers
from tiered.codec.record.layout import (
    FIXED,
    HEAD_BYTES,
    V4_HEAD_DTYPE,
    body_at,
    body_behind,
    offsets_of,
    physical_offset_of,
    physical_offsets,
    properties_behind,
    queue_offsets,
    store_host_at,
    store_time_at,
    store_time_of,
    store_times,
)
from tiered.codec.record.message import Message, decode_message, encode_message, record_properties
from tiered.codec.record.walk import records_in
from tiered.errors import Corrupt

V4, V6 = "10.1.2.3:4", "[2001:db8::1]:5"


@pytest.mark.parametrize("name", SAMPLES)
def test_single_fields_are_those_of_the_whole_record(name: str) -> None:
    record = SAMPLES[name]
    message = decode_message(record)
    starts = np.zeros(1, np.int64)
    assert offsets_of(record) == (message.queue_offset, message.physical_offset)
    assert physical_offset_of(record) == physical_offsets(record, starts)[0] == message.physical_offset
    assert queue_offsets(record, starts)[0] == message.queue_offset
    assert store_time_of(record[:HEAD_BYTES]) == store_times(record, starts)[0] == message.store_timestamp
    assert record_properties(record) == message.properties


def test_too_few_bytes_have_no_field() -> None:
    record = encode_message(Message("T", 0, 7, 9, b"body", born_host=V6, store_timestamp=5))
    assert offsets_of(record[:35]) is physical_offset_of(record[:35]) is None
    assert offsets_of(record[:36]) == (7, 9)
    assert store_time_of(record[:75]) is store_time_of(record[:47]) is store_time_of(b"") is None
    assert store_time_of(record[:76]) == 5


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_places_that_move(born: str, store: str) -> None:
    message = Message("Topic", 1, 2, 3, b"a body", born_host=born, store_host=store, store_timestamp=1 << 40)
    record = encode_message(message)
    flags = FIXED.unpack_from(record)[7]
    many = np.array([flags, 0], np.int64)
    assert struct.unpack_from(">q", record, store_time_at(flags))[0] == 1 << 40
    assert store_time_at(many).tolist() == [store_time_at(flags), 56]
    assert store_host_at(many).tolist() == [store_time_at(flags) + 8, 64]
    assert body_behind(store_time_at(many), many).tolist() == [body_at(flags), V4_HEAD_DTYPE.itemsize]
    assert record[body_at(flags) :].startswith(b"a body\x05Topic")


@pytest.mark.parametrize("cut", [1, 2, 40, 60, 90])
def test_properties_of_a_record_that_ends_early(cut: int) -> None:
    record = encode_message(Message("T", 0, 0, 0, b"b", {"TAGS": "red"}))
    with pytest.raises(Corrupt, match="shorter than its lengths say"):
        record_properties(record[:-cut])


def test_a_length_of_a_topic_that_is_negative_has_nothing_behind_it() -> None:
    record = encode_message(Message("T" * 130, 0, 0, 0, b"", {"TAGS": "red"}))
    begin, length = properties_behind(record, 88, FIXED.unpack_from(record)[1]) or (0, 0)
    assert (begin, length) == (88 + 2 + 130 + 2, len(record) - begin)
    spoilt = record[:88] + b"\xff\xfe" + record[90:]
    assert properties_behind(spoilt, 88, FIXED.unpack_from(record)[1]) is None


def test_a_walk_ends_at_what_cannot_be_a_record() -> None:
    one, two = (encode_message(Message("T", 0, n, 10 * n, b"x" * n)) for n in (4, 5))
    found = list(records_in(one + two + b"\0" * 60))
    assert [walked[:4] for walked in found] == [
        (4, 40, 0, len(one)),
        (5, 50, len(one), len(one) + len(two)),
    ]
    assert len(list(records_in(one + two[:-1]))) == 1
    assert not list(records_in(memoryview(b"")))


@pytest.mark.parametrize(
    "kinds", [((V4, V4),), ((V4, V4), (V4, V6)), ((V6, V4), (V4, V4)), ((V4, V6),), ((V6, V6),)]
)
def test_hosts_of_either_length_side_by_side(kinds: tuple[tuple[str, str], ...]) -> None:
    messages = [
        Message(
            "T", 3, 40 + n, 900 + n, b"b" * n, born_host=born, store_host=store, born_timestamp=50 + n,
            store_timestamp=60 + n, reconsume_times=70 + n, prepared_transaction_offset=80 + n,
        )
        for n, (born, store) in enumerate(kinds * 2)
    ]  # fmt: skip
    records = [encode_message(message) for message in messages]
    sizes = np.array([len(record) for record in records])
    found = read_headers(b"".join(records), np.cumsum(sizes) - sizes, sizes)
    assert found.flaw is None
    for row, message in zip(found.rows, messages, strict=True):
        for name in (
            "queue_offset", "physical_offset", "born_timestamp", "store_timestamp", "reconsume_times",
            "prepared_transaction_offset",
        ):  # fmt: skip
            assert row[name] == getattr(message, name), name
        assert row["body_length"] == len(message.body)
