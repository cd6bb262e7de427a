"""Blocks and objects: what is stored, what a partial read fetches, what is refused and how the error names it."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.kit import format_samples as samples
from tiered.codec.checksum import crc32c
from tiered.codec.format import block, keyindex
from tiered.codec.format.intpack import pack_table, unpack_ints, unpack_table
from tiered.codec.format.keyindex import encode_keys
from tiered.codec.format.object import (
    FOOTER_BYTES,
    ROW_DTYPE,
    ColumnsReader,
    EncodedObject,
    KeyFilter,
    KeysReader,
    as_sections,
    check_object,
    decode_block_table,
    decode_directory,
    decode_footer,
    decode_keys,
)
from tiered.codec.format.sections import Section, SectionKind, close_footer, unwrap, wrap
from tiered.codec.zstd import inflate
from tiered.errors import Corrupt, Invalid, Refused, TieredError

KEY = "data/0000000001-test"


@contextmanager
def little_memory(limit: int = 1 << 20) -> Iterator[None]:
    """Fails if more than ``limit`` bytes are allocated at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def whole(encoded: EncodedObject) -> bytes:
    data = b"".join(encoded.parts)
    assert len(data) == encoded.length
    return data


def part(data: bytes, section: Section) -> bytes:
    return data[section.range.start : section.range.end]


def reseal(footer: bytes) -> bytes:
    """A footer whose CRC is right again."""
    return footer[:-12] + struct.pack("<I", crc32c(footer[:-12])) + footer[-8:]


class TestBlock:
    def test_compressible(self) -> None:
        raw = b"abc" * 1000
        stored, codec, crc = block.compress(raw, level=1)
        assert codec == 1
        assert len(stored) <= 0.9 * len(raw)
        assert crc == crc32c(stored)
        assert block.decompress(stored, codec=1, raw_length=3000, crc32c=crc, key=KEY, position=0) == raw

    @pytest.mark.parametrize(("raw", "level"), [(bytes(range(256)), 1), (b"abc" * 1000, 0), (b"x", 19)])
    def test_stored_as_is(self, raw: bytes, level: int) -> None:
        stored, codec, crc = block.compress(raw, level=level)
        assert stored is raw
        assert codec == 0
        assert block.decompress(stored, codec=0, raw_length=len(raw), crc32c=crc, key=KEY, position=0) == raw

    def test_error_names_key_position_expected_and_found(self) -> None:
        stored, codec, crc = block.compress(b"abc" * 1000, level=1)
        with pytest.raises(Corrupt) as caught:
            block.decompress(
                bytes(stored)[:-1], codec=codec, raw_length=3000, crc32c=crc, key=KEY, position=77
            )
        assert caught.value.fields["key"] == KEY
        assert caught.value.fields["position"] == 77
        assert caught.value.fields["expected"] == f"crc32c {crc:08x}"
        assert f"{crc:08x}" not in str(caught.value.fields["found"])

    @pytest.mark.parametrize(("codec", "kind"), [(2, Corrupt), (3, Corrupt), (0, Corrupt)])
    def test_other_codecs(self, codec: int, kind: type[TieredError]) -> None:
        stored, _, crc = block.compress(b"abc" * 1000, level=1)
        with pytest.raises(kind):
            block.decompress(stored, codec=codec, raw_length=3000, crc32c=crc, key=KEY, position=0)

    @pytest.mark.parametrize("raw_length", [0, 1, 2999, 3001, 2**31 - 1, -1])
    def test_wrong_raw_length(self, raw_length: int) -> None:
        stored, codec, crc = block.compress(b"abc" * 1000, level=1)
        with little_memory(), pytest.raises(Corrupt):
            block.decompress(stored, codec=codec, raw_length=raw_length, crc32c=crc, key=KEY, position=0)

    def test_bytes_after_the_frame(self) -> None:
        stored = bytes(block.compress(b"abc" * 1000, level=1)[0]) + b"x"
        with pytest.raises(Corrupt):
            block.decompress(stored, codec=1, raw_length=3000, crc32c=crc32c(stored), key=KEY, position=0)

    def test_many_threads_at_once(self) -> None:
        raws = [(b"%d " % i) * 2000 for i in range(200)]

        def there_and_back(raw: bytes) -> bytes:
            stored, codec, crc = block.compress(raw, level=1)
            return block.decompress(stored, codec=codec, raw_length=len(raw), crc32c=crc, key=KEY, position=0)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(there_and_back, raws)) == raws

    def test_empty_block_is_not_made(self) -> None:
        with pytest.raises(Invalid):
            block.compress(b"", level=1)


