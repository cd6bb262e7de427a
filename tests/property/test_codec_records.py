"""Records under any input: what is encoded comes back, and bad bytes only ever mean ``Corrupt`` or an early
stop.
"""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.codec.checksum import verify_crc_property
from tiered.codec.javahash import java_hash, java_hashes
from tiered.codec.record import consumequeue
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import Frames, Stop, edges_of, scan, verify
from tiered.codec.record.hosts import decode_message_id, encode_message_id
from tiered.codec.record.message import Message, decode_message, decode_properties, encode_message
from tiered.codec.record.properties import key_hash, property_columns
from tiered.errors import Corrupt

MAX_RECORD = 1 << 20

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
ports = st.integers(0, 65535)
hosts = st.one_of(
    st.builds(lambda a, p: f"{a}:{p}", st.ip_addresses(v=4), ports),
    st.builds(lambda a, p: f"[{a}]:{p}", st.ip_addresses(v=6), ports),
)
plain_text = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
names = st.one_of(plain_text, st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_NUM", "WAIT"]))
values = st.one_of(plain_text, st.sampled_from(["1", "18", "a b", "polygenelubricants", "0", "-3"]))
messages = st.builds(
    Message,
    topic=st.one_of(st.sampled_from(["T", "SCHEDULE_TOPIC_XXXX", "%RETRY%g"]), st.text(max_size=50)).filter(
        lambda t: _is_utf8(t)
    ),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 1 << 56),
    physical_offset=st.just(0),
    body=st.binary(max_size=40),
    properties=st.dictionaries(names, values, max_size=5),
    flag=i32,
    sys_flag=i32,
    born_timestamp=i64,
    born_host=hosts,
    store_timestamp=st.integers(0, 1 << 48),
    store_host=hosts,
    reconsume_times=i32,
    prepared_transaction_offset=i64,
    version=st.sampled_from([2, None]),
)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _edges_say_what_scan_says(data: bytes, rows: int) -> None:
    frames = scan(data, base=None, max_record_bytes=max(1, len(data)))
    edges = edges_of(data, rows)
    assert (edges is not None) == (0 < rows == len(frames) and frames.end == len(data))
    if edges is not None:
        assert edges.tolist() == [*frames.starts.tolist(), len(data)]


def _through_everything(data: bytes, frames: Frames) -> None:
    """Every decoder over one buffer: a value or ``Corrupt``."""
    base = int(frames.starts[0]) if len(frames) else 0
    assert (frames.starts + frames.sizes <= len(data)).all()
    try:
        proven = verify(data, frames, None)
        again = verify(data, proven, -base)
        assert len(again) <= len(proven) <= len(frames)
        batch = decode_headers(data, proven)
    except Corrupt:
        return
    columns = property_columns(batch)
    assert len(batch) == len(proven) == len(columns.tag) == len(columns.tags_code)
    assert sum(len(batch.record(row)) for row in range(len(batch))) == int(proven.sizes.sum())
    for row in range(len(batch)):
        message = decode_message(batch.record(row))
        assert message.topic == batch.topics[batch.headers["topic_index"][row]]


def _placed(batch: list[Message]) -> list[Message]:
    placed, position = [], 0
    for message in batch:
        placed.append(replace(message, physical_offset=position))
        position += len(encode_message(placed[-1]))
    return placed


@settings(max_examples=120, deadline=None)
@given(st.lists(messages, max_size=6))
def test_what_is_encoded_comes_back(batch: list[Message]) -> None:
    placed = _placed(batch)
    raw = [encode_message(m) for m in placed]
    data = b"".join(raw)
    frames = verify(data, scan(data, base=0, max_record_bytes=MAX_RECORD), 0)
    assert (len(frames), frames.stop, frames.end) == (len(raw), Stop.END, len(data))
    decoded = decode_headers(data, frames)
    columns = property_columns(decoded)
    for row, message in enumerate(placed):
        header = decoded.headers[row]
        assert bytes(decoded.record(row)) == raw[row]
        single = decode_message(raw[row])
        assert encode_message(single) == raw[row]
        assert (single.body, single.properties) == (message.body, message.properties)
        for name in ("queue_id", "flag", "queue_offset", "physical_offset", "born_timestamp", "store_timestamp",
                     "reconsume_times", "prepared_transaction_offset", "body_crc"):  # fmt: skip
            assert header[name] == getattr(message, name) == getattr(single, name)
        assert decode_message_id(single.message_id) == (single.store_host, single.physical_offset)
        assert encode_message_id(*decode_message_id(single.message_id)) == single.message_id
        assert columns.tags[columns.tag[row]].decode() == message.properties.get("TAGS", "")
        keys = [key_hash(message.topic, key) for key in message.keys]
        if message.unique_key:
            keys.insert(0, key_hash(message.topic, message.unique_key))
        assert columns.key_hash[columns.key_row == row].tolist() == keys
        if message.topic != "SCHEDULE_TOPIC_XXXX":
            assert columns.tags_code[row] == java_hash(message.properties.get("TAGS", ""))


