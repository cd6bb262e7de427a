"""Objects under Hypothesis: random tables come back; damaged or arbitrary bytes give Corrupt or Refused and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from tests.kit import format_samples as samples
from tiered.codec.checksum import crc32c
from tiered.codec.format import block
from tiered.codec.format.intpack import pack_ints, pack_table, unpack_ints, unpack_table
from tiered.codec.format.object import (
    FOOTER_BYTES,
    ColumnsReader,
    KeyFilter,
    KeysReader,
    decode_block_table,
    decode_directory,
    decode_footer,
)
from tiered.codec.format.sections import Section, Sections, unwrap, wrap
from tiered.errors import Corrupt, Refused

KEY = "data/test"
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
INT64 = st.integers(-(2**63), 2**63 - 1)
ARRAYS = st.one_of(
    st_numpy.arrays(np.int64, st.integers(0, 40)),
    st_numpy.arrays(np.uint64, st.integers(0, 40)),
    st_numpy.arrays(np.int32, st.integers(0, 40)),
    st.builds(
        lambda a, s, n: (a + s * np.arange(n)).astype(np.int64),
        st.integers(0, 2**50),
        st.integers(0, 999),
        st.integers(0, 9),
    ),
)
SHAPES = st.lists(st.integers(1, 12), min_size=1, max_size=9)
SAMPLE = samples.tables([3, 30, 1], merged=True).encode()
DATA = b"".join(SAMPLE.parts)


def part(number: int) -> bytes:
    section = SAMPLE.sections[number]
    return DATA[section.range.start : section.range.end]


def content(number: int) -> bytes:
    return bytes(unwrap(part(number), key=KEY, position=0))


def sealed(raw: bytes) -> tuple[bytes, Section]:
    """An envelope of these bytes, and a section entry that fits it."""
    stored = wrap(raw)
    return stored, Section(5, len(stored), crc32c(stored))


@st.composite
def mutations(draw: st.DrawFn, valid: bytes) -> bytes:
    """Valid bytes with some of them changed, cut, doubled or joined by others."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["set", "cut", "insert", "drop", "wide"])):
            case "set" if data:
                data[at] = draw(st.integers(0, 255))
            case "wide":
                data[at : at + 8] = draw(
                    st.sampled_from([b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f", b"\x80" + bytes(7)])
                )
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 9))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=9))
    return bytes(data)


def hostile(valid: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=200), mutations(valid))


def only_corrupt(decode: Callable[[], Any]) -> Any:
    """The value, or ``None`` for Corrupt and Refused; anything else is a failure."""
    try:
        return decode()
    except (Corrupt, Refused) as error:
        named = error.fields["key"]
    assert named == KEY
    return None


@given(ARRAYS)
def test_integer_columns(values: np.ndarray[Any, Any]) -> None:
    packed = pack_ints(values)
    found = unpack_ints(packed, len(values), key=KEY, position=0)
    assert (found == values.astype(np.int64)).all()
    assert pack_ints(values) == packed


@given(st.lists(st.tuples(INT64, INT64, INT64), max_size=20))
def test_tables_with_relative_columns(rows: list[tuple[int, int, int]]) -> None:
    columns = dict(zip(("start", "other", "end"), np.array(rows, np.int64).reshape(-1, 3).T, strict=True))
    found, rest = unpack_table(pack_table(columns) + b"rest", tuple(columns), key=KEY, position=0)
    assert bytes(rest) == b"rest"
    assert all((found[n] == columns[n]).all() for n in columns)


@given(st.binary(max_size=80), st.integers(0, 40))
def test_arbitrary_integer_columns(data: bytes, rows: int) -> None:
    only_corrupt(lambda: unpack_ints(data, rows, key=KEY, position=0))
    only_corrupt(lambda: unpack_table(data, ("a", "start", "end"), key=KEY, position=0))