class TestHugeClaims:
    """A length on the wire must never become an allocation."""

    @pytest.mark.parametrize("size", [2**24, 2**32, 2**62, 2**64 - 3])
    def test_zstd_frame(self, size: int) -> None:
        frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + b"\x0b\x00\x00x"
        with little_memory(), pytest.raises(Corrupt):
            inflate(frame, raw_length=None, bound=2**63, key=KEY, position=0)
        with little_memory(), pytest.raises(Corrupt):
            block.decompress(frame, codec=1, raw_length=size, crc32c=crc32c(frame), key=KEY, position=0)

    def test_envelope(self) -> None:
        stored = bytearray(wrap(b"abc" * 1000))
        stored[4:8] = b"\xff\xff\xff\xff"
        with little_memory(), pytest.raises(Corrupt):
            unwrap(bytes(stored), key=KEY, position=0)

    def test_rows_of_a_column_and_a_table(self) -> None:
        column = struct.pack("<Bqq", 1, 0, 0) + b"x"
        with little_memory(), pytest.raises(Corrupt):
            unpack_ints(column, 2**40, key=KEY, position=0)
        with little_memory(), pytest.raises(Corrupt):
            unpack_table(struct.pack("<IB", 2**32 - 1, 1) + column, ("a",), key=KEY, position=0)

    @pytest.mark.parametrize("rows", [2**16, 2**40, 2**64 - 1])
    def test_rows_of_the_columns(self, rows: int) -> None:
        encoded = samples.tables([4]).encode()
        data, sections = whole(encoded), dict(encoded.sections)
        content = bytes(unwrap(part(data, sections[4]), key=KEY, position=0))
        forged = wrap(struct.pack("<Q", rows) + content[8:])
        sections[4] = Section(0, len(forged), crc32c(forged))
        with little_memory(), pytest.raises(Corrupt):
            ColumnsReader(forged, sections, key=KEY)

    def test_key_filter_counts(self) -> None:
        forged = wrap(pack_table({"keys": np.array([2**32, 2**32])}) + b"x")
        with little_memory(), pytest.raises(Corrupt):
            KeyFilter(forged, Section(0, len(forged), crc32c(forged)), key=KEY)

    def test_footer(self) -> None:
        footer = bytearray(whole(samples.tables([4]).encode())[-FOOTER_BYTES:])
        struct.pack_into("<Q", footer, 128 + 16, 2**63)
        with little_memory(), pytest.raises(Corrupt):
            decode_footer(reseal(bytes(footer)), object_length=2**64 - 1, key=KEY)


