"""Messages of a namespace read one by one and as columns: of any bytes both say the same."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

import numpy as np
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit.brokerlog import record
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.layout import SYS_COMPRESSED, SYS_INNER_BATCH
from tiered.codec.record.properties import PropertyEntries, property_values
from tiered.keyvalue import MAX_KEY_BYTES, MAX_TTL_MS
from tiered.view.writes import ReadMessages, few_messages, many_messages

NAMES = [
    "kv_opType",
    "key",
    "kv_ifVersion",
    "kv_ifValue",
    "kv_ttlMs",
    "kv_empty",
    "UNIQ_KEY",
    "KEYS",
    "ke",
    "kv_ttlM",
    "\x01",
]
VALUES = [
    b"PUT", b"DELETE", b"put", b"PUTT", b"a2V5", b"a2V5=", b"a2V", b"YQ==", b"YQ", b"YR==", b"\xff", b"", b" ", b"0", b"-1",
    b"-2", b"7", b"+7", b"\xb2", b"9" * 18, b"9" * 19, str(MAX_TTL_MS).encode(), str(MAX_TTL_MS + 1).encode(), b"true",
    b64encode(bytes(32)), b64encode(bytes(31)), b64encode(b"k" * MAX_KEY_BYTES), b64encode(b"k" * (MAX_KEY_BYTES + 1)),
    b"a\x01b",
]  # fmt: skip
BODIES = [
    b"-", b"value", b"", zlib.compress(b"v" * 50), zlib.compress(b"v" * 500), zlib.compress(b"v" * 50)[:-1],
    zstandard.compress(b"w" * 60), zstandard.compress(b"w" * 600),
]  # fmt: skip
FLAGS = [
    0,
    SYS_COMPRESSED,
    SYS_COMPRESSED | 0x100,
    SYS_COMPRESSED | 0x200,
    SYS_COMPRESSED | 0x300,
    SYS_INNER_BATCH,
]
MOST = 100

entry = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(
    lambda pair: pair[0].encode() + b"\x01" + pair[1] + b"\x02"
)
usual = st.sampled_from(
    [b"kv_opType\x01PUT\x02key\x01a2V5\x02", b"key\x01YQ==\x02kv_opType\x01DELETE\x02", b""]
)
area = st.builds(
    lambda first, more, rest: first + b"".join(more) + rest,
    usual, st.lists(entry, max_size=4), st.sampled_from([b"", b"\x02", b"\x01", b"key\x01YQ==", b"x"]),
)  # fmt: skip
message = st.tuples(area, st.sampled_from(BODIES), st.sampled_from(FLAGS))


def batch_of(messages: list[tuple[bytes, bytes, int]]) -> MessageBatch:
    records: list[bytes] = []
    for number, (properties, body, flags) in enumerate(messages):
        made = record(
            sum(map(len, records)),
            body,
            queue_offset=number,
            properties=properties,
            store_time_ms=1000 + number,
        )
        records.append(made[:36] + struct.pack(">i", flags) + made[40:])
    sizes = np.array(list(map(len, records)), np.int64)
    data = b"".join(records)
    good, found = verify_headers(data, Frames(np.cumsum(sizes) - sizes, sizes, len(data), Stop.END), None)
    assert len(good) == len(messages), good.detail
    return found


def told(found: ReadMessages) -> object:
    writes = found.writes
    return (
        [int(each) for each in writes.version], [int(each) for each in writes.stored_ms], writes.keys, writes.values,
        writes.conditions, list(writes.conditions), writes.malformed, list(found.ids),
    )  # fmt: skip


@given(st.lists(message, min_size=1, max_size=6))
@example([(b"kv_opType\x01PUT\x02key\x01" + key + b"\x02", b"v", 0) for key in VALUES[-3:-1]])
@example([(b"kv_opType\x01PUT\x02key\x01a2V5\x02kv_ttlMs\x015\x02kv_ifVersion\x01-1\x02", b"v", 0)])
def test_one_by_one_and_as_columns_say_the_same(messages: list[tuple[bytes, bytes, int]]) -> None:
    batch = batch_of(messages)
    few = few_messages(batch, MOST, with_ids=True)
    assert told(few) == told(many_messages(batch, MOST, with_ids=True))
    assert few_messages(batch, MOST, with_ids=False).ids == []
    assert len(few.writes.keys) + few.writes.malformed == len(messages)


@given(
    st.lists(
        st.lists(st.one_of(entry, st.binary(max_size=3)), max_size=5).map(b"".join), min_size=1, max_size=4
    )
)
def test_properties_of_one_message_are_those_of_a_batch(areas: list[bytes]) -> None:
    batch = batch_of([(each, b"v", 0) for each in areas])
    entries = PropertyEntries.parse(batch)
    names = entries.cut(entries.name_start, entries.name_end)
    values = entries.cut(entries.name_end + 1, entries.value_end)
    wanted: list[dict[bytes, bytes]] = [{} for _ in areas]
    for row, name, value in zip(entries.row.tolist(), names, values, strict=True):
        wanted[row][name] = value
    assert [property_values(each) for each in areas] == wanted


def test_what_is_drawn_holds_all_kinds_of_writes() -> None:
    put = b"kv_opType\x01PUT\x02key\x01a2V5\x02"
    named = [(put + name.encode() + b"\x01" + value + b"\x02", b"v", 0) for name in NAMES for value in VALUES]
    bodies = [(put, body, flags) for body in BODIES for flags in FLAGS]
    found = few_messages(batch_of(named + bodies), MOST, with_ids=False).writes
    assert {len(value or b"") - 24 for value in found.values} >= {0, 1, 5, 50, 60}
    assert {(one.absent, one.version, one.value_sha256) for one in found.conditions.values()} > {
        (True, None, None), (False, 7, None), (False, None, bytes(32)),
    }  # fmt: skip
    assert 0 < found.malformed < len(named + bodies)