@given(
    st.one_of(
        st.binary(min_size=1, max_size=3000), st.binary(min_size=1, max_size=20).map(lambda b: b * 200)
    ),
    st.integers(0, 5),
)
def test_blocks(raw: bytes, level: int) -> None:
    stored, codec, crc = block.compress(raw, level=level)
    assert block.decompress(stored, codec=codec, raw_length=len(raw), crc32c=crc, key=KEY, position=1) == raw
    assert codec == 0 or len(stored) <= 0.9 * len(raw)


@given(
    hostile(bytes(block.compress(b"abcd" * 300, level=1)[0])),
    st.integers(-1, 4),
    st.sampled_from([1200, 0, 1, 2**31 - 1]),
)
def test_hostile_blocks(stored: bytes, codec: int, raw_length: int) -> None:
    def decode() -> bytes:
        return block.decompress(
            stored, codec=codec, raw_length=raw_length, crc32c=crc32c(stored), key=KEY, position=1
        )

    found = only_corrupt(decode)
    assert found is None or len(found) == raw_length


@QUICK
@given(SHAPES, st.booleans(), st.booleans(), st.integers(0, 2))
def test_objects_come_back(shape: list[int], keys: bool, merged: bool, level: int) -> None:
    made = samples.tables(shape, keys=keys, merged=merged)
    encoded = made.encode(level=level)
    data, sections = b"".join(encoded.parts), encoded.sections

    def of(number: int) -> bytes:
        return data[sections[number].range.start : sections[number].range.end]

    footer = decode_footer(data[-FOOTER_BYTES:], object_length=len(data), key=KEY)
    assert (footer.sections, footer.level, footer.length) == (sections, level, len(data))
    assert (decode_directory(of(1), sections[1], key=KEY).runs == made.runs).all()
    blocks = decode_block_table(of(2), sections[2], key=KEY)
    for row, raw in zip(blocks, made.raw, strict=True):
        stored = data[int(row["position"]) : int(row["position"]) + int(row["stored_length"])]
        assert (
            block.decompress(
                stored,
                codec=row["codec"],
                raw_length=row["raw_length"],
                crc32c=row["crc32c"],
                key=KEY,
                position=0,
            )
            == raw
        )
    reader = ColumnsReader(of(4), sections, key=KEY)
    first = reader.rows // 3
    pieces = [data[r.start : r.end] for r in reader.ranges(reader.names, first, reader.rows - first)]
    columns = reader.decode(reader.names, first, reader.rows - first, pieces)
    for name, found in columns.items():
        expected = made.commit_seq if name == "commit_seq" else made.rows[name]
        assert expected is not None
        assert (found == expected[first:]).all()
    if 5 in sections:
        entries = KeysReader(of(6), sections, key=KEY).decode([of(5)])
        expected_keys = zip(
            made.key_hash.tolist(), made.key_run.tolist(), made.key_queue_offset.tolist(), strict=True
        )
        assert entries.tolist() == sorted(expected_keys)
        sieve = KeyFilter(of(7), sections[7], key=KEY)
        assert all(
            r in sieve.runs(h) for h, r in zip(made.key_hash.tolist(), made.key_run.tolist(), strict=True)
        )
    assert b"".join(made.encode(level=level).parts) == data