class TestObject:
    @pytest.mark.parametrize("merged", [False, True])
    def test_everything_comes_back(self, merged: bool) -> None:
        made = samples.tables([3, 9000, 1], merged=merged)
        encoded = made.encode(level=1)
        data = whole(encoded)
        footer = decode_footer(data[-FOOTER_BYTES:], object_length=len(data), key=KEY)
        assert (
            footer.sections
            == encoded.sections
            == as_sections({n: list(s) for n, s in encoded.sections.items()})
        )
        assert (footer.object_id, footer.archive_id, footer.level) == (
            samples.OBJECT_ID,
            samples.ARCHIVE_ID,
            1,
        )
        directory = decode_directory(part(data, footer.sections[1]), footer.sections[1], key=KEY)
        assert list(directory.topics) == made.topics
        assert list(directory.tags) == made.tags
        assert (directory.runs == made.runs).all()
        blocks = decode_block_table(part(data, footer.sections[2]), footer.sections[2], key=KEY)
        for row, raw in zip(blocks, made.raw, strict=True):
            at = int(row["position"])
            stored = data[at : at + int(row["stored_length"])]
            found = block.decompress(
                stored,
                codec=row["codec"],
                raw_length=row["raw_length"],
                crc32c=row["crc32c"],
                key=KEY,
                position=at,
            )
            assert found == raw
        columns = ColumnsReader(part(data, footer.sections[4]), footer.sections, key=KEY)
        assert set(columns.names) - {"commit_seq"} == set(ROW_DTYPE.names or ())
        assert ("commit_seq" in columns.names) == merged
        check_object(directory, blocks, columns, key=KEY)

    def test_a_partial_read_fetches_only_what_it_needs(self) -> None:
        made = samples.tables([20000])
        encoded = made.encode()
        data, sections = whole(encoded), encoded.sections
        columns = ColumnsReader(part(data, sections[4]), sections, key=KEY)
        all_bytes = sum(r.length for r in columns.ranges(columns.names, 0, columns.rows))
        assert all_bytes == sections[3].length
        names = ("size", "tags_code", "tag")
        ranges = columns.ranges(names, 8190, 4)
        assert len(ranges) == 4  # size and tags_code are neighbours, tag is not; two groups of rows
        assert sum(r.length for r in ranges) < all_bytes / 3
        got = columns.decode(names, 8190, 4, [data[r.start : r.end] for r in ranges])
        for name in names:
            assert got[name].dtype == ROW_DTYPE[name]
            assert (got[name] == made.rows[name][8190:8194]).all()
        assert columns.ranges(names, 5, 0) == []
        assert len(columns.decode(names, 5, 0, [])["size"]) == 0

    def test_rows_and_columns_that_are_not_there(self) -> None:
        encoded = samples.tables([5]).encode()
        data, sections = whole(encoded), encoded.sections
        columns = ColumnsReader(part(data, sections[4]), sections, key=KEY)
        for names, first, rows in (
            (("size",), 0, 6),
            (("size",), -1, 1),
            (("commit_seq",), 0, 1),
            (("no",), 0, 1),
        ):
            with pytest.raises(Corrupt):
                columns.ranges(names, first, rows)
        with pytest.raises(Corrupt):
            columns.decode(("size",), 0, 5, [b"too short"])

    def test_keys(self) -> None:
        made = samples.tables([20000, 30])
        encoded = made.encode()
        data, sections = whole(encoded), encoded.sections
        everything = decode_keys(part(data, sections[6]), part(data, sections[5]), sections, key=KEY)
        assert len(everything) == len(made.key_hash)
        assert (np.diff(everything["hash"].astype(np.float64)) >= 0).all()
        reader = KeysReader(part(data, sections[6]), sections, key=KEY)
        sieve = KeyFilter(part(data, sections[7]), sections[7], key=KEY)
        assert len(sieve) == 2
        for i in (0, 77, len(made.key_hash) - 1):
            wanted = int(made.key_hash[i])
            ranges = reader.ranges(wanted)
            assert 0 < sum(r.length for r in ranges) < sections[5].length
            found = reader.decode([data[r.start : r.end] for r in ranges], wanted)
            assert [(int(e["run"]), int(e["queue_offset"])) for e in found] == [
                (int(made.key_run[i]), int(made.key_queue_offset[i]))
            ]
            assert int(made.key_run[i]) in sieve.runs(wanted)
        assert sieve.first_denied(made.key_hash, made.key_run) is None
        absent = made.key_hash.copy()
        absent[77:] ^= np.uint64(1 << 63 | 1)
        denied = sieve.first_denied(absent, made.key_run)
        assert denied is not None
        assert 77 <= denied < 200
        assert reader.ranges(0) == []
        false = sum(len(sieve.runs(int(h))) for h in samples.spread(2000, 99, 2**62))
        assert false < 0.03 * 2 * 2000

    def test_a_key_is_found_by_the_probes_that_were_put_for_it(self) -> None:
        """Filters of one grain each, so that probes go round in them and end at every bit, the last one and the first too."""
        count = 4000
        hashes = np.random.default_rng(5).integers(0, 1 << 64, count, np.uint64)
        runs = np.arange(count)
        _, _, filter_ = encode_keys(hashes, runs, np.zeros(count, np.int64), count)
        sieve = KeyFilter(filter_, Section(0, len(filter_), crc32c(filter_)), key=KEY)
        assert sieve.first_denied(hashes, runs) is None
        assert all(run in sieve.runs(int(hashes[run])) for run in range(0, count, 4))

    def test_probes_of_a_filter_of_any_size(self) -> None:
        """One of so many keys that places in it take more than 32 bits would take gigabytes: its probes do not."""
        hashes = np.random.default_rng(6).integers(0, 1 << 64, 200, np.uint64)
        for most in (16, 160, (1 << 31) - 16, 1 << 31, 10 << 32):
            bits = np.where(np.arange(200) % 3, most, 16)
            low, high = hashes & np.uint64(0xFFFF_FFFF), (hashes >> np.uint64(32)) | np.uint64(1)
            for number, found in enumerate(keyindex._probes(hashes, bits)):
                expected = [
                    (a + number * b) % size
                    for a, b, size in zip(low.tolist(), high.tolist(), bits.tolist(), strict=True)
                ]
                assert found.tolist() == expected, (most, number)

    def test_many_equal_hashes_across_chunks(self) -> None:
        made = samples.tables([30000])
        made.key_hash[:] = 7
        made.key_hash[:3] = 3
        encoded = made.encode()
        data, sections = whole(encoded), encoded.sections
        reader = KeysReader(part(data, sections[6]), sections, key=KEY)
        for wanted, count in ((7, len(made.key_hash) - 3), (3, 3), (5, 0)):
            ranges = reader.ranges(wanted)
            assert len(reader.decode([data[r.start : r.end] for r in ranges], wanted)) == count

    def test_object_without_keys(self) -> None:
        encoded = samples.tables([2], keys=False).encode()
        assert set(encoded.sections) == {1, 2, 3, 4}
        with pytest.raises(Corrupt):
            KeysReader(b"", encoded.sections, key=KEY)

    def test_ten_thousand_runs_stay_small(self) -> None:
        made = samples.tables([1] * 10_000)
        encoded = made.encode()
        assert encoded.sections[SectionKind.DIRECTORY].length < 150_000
        assert encoded.length - sum(map(len, made.stored)) < 500_000

    @pytest.mark.parametrize(
        ("field", "change"),
        [
            ("runs", ("first_row", 1)),
            ("runs", ("first_block", 1)),
            ("runs", ("rows", 1)),
            ("runs", ("bytes", 1)),
            ("runs", ("topic", 9)),
            ("blocks", ("rows", 1)),
            ("blocks", ("run", 1)),
            ("blocks", ("raw_length", -1)),
            ("blocks", ("stored_length", 1)),
            ("rows", ("tag", 3)),
        ],
    )
    def test_contradictions_are_not_written(self, field: str, change: tuple[str, int]) -> None:
        made = samples.tables([3, 5, 1])
        getattr(made, field)[change[0]][0] += change[1]
        with pytest.raises(Invalid):
            made.encode()

    def test_other_bad_input_is_not_written(self) -> None:
        made = samples.tables([3, 5, 1])
        for bad in (
            replace(made, tags=[b"x"]),
            replace(made, rows=made.rows[:-1]),
            replace(made, stored=made.stored[:-1]),
            replace(made, key_run=made.key_run + 3),
            replace(made, key_run=made.key_run[:-1]),
            replace(made, runs=made.runs[:0], blocks=made.blocks[:0]),
        ):
            with pytest.raises(Invalid):
                bad.encode()
        with pytest.raises(Invalid):
            made.encode(object_id=b"short")