@settings(max_examples=100, deadline=None)
@given(messages)
def test_whole_record_crc(message: Message) -> None:
    message.properties.pop("__CRC32#", None)  # type: ignore[attr-defined]
    raw = encode_message(message, with_crc=True)
    assert verify_crc_property(raw)
    assert decode_message(raw).body == message.body
    assert not verify_crc_property(raw[:-1])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600), st.one_of(st.none(), st.integers(0, 1 << 40)), st.integers(0, 600))
def test_arbitrary_bytes(data: bytes, base: int | None, start: int) -> None:
    frames = scan(data, start=min(start, len(data)), base=base, max_record_bytes=MAX_RECORD)
    _through_everything(data, frames)
    _edges_say_what_scan_says(data, max(1, len(frames)))
    with contextlib.suppress(Corrupt):
        decode_message(data)
    decode_properties(data)
    consumequeue.written(consumequeue.decode_units(data))


@settings(max_examples=200, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_flipped_bytes_never_do_more_than_stop_early(batch: list[Message], data: st.DataObject) -> None:
    raw = [encode_message(m) for m in _placed(batch)]
    torn = bytearray(b"".join(raw))
    for _ in range(data.draw(st.integers(1, 3))):
        torn[data.draw(st.integers(0, len(torn) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    torn = torn[: data.draw(st.integers(0, len(torn)))]
    frames = scan(bytes(torn), base=None, max_record_bytes=MAX_RECORD)
    _through_everything(bytes(torn), frames)
    for rows in {len(frames), len(batch), data.draw(st.integers(-1, 6))}:
        _edges_say_what_scan_says(bytes(torn), rows)
    # Boundaries the bytes do not support: the header claims the size, the frame another.
    bent = Frames(frames.starts, frames.sizes + data.draw(st.integers(-200, 200)), frames.end, frames.stop)
    with contextlib.suppress(Corrupt):
        decode_headers(bytes(torn), verify(bytes(torn), bent, None))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=5),
    st.sampled_from([b"", b"TAGS\x01", b"KEYS\x01a ", b"\x02TAGS\x01x\x02"]),
)
def test_arbitrary_property_bytes_mean_what_the_one_record_parser_says(
    areas: list[bytes], lead: bytes
) -> None:
    plain = encode_message(Message("T", 0, 0, 0, b""))[:-2]
    raw = []
    for area in areas:
        record = plain + struct.pack(">h", len(lead + area)) + lead + area
        raw.append(struct.pack(">i", len(record)) + record[4:])
    data = b"".join(raw)
    columns = property_columns(decode_headers(data, scan(data, base=None, max_record_bytes=MAX_RECORD)))
    for row, area in enumerate(areas):
        want: dict[bytes, bytes] = {}
        for entry in (lead + area).split(b"\x02"):
            name, divider, value = entry.partition(b"\x01")
            if name and divider and value:
                want[name] = value
        assert columns.tags[columns.tag[row]] == want.get(b"TAGS", b"")
        keys = [key for key in want.get(b"KEYS", b"").split(b" ") if key]
        assert columns.key_hash[columns.key_row == row].tolist() == [key_hash("T", key) for key in keys]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=8))
def test_java_hashes_agree_with_the_rule(texts: list[str]) -> None:
    def by_hand(text: str) -> int:
        hashed = 0
        units = text.encode("utf-16-be")
        for at in range(0, len(units), 2):
            hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
        return hashed - (hashed >> 31 << 32)

    assert java_hashes([t.encode() for t in texts]).tolist() == [by_hand(t) for t in texts]
    assert [java_hash(t) for t in texts] == [by_hand(t) for t in texts]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(i64, i32, i64), max_size=10))
def test_consume_queue_units_come_back(units: list[tuple[int, int, int]]) -> None:
    array = np.array(units, consumequeue.CQ_DTYPE)
    assert consumequeue.decode_units(consumequeue.encode_units(array)).tolist() == units


def test_lengths_on_the_wire_allocate_nothing() -> None:
    raw = bytearray(encode_message(Message("T", 0, 0, 0, b"b" * 50)))
    for at in (0, 84, 88 + 50, 88 + 50 + 2):
        lying = bytearray(raw)
        lying[at : at + 2] = b"\x7f\xff"
        tracemalloc.start()
        try:
            _through_everything(bytes(lying), scan(bytes(lying), base=0, max_record_bytes=1 << 31))
            bent = Frames(np.array([0]), np.array([0x7FFFFFFF]), 0, Stop.END)
            _through_everything_or_corrupt(bytes(lying), bent)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def _through_everything_or_corrupt(data: bytes, frames: Frames) -> None:
    try:
        decode_headers(data, frames)
    except Corrupt:
        return
    raise AssertionError("a record longer than its buffer was accepted")
