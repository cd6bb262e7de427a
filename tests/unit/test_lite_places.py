"""Places of records in lite queues: what a real broker made of them, and whatever bytes a producer sends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import scan
from tiered.codec.record.lite import LitePlaces, lite_places
from tiered.codec.record.message import Message, encode_message
from tiered.codec.record.properties import PropertyEntries

WIRE = Path(__file__).parent.parent / "data" / "wire"
NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def decoded(data: bytes) -> MessageBatch:
    return decode_headers(data, scan(data, base=None, max_record_bytes=8 << 20))


def body(name: str) -> bytes:
    frame = (WIRE / f"lite-queue-pull-11-{name}.answer.bin").read_bytes()
    (header,) = struct.unpack_from(">i", frame, 4)
    return frame[8 + (header & 0xFFFFFF) :]


def places_of(batch: MessageBatch) -> LitePlaces:
    return lite_places(batch, PropertyEntries.parse(batch))


def listed(places: LitePlaces) -> list[tuple[int, str, int]]:
    queues = [places.queues[q] for q in places.queue.tolist()]
    return list(zip(places.row.tolist(), queues, places.offset.tolist(), strict=True))


def of(*properties: dict[str, str], topic: str = "T", sys_flag: int = 0) -> list[tuple[int, str, int]]:
    records = [
        Message(topic, 0, i, 0, b"b", dict(p), sys_flag=sys_flag, store_timestamp=1)
        for i, p in enumerate(properties)
    ]
    return listed(places_of(decoded(b"".join(map(encode_message, records)))))


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_real_brokers_lite_queue_is_its_records_places(name: str) -> None:
    """The broker's pull of a lite queue gives stored records, byte for byte; their places in it are its offsets from 0."""
    lite = body(name)
    batch = decoded(lite)
    places = [found for found in listed(places_of(batch)) if found[1] == f"%LMQ%{name}"]
    assert places == [(i, f"%LMQ%{name}", i) for i in range(len(batch))]
    parents = [decoded(body(f"parent-{q}")) for q in (0, 1)]
    stored = {bytes(p.record(i)) for p in parents for i in range(len(p))}
    named = {
        bytes(p.record(row)) for p in parents for row, q, _ in listed(places_of(p)) if q == f"%LMQ%{name}"
    }
    assert {bytes(batch.record(i)) for i in range(len(batch))} == named < stored


def test_places_count_as_brokers_dispatch_them() -> None:
    assert of({NAMES: "%LMQ%a", OFFSETS: "7"}, {}, {NAMES: "%LMQ%b,%LMQ%a", OFFSETS: "0,8"}) == [
        (0, "%LMQ%a", 7), (2, "%LMQ%b", 0), (2, "%LMQ%a", 8),
    ]  # fmt: skip
    assert of({NAMES: "%LMQ%a,%LMQ%b,plain", OFFSETS: "2,1,"}) == [], "lists of different lengths"
    assert of({NAMES: "%LMQ%a,,", OFFSETS: "2"}) == [(0, "%LMQ%a", 2)], "nothing at the end"
    assert of({NAMES: "%LMQ%a,%LMQ%a", OFFSETS: "9,9"}) == [(0, "%LMQ%a", 9)]
    assert of({NAMES: "plain", OFFSETS: "3"}) == []
    assert of({NAMES: "%LMQ%a/../b", OFFSETS: "3"}) == []
    assert of({NAMES: "%LMQ%", OFFSETS: "3"}) == []
    assert of({NAMES: "%LMQ%" + "x" * 250, OFFSETS: "3"}, {NAMES: "%LMQ%" + "x" * 251, OFFSETS: "3"}) == [
        (0, "%LMQ%" + "x" * 250, 3)
    ]
    assert of({NAMES: "%LMQ%a"}, {OFFSETS: "777"}) == []
    for wrong in ("-1", "+1", "1e3", "0x1", "1" * 19, " 1", "๑"):
        assert of({NAMES: "%LMQ%a", OFFSETS: wrong}) == []
    assert of({NAMES: "%LMQ%a", OFFSETS: "9" * 18}) == [(0, "%LMQ%a", 10**18 - 1)]


def test_what_brokers_leave_out() -> None:
    one = {NAMES: "%LMQ%a", OFFSETS: "0"}
    for topic in ("%RETRY%g", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"):
        assert of(one, topic=topic) == []
    assert of(one, sys_flag=0x4) == of(one, sys_flag=0xC) == []
    assert of(one, sys_flag=0x8) == of(one, topic="%DLQ%g") == [(0, "%LMQ%a", 0)]


def plainly(properties: Sequence[tuple[str, str]]) -> list[tuple[str, int]]:
    """Java's way, one record after the other."""
    found = dict(properties)
    names, offsets = (_java_split(found.get(name, "")) for name in (NAMES, OFFSETS))
    made: dict[str, int] = {}
    if len(names) == len(offsets):
        for name, offset in zip(names, offsets, strict=True):
            good = name.startswith("%LMQ%") and len(name) > 5 and "/" not in name and len(name.encode()) < 256
            if good and offset.isascii() and offset.isdecimal() and len(offset) <= 18:
                made.setdefault(name, int(offset))
    return list(made.items())


def _java_split(text: str) -> list[str]:
    pieces = text.split(",")
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


name = st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%ü", "", "plain", "%LMQ%", "%LMQ%a/b", "%LMQ%" + "x" * 251])
number = st.sampled_from(["0", "1", "12", "", "-1", "9" * 18, "9" * 19, "x"])
properties = st.lists(
    st.one_of(
        st.tuples(st.just(NAMES), st.lists(name, min_size=1, max_size=4).map(",".join)),
        st.tuples(st.just(OFFSETS), st.lists(number, min_size=1, max_size=4).map(",".join)),
        st.tuples(st.just("KEYS"), st.just("a,b")),
    ).filter(lambda p: bool(p[1])),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(properties, min_size=1, max_size=6))
def test_it_is_what_java_makes_of_each(rows: list[list[tuple[str, str]]]) -> None:
    records = []
    for i, row in enumerate(rows):
        raw = "".join(f"{n}\x01{v}\x02" for n, v in row).encode()
        plain = encode_message(Message("T", 0, i, 0, b"b", {}, store_timestamp=1))[:-2]
        plain += struct.pack(">h", len(raw)) + raw
        records.append(struct.pack(">i", len(plain)) + plain[4:])
    assert listed(places_of(decoded(b"".join(records)))) == [
        (i, *place) for i, row in enumerate(rows) for place in plainly(row)
    ]