class TestFooter:
    def test_future_version_is_refused_by_number(self) -> None:
        data = bytearray(whole(samples.tables([2]).encode()))
        data[-16:-12] = struct.pack("<HH", 7, 7 ^ 0xFFFF)
        with pytest.raises(Refused) as caught:
            decode_footer(bytes(data[-16:]), object_length=len(data), key=KEY)
        assert caught.value.fields["found"] == 7
        assert "1" in str(caught.value.fields["expected"])

    def test_a_flipped_version_is_damage(self) -> None:
        data = bytearray(whole(samples.tables([2]).encode()))
        data[-16] ^= 2
        with pytest.raises(Corrupt):
            decode_footer(bytes(data), object_length=len(data), key=KEY)

    def test_encryption_is_refused(self) -> None:
        data = whole(samples.tables([2]).encode())
        footer = bytearray(data[-FOOTER_BYTES:])
        footer[44] = 1
        with pytest.raises(Refused, match="encrypted"):
            decode_footer(reseal(bytes(footer)), object_length=len(data), key=KEY)

    @pytest.mark.parametrize(
        ("number", "kind"), [(8, Refused), (31, Refused), (32, None), (99, None), (5, Corrupt)]
    )
    def test_sections_of_later_programs(self, number: int, kind: type[TieredError] | None) -> None:
        data = whole(samples.tables([2], keys=False).encode())
        footer = bytearray(data[-FOOTER_BYTES:])
        footer[41] = 5
        struct.pack_into("<IIQQ", footer, 128 + 4 * 24, number, 0, len(data) - FOOTER_BYTES, 0)
        footer = bytearray(reseal(bytes(footer)))
        if kind is None:
            assert number in decode_footer(footer, object_length=len(data), key=KEY).sections
        else:
            with pytest.raises(kind):
                decode_footer(footer, object_length=len(data), key=KEY)

    @pytest.mark.parametrize("length_off", [-1, 1, -FOOTER_BYTES])
    def test_another_length(self, length_off: int) -> None:
        data = whole(samples.tables([2]).encode())
        with pytest.raises(Corrupt):
            decode_footer(data, object_length=len(data) + length_off, key=KEY)

    def test_overlapping_sections(self) -> None:
        encoded = samples.tables([2]).encode()
        footer = bytearray(whole(encoded)[-FOOTER_BYTES:])
        struct.pack_into("<Q", footer, 128 + 8, encoded.sections[2].position)
        with pytest.raises(Corrupt):
            decode_footer(reseal(bytes(footer)), object_length=encoded.length, key=KEY)

    def test_footer_of_another_kind(self) -> None:
        with pytest.raises(Corrupt):
            decode_footer(
                close_footer(bytes(FOOTER_BYTES - 16), b"RMQTCMT\n"), object_length=FOOTER_BYTES, key=KEY
            )
