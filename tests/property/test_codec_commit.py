"""Commits under Hypothesis: random edits come back; damaged or arbitrary bytes give Corrupt or Refused and nothing else."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit import format_samples as samples
from tiered.codec.checksum import crc32c
from tiered.codec.format.commit import (
    COMMIT_FOOTER_BYTES,
    decode_commit,
    decode_commit_footer,
    decode_edits,
    encode_commit,
    encode_edits,
)
from tiered.codec.format.edits import SCHEMA, Col, Commit, EditBatch, EditKind
from tiered.codec.format.editwire import pack_edits
from tiered.codec.zstd import deflate
from tiered.errors import Corrupt, Refused

KEY = "commit/test"
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 300)
TEXT = st.one_of(st.sampled_from(["", "topic", "%RETRY%group", "ü\udcff"]), st.text(max_size=9))
ID = st.binary(min_size=16, max_size=16)
NAMES_OF_TARGETS = [n for n, _ in SCHEMA[EditKind.APPEND_RUN] if n != "topic"]


@st.composite
def _columns(draw: st.DrawFn, texts: list[str], ints: list[str], optional: list[str]) -> dict[str, list[Any]]:
    n = draw(st.integers(0, 4))
    made: dict[str, list[Any]] = {name: draw(st.lists(TEXT, min_size=n, max_size=n)) for name in texts}
    made |= {name: draw(st.lists(INT64, min_size=n, max_size=n)) for name in ints}
    return made | {name: draw(st.lists(st.none() | INT64, min_size=n, max_size=n)) for name in optional}


OBJECTS: dict[str, st.SearchStrategy[Any]] = {
    "broker_epoch": st.none() | INT64,
    "floor": st.none() | INT64,
    "required_features": st.lists(TEXT, max_size=3),
    "keys": st.lists(TEXT, max_size=3),
    "sections": st.dictionaries(
        st.integers(0, 99), st.lists(st.integers(0, 2**63 - 1), min_size=3, max_size=3), max_size=3
    ),
    "queues": _columns(["topic"], ["queue_id", "generation", "max_offset", "flat_end"], []),
    "sources": _columns([], ["commit_seq", "index", "start", "end"], ["closed_by"]),
    "lite_queues": st.lists(TEXT, max_size=3),
    "sink_position": st.tuples(st.none() | INT64, st.none() | st.lists(INT64, min_size=3, max_size=3)).map(
        list
    ),
    "sink_queues": _columns(["topic"], ["queue_id", "next"], ["physical"]),
    "alias_targets": _columns(["topic"], ["queue_id", "generation"], []),
    "targets": _columns(["topic"], NAMES_OF_TARGETS, ["closed_by"]),
}


@st.composite
def batches(draw: st.DrawFn) -> EditBatch:
    """A batch of any kind that can be written, 0 to 6 rows."""
    kind = draw(st.sampled_from(sorted(SCHEMA)))
    rows = draw(st.integers(0, 6))
    columns: dict[str, Any] = {}
    for name, how in SCHEMA[kind]:
        if how is Col.INT:
            ints = draw(st.lists(draw(st.sampled_from([SMALL, INT64])), min_size=rows, max_size=rows))
            columns[name] = np.array(ints, np.int64)
        else:
            each = OBJECTS[name] if how is Col.OBJ else TEXT if how is Col.TEXT else st.binary(max_size=16)
            columns[name] = draw(st.lists(each, min_size=rows, max_size=rows))
    return EditBatch(kind, columns)


def plain(edits: Any) -> list[Any]:
    return [(b.kind, [b.row(i) for i in range(len(b))]) for b in edits]


def only_corrupt(decode: Any) -> Any:
    """The value, or ``None`` for Corrupt and Refused; anything else is a failure."""
    try:
        return decode()
    except (Corrupt, Refused) as error:
        named = error.fields["key"]
    assert named == KEY
    return None


@QUICK
@given(
    st.lists(batches(), max_size=3),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    ID,
    ID,
    st.binary(max_size=99),
)
def test_commits_come_back(
    edits: list[EditBatch], seq: int, epoch: int, commit_id: bytes, writer_id: bytes, inline: bytes
) -> None:
    made = Commit(
        seq, epoch, samples.ARCHIVE_ID, commit_id, samples.PREVIOUS_ID, writer_id, edits, len(inline)
    )
    data = b"".join(encode_commit(made, [inline[:50], inline[50:]]))
    footer = decode_commit_footer(data[-COMMIT_FOOTER_BYTES:], key=KEY)
    assert footer.length == len(data)
    for tail in (data, data[-footer.tail_length :]):
        found = decode_commit(tail, key=KEY)
        assert plain(found.edits) == plain(edits)
        assert (found.seq, found.epoch, found.commit_id, found.writer_id) == (
            seq,
            epoch,
            commit_id,
            writer_id,
        )
        assert found.inline_length == len(inline)
    assert b"".join(encode_commit(made, [inline])) == data


INLINE = samples.tables([2]).encode().parts
SAMPLE = b"".join(
    encode_commit(samples.commit(samples.every_kind(), inline_length=sum(map(len, INLINE))), INLINE)
)
RAW_EDITS = pack_edits(samples.every_kind())


@QUICK
@given(st.integers(0, len(SAMPLE) - 1), st.integers(1, 255))
def test_one_changed_byte_is_always_caught(at: int, flip: int) -> None:
    data = bytearray(SAMPLE)
    data[at] ^= flip
    assert only_corrupt(lambda: decode_commit(bytes(data), key=KEY)) is None


@given(st.integers(0, len(SAMPLE) - 1), st.binary(max_size=30))
def test_cut_or_lengthened(at: int, more: bytes) -> None:
    assert only_corrupt(lambda: decode_commit(SAMPLE[:at], key=KEY)) is None
    if more:
        assert only_corrupt(lambda: decode_commit(SAMPLE + more, key=KEY)) is None
        assert only_corrupt(lambda: decode_commit(more + SAMPLE, key=KEY)) is None


@given(st.binary(max_size=600))
def test_arbitrary_bytes(data: bytes) -> None:
    assert only_corrupt(lambda: decode_commit(data, key=KEY)) is None
    only_corrupt(lambda: decode_edits(data, key=KEY))


@QUICK
@given(st.integers(0, COMMIT_FOOTER_BYTES - 17), st.binary(min_size=1, max_size=8))
def test_footers_with_a_right_checksum(at: int, new: bytes) -> None:
    footer = bytearray(SAMPLE[-COMMIT_FOOTER_BYTES:])
    footer[at : at + len(new)] = new[: COMMIT_FOOTER_BYTES - 16 - at]
    footer[-12:-8] = struct.pack("<I", crc32c(bytes(footer[:-12])))
    only_corrupt(lambda: decode_commit(SAMPLE[:-COMMIT_FOOTER_BYTES] + bytes(footer), key=KEY))


@QUICK
@given(st.data())
def test_hostile_edits_with_a_right_checksum(data: st.DataObject) -> None:
    raw = bytearray(RAW_EDITS)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        new = data.draw(
            st.one_of(
                st.binary(min_size=1, max_size=5), st.sampled_from([b"\xdd\xff\xff\xff\xff", b"\xff" * 8])
            )
        )
        raw[at : at + data.draw(st.integers(0, 9))] = new
    found = only_corrupt(lambda: decode_edits(deflate(raw, level=1), key=KEY))
    if found is not None:
        assert plain(decode_edits(encode_edits(found), key=KEY)) == plain(found)


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.integers(0, 9) | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@QUICK
@given(st.integers(0, 18), st.integers(-1, 3), st.data())
def test_values_of_any_form_in_any_column(kind: int, rows: int, data: st.DataObject) -> None:
    count = len(SCHEMA.get(EditKind(kind), ())) if kind in set(EditKind) else 1
    columns = [
        data.draw(JSONISH | st.lists(JSONISH, min_size=max(rows, 0), max_size=max(rows, 0)))
        for _ in range(count)
    ]
    value = [[kind, rows, columns]]
    only_corrupt(lambda: decode_edits(deflate(msgpack.packb(value), level=1), key=KEY))