@QUICK
@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_one_changed_byte_is_always_caught(at: int, flip: int) -> None:
    """Whatever byte of an object changes, the part that holds it is refused, and no other exception comes out."""
    data = bytearray(DATA)
    data[at] ^= flip
    sections = SAMPLE.sections

    def of(number: int) -> bytes:
        return bytes(data[sections[number].range.start : sections[number].range.end])

    whole_columns = [sections[3].range]
    decoders: list[tuple[int, int, Callable[[], Any]]] = [
        (len(DATA) - FOOTER_BYTES, len(DATA), lambda: decode_footer(data, object_length=len(data), key=KEY)),
        (*_bounds(1), lambda: decode_directory(of(1), sections[1], key=KEY)),
        (*_bounds(2), lambda: decode_block_table(of(2), sections[2], key=KEY)),
        (*_bounds(4), lambda: ColumnsReader(of(4), sections, key=KEY)),
        (*_bounds(3), lambda: _all_columns(part(4), [bytes(data[r.start : r.end]) for r in whole_columns])),
        (*_bounds(6), lambda: KeysReader(of(6), sections, key=KEY)),
        (*_bounds(5), lambda: KeysReader(part(6), sections, key=KEY).decode([of(5)])),
        (*_bounds(7), lambda: KeyFilter(of(7), sections[7], key=KEY)),
    ]
    for row in decode_block_table(part(2), sections[2], key=KEY):
        start, end = int(row["position"]), int(row["position"]) + int(row["stored_length"])
        decoders.append((start, end, lambda s=start, e=end, r=row: _block(bytes(data[s:e]), r)))
    caught = 0
    for start, end, decode in decoders:
        result = only_corrupt(decode)
        assert (result is None) == (start <= at < end)
        caught += start <= at < end
    assert caught == 1


def _bounds(number: int) -> tuple[int, int]:
    return SAMPLE.sections[number].range.start, SAMPLE.sections[number].range.end


def _block(stored: bytes, row: Any) -> bytes:
    return block.decompress(
        stored,
        codec=row["codec"],
        raw_length=row["raw_length"],
        crc32c=row["crc32c"],
        key=KEY,
        position=int(row["position"]),
    )


def _all_columns(index: bytes, pieces: list[bytes], sections: Sections = SAMPLE.sections) -> Any:
    reader = ColumnsReader(index, sections, key=KEY)
    return reader.decode(reader.names, 0, reader.rows, pieces)


@QUICK
@given(mutations(DATA[-FOOTER_BYTES:]))
def test_hostile_footers(tail: bytes) -> None:
    only_corrupt(lambda: decode_footer(tail, object_length=len(DATA), key=KEY))


@given(hostile(part(1)))
def test_hostile_sections_with_a_right_checksum(data: bytes) -> None:
    section = Section(5, len(data), crc32c(data))
    only_corrupt(lambda: decode_directory(data, section, key=KEY))
    only_corrupt(lambda: decode_block_table(data, section, key=KEY))
    only_corrupt(lambda: KeyFilter(data, section, key=KEY))


@QUICK
@given(hostile(content(1)), hostile(content(2)), hostile(content(7)))
def test_hostile_contents_with_a_right_checksum(directory: bytes, blocks: bytes, sieve: bytes) -> None:
    stored, section = sealed(directory)
    only_corrupt(lambda: decode_directory(stored, section, key=KEY))
    stored_blocks, section_blocks = sealed(blocks)
    only_corrupt(lambda: decode_block_table(stored_blocks, section_blocks, key=KEY))
    stored_sieve, section_sieve = sealed(sieve)
    only_corrupt(lambda: KeyFilter(stored_sieve, section_sieve, key=KEY).runs(2**63 + 5))


@QUICK
@given(hostile(content(4)), hostile(content(6)), hostile(part(3)))
def test_hostile_chunk_indexes_with_a_right_checksum(columns: bytes, keys: bytes, chunks: bytes) -> None:
    stored, section = sealed(columns)
    only_corrupt(lambda: _all_columns(stored, [part(3)], {**SAMPLE.sections, 4: section}))
    stored_keys, section_keys = sealed(keys)

    def look_up() -> None:
        reader = KeysReader(stored_keys, {**SAMPLE.sections, 6: section_keys}, key=KEY)
        start = SAMPLE.sections[5].position
        reader.decode([part(5)[r.start - start : r.end - start] for r in reader.ranges(2**40)], 2**40)

    only_corrupt(look_up)
    only_corrupt(lambda: _all_columns(part(4), [chunks]))
