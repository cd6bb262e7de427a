"""Commits: every kind of edit comes back, tails are enough, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from tests.kit import format_samples as samples
from tiered.codec.checksum import crc32c
from tiered.codec.format.commit import (
    COMMIT_FOOTER_BYTES,
    MAX_INLINE_BYTES,
    decode_commit,
    decode_commit_footer,
    decode_edits,
    encode_commit,
    encode_edits,
    tail_length,
)
from tiered.codec.format.edits import RESERVED_KINDS, EditBatch, EditKind, batch
from tiered.codec.types import Buffer
from tiered.codec.zstd import deflate
from tiered.errors import Corrupt, Invalid, Refused

KEY = "commit/00000000000000/00000000000000000008"


def plain(edits: list[EditBatch]) -> list[Any]:
    return [(b.kind, [b.row(i) for i in range(len(b))]) for b in edits]


def encoded(edits: list[EditBatch], inline: list[Buffer] | None = None) -> bytes:
    inline = inline or []
    return b"".join(encode_commit(samples.commit(edits, inline_length=sum(map(len, inline))), inline))


def stored_edits(value: Any) -> bytes:
    return deflate(msgpack.packb(value), level=1)


def test_every_kind_comes_back() -> None:
    edits = [
        *samples.every_kind(),
        samples.loss(),
        samples.aliases(),
        samples.aged_aliases(),
        samples.forget(),
        samples.sink_progress(),
        samples.sink_map(),
    ]
    assert {b.kind for b in edits} | RESERVED_KINDS == set(EditKind)
    commit = decode_commit(encoded(edits), key=KEY)
    assert plain(list(commit.edits)) == plain(edits)
    assert commit == replace(samples.commit(edits), edits=commit.edits)
    for b in commit.edits:
        assert all(c.dtype == np.int64 for c in b.columns.values() if isinstance(c, np.ndarray))


def test_empty_edits_and_empty_batches() -> None:
    assert decode_edits(encode_edits([]), key=KEY) == []
    empty = samples.append_runs(samples.tables([2]))
    empty = EditBatch(empty.kind, {n: c[:0] for n, c in empty.columns.items()})
    (found,) = decode_edits(encode_edits([empty]), key=KEY)
    assert len(found) == 0
    assert found.kind is EditKind.APPEND_RUN


def test_edits_that_no_reader_would_accept_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = encoded(samples.every_kind())
    for limit, refused in ((1 << 20, False), (64, True)):
        monkeypatch.setattr("tiered.codec.format.commit.MAX_EDIT_BYTES", limit)
        if refused:
            with pytest.raises(Invalid, match="too large"):
                encoded(samples.every_kind())
        else:
            assert encoded(samples.every_kind()) == whole


def test_tail_without_the_inline_data() -> None:
    inline = samples.tables([3, 40]).encode(object_id=samples.COMMIT_ID)
    edits = [samples.add_object(inline, object_id=samples.COMMIT_ID)]
    data = encoded(edits, inline.parts)
    assert data.startswith(b"".join(inline.parts))
    needed = tail_length(data[-COMMIT_FOOTER_BYTES:], key=KEY)
    assert needed == len(data) - inline.length
    footer = decode_commit_footer(data, key=KEY)
    assert (footer.length, footer.inline_length, footer.seq) == (len(data), inline.length, 8)
    for length in (needed, needed + 1, len(data) - 1, len(data)):
        commit = decode_commit(data[-length:], key=KEY)
        assert commit.inline_length == inline.length
        assert plain(list(commit.edits)) == plain(edits)
    for bad in (data[-needed + 1 :], b"x" + data):
        with pytest.raises(Corrupt):
            decode_commit(bad, key=KEY)


def test_damaged_inline_data_of_a_whole_commit() -> None:
    inline = samples.tables([3]).encode().parts
    data = bytearray(encoded([], inline))
    data[5] ^= 1
    with pytest.raises(Corrupt) as caught:
        decode_commit(data, key=KEY)
    assert caught.value.fields["position"] == 0
    assert decode_commit(data[1:], key=KEY).seq == 8  # a tail says nothing about bytes it does not hold whole


def test_ten_thousand_runs() -> None:
    runs = samples.append_runs(samples.tables([1] * 10_000, keys=False))
    stored = encode_edits([runs])
    assert len(stored) <= 400_000
    (found,) = decode_edits(stored, key=KEY)
    assert all(list(found.columns[n]) == list(runs.columns[n]) for n in runs.columns)


@pytest.mark.parametrize("kind", sorted(RESERVED_KINDS))
def test_reserved_kinds_are_refused(kind: int) -> None:
    with pytest.raises(Refused, match="newer program") as caught:
        decode_edits(stored_edits([[kind, 0, []]]), key=KEY)
    assert caught.value.fields["found"] == kind
    with pytest.raises(Invalid):
        encode_edits([EditBatch(EditKind(kind), {"x": []})])


INT1 = struct.pack("<Bqq", 1, 0, 0) + b"\0"


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [1],
        [[0, 0, []]],
        [[18, 0, []]],
        [[-1, 0, []]],
        [[True, 0, []]],
        [["3", 0, []]],
        [[12, 1, []]],
        [[12, 1, [[[]], [[]]]]],
        [[12, -1, [[[]]]]],
        [[12, 2, [[["a"]]]]],
        [[12, 1, [[["a", 1]]]]],
        [[12, 1, [[{"a": 1}]]]],
        [[12, 1, {}]],
        [[4, 1, [INT1, INT1, INT1, "x"]]],
        [[4, 1, [INT1, INT1, INT1, INT1 + b"x"]]],
        [[4, 2, [INT1, INT1, INT1, INT1]]],
        [[4, 2**40, [INT1, INT1, INT1, INT1]]],
        [[5, 1, [INT1, INT1, INT1, [["a"], struct.pack("<Bqq", 1, 1, 0) + b"\0"]]]],
        [[5, 1, [INT1, INT1, INT1, [["a"], struct.pack("<Bqq", 1, -1, 0) + b"\0"]]]],
        [[5, 1, [INT1, INT1, INT1, [[b"a"], INT1]]]],
        [[5, 1, [INT1, INT1, INT1, [["a"]]]]],
        [[5, 1, [INT1, INT1, INT1, "a"]]],
        [[11, 1, [[["a"]], [2**64 - 1]]]],
        [[2, 1, [[["k"], INT1], ["text"], INT1, INT1, [{}]]]],
        [[2, 1, [[["k"], INT1], [b"id"], INT1, INT1, [{"1": [0, 0, 0]}]]]],
        [[2, 1, [[["k"], INT1], [b"id"], INT1, INT1, [{1: [0, 0]}]]]],
        [[2, 1, [[["k"], INT1], [b"id"], INT1, INT1, [{1: [0, 0, -1]}]]]],
        [[7, 1, [INT1, INT1, INT1, INT1, [{"topic": ["a"]}]]]],
        [msgpack.ExtType(5, b"")],
    ],
)
def test_edits_that_are_none(value: Any) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_edits(stored_edits(value), key=KEY, position=3)
    assert caught.value.fields["key"] == KEY


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x90\x90",
        b"\xdd\xff\xff\xff\xff",
        b"\xc1",
        b"\x91\xdb\xff\xff\xff\xff",
        b"\x81\x90\x90",
        b"\xc7\x00\xff",
        b"\xdc\xff\xff" * 2000,
    ],
)
def test_msgpack_that_is_none(raw: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_edits(deflate(raw, level=1), key=KEY)


def test_edits_that_cannot_be_read_again_are_not_written() -> None:
    good = batch(EditKind.PHYS_GAP, lineage=1, start=5, end=6, reason="x")
    for bad in (
        EditBatch(good.kind, {**good.columns, "reason": [b"bytes"]}),
        EditBatch(good.kind, {**good.columns, "reason": ["\ud800"]}),
        EditBatch(good.kind, {**good.columns, "reason": ["a", "b"]}),
        EditBatch(good.kind, {**good.columns, "start": np.array([0.5])}),
        EditBatch(good.kind, {n: c for n, c in good.columns.items() if n != "end"}),
        batch(EditKind.DELETED, keys="not a list"),
        batch(EditKind.DELETED, keys=[object()]),
        batch(EditKind.RETIRE, keys=[], floor=2**63),
        batch(EditKind.REWIND, lineage=0, physical_offset=0, mark_crc=0, crc_from=0, queues={"topic": []}),
    ):
        with pytest.raises(Invalid):
            encode_edits([bad])
    with pytest.raises(Invalid, match="too many"):
        many = np.zeros(1_100_000, np.int64)
        encode_edits(
            [batch(EditKind.PROGRESS, lineage=many, physical_offset=many, mark_crc=many, crc_from=many)]
        )


def test_numpy_values_in_obj_columns_become_plain() -> None:
    queues = {"topic": ["a"]} | {
        n: np.array([4]) for n in ("queue_id", "generation", "max_offset", "flat_end")
    }
    edit = batch(EditKind.REWIND, lineage=0, physical_offset=0, mark_crc=0, crc_from=0, queues=queues)
    (found,) = decode_edits(encode_edits([edit]), key=KEY)
    assert found.row(0)["queues"]["flat_end"] == [4]


def test_commits_that_break_the_format_are_not_written() -> None:
    good = samples.commit([])
    for bad in (
        replace(good, commit_id=b"short"),
        replace(good, seq=-1),
        replace(good, seq=2**63),
        replace(good, epoch=-1),
        replace(good, inline_length=1),
    ):
        with pytest.raises(Invalid):
            encode_commit(bad)
    too_much = bytes(MAX_INLINE_BYTES + 1)
    with pytest.raises(Invalid):
        encode_commit(replace(good, inline_length=len(too_much)), [too_much])


def resealed(data: bytes, at: int, new: bytes) -> bytes:
    """The commit with some bytes of its footer changed and the footer's CRC right again."""
    footer = bytearray(data[-COMMIT_FOOTER_BYTES:])
    footer[at : at + len(new)] = new
    footer[-12:-8] = struct.pack("<I", crc32c(bytes(footer[:-12])))
    return data[:-COMMIT_FOOTER_BYTES] + bytes(footer)


