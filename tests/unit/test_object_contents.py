"""Tables whose checksums are right and whose content is not: each is named as damage."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest

from tests.kit import format_samples as samples
from tiered.codec.checksum import crc32c
from tiered.codec.format.block import BLOCK_DTYPE, MAX_BLOCK_BYTES, decode_block_table, encode_block_table
from tiered.codec.format.directory import RUN_DTYPE, decode_directory, encode_directory
from tiered.codec.format.intpack import pack_table
from tiered.codec.format.keyindex import KeyFilter, KeysReader, encode_keys
from tiered.codec.format.object import ColumnsReader, check_object, decode_footer
from tiered.codec.format.sections import Section, unwrap, wrap
from tiered.errors import Corrupt

KEY = "data/test"
MADE = samples.tables([3, 5, 1])
ENCODED = MADE.encode()
DATA = b"".join(ENCODED.parts)


def entry(stored: bytes) -> Section:
    return Section(9, len(stored), crc32c(stored))


def part(number: int) -> bytes:
    where = ENCODED.sections[number].range
    return DATA[where.start : where.end]


def changed(table: np.ndarray[Any, Any], name: str, value: int) -> np.ndarray[Any, Any]:
    copy = table.copy()
    copy[name][1] = value
    return copy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", 0),
        ("rows", -1),
        ("stored_length", 0),
        ("raw_length", -5),
        ("raw_length", MAX_BLOCK_BYTES + 1),
        ("run", 2),
        ("run", -1),
    ],
)
def test_block_tables(name: str, value: int) -> None:
    stored = encode_block_table(changed(MADE.blocks, name, value))
    with pytest.raises(Corrupt, match="block table") as caught:
        decode_block_table(stored, entry(stored), key=KEY)
    assert caught.value.fields["position"] == 9


def test_block_tables_of_another_form() -> None:
    good = {n: MADE.blocks[n] for n in BLOCK_DTYPE.names or () if n != "position"}
    too_wide = {**good, "rows": good["rows"].astype(np.int64) + 2**31}
    for content in (
        pack_table(good) + b"x",
        pack_table({n: c[:0] for n, c in good.items()}),
        pack_table(too_wide),
        pack_table({"run": good["run"]}),
        b"",
    ):
        stored = wrap(content)
        with pytest.raises(Corrupt):
            decode_block_table(stored, entry(stored), key=KEY)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", 1),
        ("topic", -1),
        ("rows", 0),
        ("rows", 2**62),
        ("rows", 2**31),
        ("block_count", 0),
        ("block_count", -(2**63)),
        ("bytes", 0),
        ("queue_offsets", -1),
    ],
)
def test_directories(name: str, value: int) -> None:
    stored = encode_directory(MADE.topics, changed(MADE.runs, name, value), MADE.tags)
    with pytest.raises(Corrupt, match="directory"):
        decode_directory(stored, entry(stored), key=KEY)


def test_directories_of_another_form() -> None:
    names = [n for n in RUN_DTYPE.names or () if n not in ("first_row", "first_block")]
    table = pack_table({n: MADE.runs[n] for n in names})
    none = pack_table({n: MADE.runs[n][:0] for n in names})
    for value in (
        5,
        [],
        [["t"], [b""]],
        [["t"], [b""], "text"],
        [[b"t"], [b""], table],
        [["t"], [""], table],
        [["t"], [], table],
        [["t"], [b"x"], table],
        [["t"], [b""], table + b"x"],
        [["t"], [b""], none],
        [["t"], [b""], b""],
    ):
        stored = wrap(msgpack.packb(value))
        with pytest.raises(Corrupt):
            decode_directory(stored, entry(stored), key=KEY)


def test_tables_that_contradict_each_other() -> None:
    directory = decode_directory(part(1), ENCODED.sections[1], key=KEY)
    blocks = decode_block_table(part(2), ENCODED.sections[2], key=KEY)
    columns = ColumnsReader(part(4), ENCODED.sections, key=KEY)
    check_object(directory, blocks, columns, key=KEY)
    for wrong in (blocks[:-1], changed(blocks, "rows", 7), changed(blocks, "raw_length", 7)):
        with pytest.raises(Corrupt, match="contradict"):
            check_object(directory, wrong, columns, key=KEY)
    other = samples.tables([3, 5, 2]).encode()
    where = other.sections[4].range
    more = ColumnsReader(b"".join(other.parts)[where.start : where.end], other.sections, key=KEY)
    with pytest.raises(Corrupt, match="contradict"):
        check_object(directory, blocks, more, key=KEY)


def test_column_indexes() -> None:
    content = bytes(unwrap(part(4), key=KEY, position=0))
    columns = 10
    missing = bytearray(content)
    missing[13] = 200  # an unknown column in place of ``size``
    doubled = bytearray(content)
    doubled[13] = doubled[14]
    for bad in (
        content + b"x",
        bytes(missing),
        bytes(doubled),
        content[:13],
        content[: 13 + columns - 1],
        content[:5],
    ):
        stored = wrap(bad)
        with pytest.raises(Corrupt):
            ColumnsReader(stored, {**ENCODED.sections, 4: entry(stored)}, key=KEY)
    with pytest.raises(Corrupt):  # the chunks do not fill the section
        shorter = ENCODED.sections[3]._replace(length=ENCODED.sections[3].length - 1)
        ColumnsReader(part(4), {**ENCODED.sections, 3: shorter}, key=KEY)


def test_key_indexes_and_filters() -> None:
    hashes = np.arange(9000, dtype=np.uint64)
    _, index, _ = encode_keys(hashes, np.zeros(9000, np.int32), np.arange(9000), 1)
    content = bytes(unwrap(index, key=KEY, position=0))
    first = pack_table({"first_hash": hashes[[0, 8192]]})
    assert content.endswith(first)
    lengths = len(content) - len(first)
    for bad in (
        content[:lengths],
        content + b"x",
        content[:lengths] + pack_table({"first_hash": hashes[[8192, 0]]}),
        content[:lengths] + pack_table({"first_hash": hashes[[0]]}),
    ):
        stored = wrap(bad)
        with pytest.raises(Corrupt):
            KeysReader(stored, {5: Section(0, 10, 0), 6: entry(stored)}, key=KEY)
    for counts, field in (([-1], b""), ([1], b""), ([1], b"abc"), ([2**33], b"ab")):
        stored = wrap(pack_table({"keys": np.array(counts)}) + field)
        with pytest.raises(Corrupt):
            KeyFilter(stored, entry(stored), key=KEY)


def test_filter_without_keys() -> None:
    stored = wrap(pack_table({"keys": np.zeros(3, np.int64)}))
    assert KeyFilter(stored, entry(stored), key=KEY).runs(7).tolist() == []


def test_tail_shorter_than_a_footer() -> None:
    for tail in (DATA[-500:], DATA[-3:], b""):
        with pytest.raises(Corrupt):
            decode_footer(tail, object_length=len(DATA), key=KEY)
