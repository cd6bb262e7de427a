"""Records one by one: golden samples of every kind, boundaries, flaws, sums."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zstandard

from tiered.codec.checksum import body_crc, body_crcs, crc32c, crc_property, verify_crc_property
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import Frames, Stop, scan, verify
from tiered.codec.record.hosts import decode_message_id, encode_message_id
from tiered.codec.record.message import Message, decode_message, encode_message, encode_properties
from tiered.codec.record.properties import property_columns
from tiered.codec.zstd import each_piece
from tiered.errors import Corrupt, Invalid

MAX_RECORD = 1 << 20

# Written by RocketMQ's own store (samples A1..A9).
A1 = """00000080daa320a7551f0a28000000000000000700000000000000000000000000000000000000000000018bcfe5687b
0a0102030000c351000001a1fa1786207f00000100002a9f0000000000000000000000000000000868656c6c6f2d302d
06546f7069634100174b455953016b65793002554e49515f4b455901554b3002"""
A2 = """0000008bdaa320a738fecb44000000000000000700000000000000010000000000000080000000000000018bcfe5687b
0a0102030000c351000001a1fa1786297f00000100002a9f0000000000000000000000000000000968656c6c6f2d312d
7806546f7069634100214b455953016b65793102554e49515f4b455901554b310254414753015461674202"""
A3 = """000000a4daa320a76c814a37000000020000000700000000000000000000000000010177000000000000018bcfe5687b
0a0102030000c351000001a1fa17867d7f00000100002a9f0000000000000000000000000000000764656c6179656413
5343484544554c455f544f5049435f58585858002f5245414c5f544f50494301546f706963410244454c415901330254
414753015461675a025245414c5f514944013002"""
A4 = """00000079daa320a730cb2b7600000003000000000000000000000000000000000001021b000000000000000000000001
0a01020300000001000001a1fa17867d7f00000100002a9f0000000000000000000000000000000262300a546f706963
42617463680012574149540174727565025441475301543002"""
A5 = """000000a5daa320a7551f0a28000000000000000700000000000000000000000000000000000000000000018bcfe5687b
0a0102030000c351000001a1fa14af3a7f00000100002a9f0000000000000000000000000000000868656c6c6f2d302d
06546f70696341003c4b455953016b65793020636f6d6d6f6e02554e49515f4b455901554b3002544147530154616741
025f5f435243333223013039393439353638303202"""
A6 = """000000acdaa320a74905d33d00000001000000070000000000000000000000000000e3d0000000300000018bcfe5687b
20010db80000000000000000000000010000c351000001a1fa14afa520010db800000000000000000000000200002a9f
0000000000000000000000000000000476362d3007546f7069635636002e4b455953016b02554e49515f4b4559015530
02544147530154025f5f435243333223013336343435393836353002"""
A7_HEAD = """000000fddaa320ab05bf3d6800000000000000070000000000000000000000000000e72c000000000000018bcfe5687b
0a0102030000c351000001a1fa14afa67f00000100002a9f000000000000000000000000000000046c742d3000892552
4554525925"""
A7_TAIL = "00145f5f435243333223013638353930363532313102"
A8 = """00000087daa320a715d4e72600000000000000070000000000000000000000000000ea23000000040000018bcfe5687b
0a0102030000c351000001a1fa14afa67f00000100002a9f000000000000000000000000000000087072657061726564
06546f70696341001e544147530154616741025f5f435243333223013631303033393032303102"""
A9 = """00000085daa320a74ed42ead0000000000000007000000000000012c000000000000eaaa000000080000018bcfe5687b
0a0102030000c351000001a1fa14afa67f00000100002a9f00000000000000000000000000000006636f6d6d69740654
6f70696341001e544147530154616741025f5f435243333223013336383837303834303202"""

SAMPLES = {
    name: bytes.fromhex(text)
    for name, text in {
        "A1": A1, "A2": A2, "A3": A3, "A4": A4, "A5": A5, "A6": A6,
        "A7": A7_HEAD + "67" * 130 + A7_TAIL, "A8": A8, "A9": A9,
    }.items()
}  # fmt: skip
OFFSETS = {
    "A1": 0,
    "A2": 128,
    "A3": 65911,
    "A4": 66075,
    "A5": 0,
    "A6": 58320,
    "A7": 59180,
    "A8": 59939,
    "A9": 60074,
}
CRCS = {"A5": 2086594990, "A6": 568954463, "A7": 1125609586, "A8": 1020930016, "A9": 2048078863}


def message(**fields: object) -> Message:
    """A small message; fields override."""
    base = Message("TopicA", 1, 2, 0, b"body", {"TAGS": "TagA"}, store_timestamp=1_700_000_000_000)
    return replace(base, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_sample_survives_both_decoders_and_the_encoder(name: str) -> None:
    raw = SAMPLES[name]
    base = OFFSETS[name]
    frames = verify(raw, scan(raw, base=base, max_record_bytes=MAX_RECORD), base)
    assert (frames.starts.tolist(), frames.sizes.tolist(), frames.stop) == ([0], [len(raw)], Stop.END)
    batch = decode_headers(raw, frames)
    decoded = decode_message(raw)
    assert decoded.topic == batch.topics[0]
    assert decoded.store_timestamp == batch.headers["store_timestamp"][0]
    assert decoded.version == (2 if name == "A7" else 1) == batch.headers["version"][0]
    assert encode_message(decoded) == raw
    assert verify_crc_property(raw) is (name in CRCS)
    if name in CRCS:
        digits = f"{CRCS[name]:010d}"[::-1]
        assert crc_property(raw[:-20]) == f"__CRC32#\x01{digits}\x02".encode()
        plain = {k: v for k, v in decoded.properties.items() if k != "__CRC32#"}
        assert encode_message(replace(decoded, properties=plain), with_crc=True) == raw


def test_golden_fields() -> None:
    six = decode_message(SAMPLES["A6"])
    assert (six.born_host, six.store_host) == ("[2001:db8::1]:50001", "[2001:db8::2]:10911")
    assert six.message_id == "20010DB800000000000000000000000200002A9F000000000000E3D0"
    assert decode_message_id(six.message_id) == (six.store_host, 58320)
    five = decode_message(SAMPLES["A5"])
    assert (five.keys, five.unique_key, five.tags, five.flag) == (("key0", "common"), "UK0", "TagA", 7)
    schedule = decode_headers(SAMPLES["A3"], scan(SAMPLES["A3"], base=65911, max_record_bytes=MAX_RECORD))
    assert property_columns(schedule).tags_code.tolist() == [1795197218189]
    levels = property_columns(schedule, delay_levels_ms=(1, 2)).tags_code  # level 3 of 2: the highest
    assert levels.tolist() == [1795197208189 + 2]
    for name, owned in (("A8", 0), ("A9", 1)):
        batch = decode_headers(SAMPLES[name], scan(SAMPLES[name], base=None, max_record_bytes=MAX_RECORD))
        assert property_columns(batch).queue_offsets.tolist() == [owned]


def test_crc_property_fails_after_rebasing_and_is_repaired_by_the_original_offset() -> None:
    raw = SAMPLES["A9"]
    rebased = raw[:28] + bytes(8) + raw[36:]
    with pytest.raises(Corrupt, match="2048078863"[::-1]):
        verify_crc_property(rebased)
    assert verify_crc_property(rebased[:28] + raw[28:36] + rebased[36:])
    assert verify(rebased, scan(rebased, base=None, max_record_bytes=MAX_RECORD), None).stop is Stop.END


@pytest.mark.parametrize("born", ["10.1.2.3:50001", "[2001:db8::1]:50001"])
@pytest.mark.parametrize("store", ["127.0.0.1:10911", "[2001:db8::2]:10911"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("sys_flag", [0, 0x1 | 0x200, 0x2, 0x4, 0x8, 0xC, 0x40, 0x80, 0x701])
def test_every_mix_of_hosts_versions_and_flags(born: str, store: str, version: int, sys_flag: int) -> None:
    one = message(born_host=born, store_host=store, version=version, sys_flag=sys_flag, reconsume_times=3,
                  prepared_transaction_offset=77, born_timestamp=5, flag=-9)  # fmt: skip
    two = message(body=b"", topic="B" * 40)
    raw = [encode_message(m) for m in (one, two, one)]
    data = b"".join(raw)
    frames = verify(data, scan(data, base=None, max_record_bytes=MAX_RECORD), None)
    batch = decode_headers(data, frames)
    assert [bytes(batch.record(i)) for i in range(3)] == raw
    for row in (0, 2):
        header = batch.headers[row]
        assert header["store_timestamp"] == one.store_timestamp
        assert (header["reconsume_times"], header["prepared_transaction_offset"]) == (3, 77)
        assert (header["flag"], header["body_length"], header["version"]) == (-9, 4, version)
    assert [batch.topics[i] for i in batch.headers["topic_index"]] == ["TopicA", "B" * 40, "TopicA"]
    again = decode_message(raw[0])
    assert (again.born_host, again.store_host, again.sys_flag & ~0x30) == (born, store, sys_flag)
    assert encode_message(again) == raw[0]


def test_end_of_file_blank_then_next_file() -> None:
    raw = SAMPLES["A1"]
    file = raw + struct.pack(">iI", 181, 0xCBD43194) + bytes(173)
    frames = scan(file, base=0, max_record_bytes=MAX_RECORD)
    assert (len(frames), frames.end, frames.stop, frames.blank_length) == (1, 128, Stop.BLANK, 181)
    header_only = scan(bytes.fromhex("000000b5cbd43194"), base=65355, max_record_bytes=MAX_RECORD)
    assert (len(header_only), header_only.stop, header_only.blank_length) == (0, Stop.BLANK, 181)
    assert scan(bytes.fromhex("00000007cbd43194"), base=0, max_record_bytes=MAX_RECORD).stop is Stop.CORRUPT


@pytest.mark.parametrize(
    ("tail", "stop"),
    [
        (b"", Stop.END),
        (bytes(4), Stop.ZERO),
        (bytes(3), Stop.PARTIAL),
        (bytes(400), Stop.ZERO),
        (b"\0\0\0\x80" + bytes(124), Stop.ZERO),  # torn: the size is there, the rest is not
        (SAMPLES["A2"][:60], Stop.PARTIAL),
        (SAMPLES["A2"][:100], Stop.PARTIAL),
        (b"\0\0\1\0\1\2\3\4" + bytes(300), Stop.CORRUPT),
        (b"\0\0\0\x0a\xda\xa3\x20\xa7" + bytes(300), Stop.CORRUPT),
        (b"\x80\0\0\0\xda\xa3\x20\xa7" + bytes(300), Stop.CORRUPT),
        (b"\x7f\xff\xff\xff\xda\xa3\x20\xab" + bytes(300), Stop.CORRUPT),
        (SAMPLES["A2"][:28] + bytes(8) + SAMPLES["A2"][36:], Stop.CORRUPT),  # a stale record of another place
    ],
)
def test_why_a_scan_stops(tail: bytes, stop: Stop) -> None:
    frames = scan(SAMPLES["A1"] + tail, base=0, max_record_bytes=MAX_RECORD)
    assert (frames.starts.tolist(), frames.end, frames.stop) == ([0], 128, stop)
    assert bool(frames.detail) == (stop in (Stop.CORRUPT, Stop.PARTIAL))


def test_scan_limits() -> None:
    data = SAMPLES["A1"] + SAMPLES["A2"]

    def found(**limits: int) -> tuple[list[int], int, Stop]:
        frames = scan(data, base=0, max_record_bytes=MAX_RECORD, **limits)
        return frames.starts.tolist(), frames.end, frames.stop

    assert found(max_records=1) == ([0], 128, Stop.END)
    assert found(max_records=2) == ([0, 128], 267, Stop.END)
    assert found(max_bytes=266) == ([0], 128, Stop.END)
    assert found(max_bytes=267) == ([0, 128], 267, Stop.END)
    assert found(max_bytes=1) == ([0], 128, Stop.END)  # one record, however large
    assert found(start=128) == ([128], 267, Stop.END)
    assert found(start=267) == ([], 267, Stop.END)
    assert scan(data, base=0, max_record_bytes=130).detail.startswith("record of 139 bytes at position 128")
    with pytest.raises(ValueError):
        found(start=268)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (8, b"\x7f", "body CRC is"),
        (84, b"\xff\xff\xff\xff", "body length"),
        (84, b"\x00\x00\x10\x00", "body length"),
        (84, b"\x00\x00\x00\x09", "add up|topic length"),
        (88, b"X", "body CRC is"),
        (96, b"\x80", "topic length"),
        (96, b"\x07", "add up"),
        (97, b"\xff", "UTF-8"),
        (103, b"\x00\x16", "add up"),
        (103, b"\xff\xff", "add up"),
        (36, b"\x00\x00\x00\x30", "body length"),
    ],
)
def test_verify_names_the_first_bad_record(at: int, value: bytes, reason: str) -> None:
    good, bad = SAMPLES["A1"], bytearray(SAMPLES["A1"])
    bad[at : at + len(value)] = value
    data = good + bytes(bad) + good
    frames = verify(data, scan(data, base=None, max_record_bytes=MAX_RECORD), None)
    assert (frames.starts.tolist(), frames.end, frames.stop) == ([0], 128, Stop.CORRUPT)
    assert re.search(reason, frames.detail), frames.detail
    assert "position 128" in frames.detail
    with pytest.raises(Corrupt):
        decode_message(bytes(bad))


def test_decoders_refuse_boundaries_outside_the_buffer() -> None:
    raw = SAMPLES["A1"]
    for start, size in ((0, 129), (1, 128), (-1, 128), (0, 90), (1 << 62, 128), (0, 1 << 62)):
        frames = Frames(np.array([start]), np.array([size]), 0, Stop.END)
        with pytest.raises(Corrupt):
            decode_headers(raw, frames)
        with pytest.raises(Corrupt):
            verify(raw, frames, None)


def test_empty_batch() -> None:
    frames = scan(b"", base=0, max_record_bytes=MAX_RECORD)
    assert (len(frames), frames.end, frames.stop) == (0, 0, Stop.END)
    batch = decode_headers(b"", verify(b"", frames, 0))
    columns = property_columns(batch)
    assert (len(batch), batch.topics, len(columns.tag), len(columns.key_row)) == (0, (), 0, 0)


def test_sums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert body_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF
    assert body_crc(b"") == 0
    assert body_crcs(b"x123456789", np.array([1, 4]), np.array([10, 4])).tolist() == [0x4BF43926, 0]
    assert verify_crc_property(b"short") is False


@pytest.mark.parametrize(
    ("starts", "ends"), [([-1], [2]), ([4, 1], [5, 11]), ([3], [2]), ([1 << 62], [1 << 62])]
)
def test_a_sum_of_what_lies_outside_is_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match="outside of its buffer"):
        body_crcs(b"x123456789", np.array(starts), np.array(ends))


@pytest.mark.parametrize("features", [{"buffer_types"}, set()])
def test_pieces_are_the_same_by_either_way(monkeypatch: pytest.MonkeyPatch, features: set[str]) -> None:
    monkeypatch.setattr(zstandard, "backend_features", features)
    raw = memoryview(bytearray(b"0123456789"))
    starts, lengths = np.array([7, 0, 10, 2, 0]), np.array([3, 1, 0, 5, 10])
    assert [bytes(p) for p in each_piece(raw, starts, lengths)] == [b"789", b"0", b"", b"23456", bytes(raw)]
    assert list(each_piece(b"", starts[:0], lengths[:0])) == []


def test_what_cannot_be_encoded_is_refused() -> None:
    bad = (
        {"properties": {"": "x"}},
        {"properties": {"a": ""}},
        {"properties": {"a\x01": "b"}},
        {"properties": {"a": "b\x02"}},
        {"properties": {"a": "b" * 40_000}},
        {"topic": "t" * 40_000},
        {"topic": "t" * 128, "version": 1},
        {"version": 3},
        {"queue_id": 1 << 31},
        {"born_host": "nowhere:1"},
        {"born_host": "1.2.3.4"},
        {"born_timestamp": 1 << 63},
    )
    for fields in bad:
        with pytest.raises(Invalid):
            encode_message(message(**fields))
    for text in ("", "xyz", "00" * 15, "7F00000100002A9F 0000000000000000", "00" * 20):
        with pytest.raises(Invalid, match="offset message id"):
            decode_message_id(text)
    with pytest.raises(Invalid):
        encode_message_id("127.0.0.1:1", 1 << 63)
    assert encode_properties({"a": "b\x01c"}) == b"a\x01b\x01c\x02"
    assert encode_message(message(topic="t" * 128))[4:8].hex() == "daa320ab"


def test_decode_headers_refuses_what_verify_would_cut() -> None:
    good, bad = SAMPLES["A1"], bytearray(SAMPLES["A1"])
    for at, value in ((103, b"\x00\x16"), (97, b"\xff")):
        bad[at : at + len(value)] = value
        data = good + bytes(bad)
        frames = scan(data, base=None, max_record_bytes=MAX_RECORD)
        with pytest.raises(Corrupt) as error:
            decode_headers(data, frames)
        assert "position" in error.value.fields
        bad = bytearray(SAMPLES["A1"])


@pytest.mark.parametrize(
    "change",
    [{"queue_id": -1}, {"queue_offset": -5}, {"queue_offset": 1 << 61}, {"store_timestamp": 1 << 62}],
)
def test_numbers_that_no_broker_writes_are_no_record(change: dict[str, int]) -> None:
    """The body's CRC does not cover the header: a record with such numbers must never reach the fold."""
    fields: dict[str, Any] = {
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": 0,
        "body": b"x",
    }
    good = encode_message(Message(**fields))
    bad = encode_message(Message(**{**fields, **change}))
    assert len(verify(good, scan(good, base=0, max_record_bytes=1000), 0)) == 1
    found = verify(bad, scan(bad, base=0, max_record_bytes=1000), 0)
    assert (len(found), found.stop) == (0, Stop.CORRUPT)
    assert "out of range" in found.detail