def test_future_version_is_refused_by_number() -> None:
    data = resealed(encoded([]), COMMIT_FOOTER_BYTES - 16, struct.pack("<HH", 2, 2 ^ 0xFFFF))
    with pytest.raises(Refused) as caught:
        decode_commit(data, key=KEY)
    assert caught.value.fields["found"] == 2
    assert caught.value.fields["expected"] == "format version ≤ 1"
    assert caught.value.hint


def test_encryption_is_refused() -> None:
    for at in (104, 183):
        with pytest.raises(Refused, match="encrypted"):
            decode_commit(resealed(encoded([]), at, b"\1"), key=KEY)


@pytest.mark.parametrize(
    ("at", "new"),
    [
        (64, struct.pack("<Q", 2**64 - 1)),  # seq
        (80, struct.pack("<Q", 5)),  # inline length
        (80, struct.pack("<Q", 2**64 - 1)),
        (88, struct.pack("<I", 2**32 - 1)),  # edits length
        (92, struct.pack("<I", 2**32 - 1)),  # raw length
        (96, b"\1"),  # CRC of the inline data
        (100, b"\1"),  # CRC of the edits
    ],
)
def test_lying_footers(at: int, new: bytes) -> None:
    data = encoded([batch(EditKind.DELETED, keys=["data/x"])])
    lying = resealed(data, at, new)
    if (
        at == 80 and new[0] == 5
    ):  # a tail of a commit with more inline data than there is: only the length shows it
        assert decode_commit_footer(lying, key=KEY).length != len(data)
        return
    with pytest.raises(Corrupt):
        decode_commit(lying, key=KEY)


def test_the_same_edits_give_the_same_bytes() -> None:
    assert encoded(samples.every_kind()) == encoded(samples.every_kind())
