"""Bands: some rows of a large row group are read with their own pages and what all of its bands share, no other byte."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.segments import KEY, MadeSegment, made, part, parts, read_all, whole
from tests.unit.test_segment_file import SIZE, record, run, varied_records
from tiered.codec.arrow.assemble import ASSEMBLED_FROM
from tiered.codec.segment import reader, writer
from tiered.codec.segment.cutting import VECTOR_ROWS, GroupCutter
from tiered.codec.segment.pages import ChunkPages, FileShape, first_rows, page_table
from tiered.codec.segment.reader import BandBytes, BandRecords, Segment
from tiered.codec.segment.thrift import read_struct, write_struct
from tiered.errors import Corrupt, Refused
from tiered.settings import MIB


@pytest.fixture(scope="module")
def banded() -> tuple[MadeSegment, list[bytes]]:
    """Two row groups of several bands each, with verbatim records among them."""
    found = varied_records(600)
    return made(parts(found), "Orders", 60_000, 8_000), [r.raw for r in found]


def bytes_of(segment: Segment, data: bytes, bands: tuple[int, int], *, bodies: bool = True) -> BandBytes:
    """What a reader fetches for some bands of a row group."""
    found = whole(segment, data, bands)
    return found if bodies else replace(found, stored=b"")


def records_of(segment: Segment, data: bytes, bands: tuple[int, int]) -> list[bytes]:
    found = segment.records(bands, bytes_of(segment, data, bands))
    return [bytes(found.buffer[a:b]) for a, b in pairwise(found.edges.tolist())]


def test_every_band_and_every_stretch_of_bands_comes_back(banded: tuple[MadeSegment, list[bytes]]) -> None:
    file, records = banded
    segment = file.open()
    bands = segment.directory.bands
    assert len(segment.directory.groups) >= 2
    assert read_all(file.data) == records
    for group in range(len(segment.directory.groups)):
        first, end = segment.directory.bands_of(group)
        assert end - first >= 3 or group
        for low in range(first, end):
            for high in range(low + 1, end + 1):
                row = int(bands["first_row"][low])
                count = int(bands["rows"][low:high].sum())
                assert records_of(segment, file.data, (low, high)) == records[row : row + count]


def test_bands_cover_their_file(banded: tuple[MadeSegment, list[bytes]]) -> None:
    file, records = banded
    segment = file.open()
    place = 4
    for group in range(len(segment.directory.groups)):
        head, place_ = segment.head_range(group), segment.range_of(group)
        body = segment.range_of_bands(*segment.directory.bands_of(group))
        assert place_.start == place
        assert (head is None, body.end) == (not segment.directory.is_banded(group), place_.end)
        assert (body.start, body.start if head is None else head.end) == (
            place_.start if head is None else head.end, body.start,
        )  # fmt: skip
        place = body.end
    assert place == segment.index_range.start
    assert segment.directory.runs()["rows"].sum() == len(records)


def test_columns_of_bands_need_no_bodies(banded: tuple[MadeSegment, list[bytes]]) -> None:
    file, _ = banded
    segment = file.open()
    names = [name for name in pq.read_schema(pa.BufferReader(file.data)).names if name != "body"]
    rows = pq.read_table(pa.BufferReader(file.data), columns=names).to_pylist()
    for group in np.flatnonzero(
        [segment.directory.is_banded(n) for n in range(len(segment.directory.groups))]
    ):
        first, end = segment.directory.bands_of(group)
        for bands in ((first, end), (first + 1, end - 1), (first, first + 1)):
            found = segment.columns(bands, bytes_of(segment, file.data, bands, bodies=False), names)
            row = int(segment.directory.bands["first_row"][bands[0]])
            assert found.to_pylist() == rows[row : row + len(found)]
        with pytest.raises(Corrupt):
            segment.columns((first, end), bytes_of(segment, file.data, (first, end), bodies=False), ["body"])


def test_what_was_read_and_written_is_the_same_metadata(banded: tuple[MadeSegment, list[bytes]]) -> None:
    data = banded[0].data
    length = int.from_bytes(data[-8:-4], "little")
    metadata = data[-8 - length : -8]
    fields, end = read_struct(metadata)
    assert (end, write_struct(fields)) == (length, metadata)
    for cut in range(0, length, 37):
        with pytest.raises((ValueError, LookupError)):
            read_struct(metadata[:cut])


def test_a_made_file_says_what_its_pages_hold(banded: tuple[MadeSegment, list[bytes]]) -> None:
    data = banded[0].data
    shape = FileShape.of(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    pages = {number: ChunkPages(b"", b"") for number in range(len(shape.leaves))}
    segment = banded[0].open()
    table, place = segment.directory.pages_of(0), segment.range_of(0)
    for number, column in enumerate(table):
        dictionary, first = (
            data[int(position) : int(position) + int(length)]
            for length, position in column[["stored_length", "position"]][:2].tolist()
        )
        pages[number] = ChunkPages(dictionary, first)
    rows = int(segment.directory.bands["rows"][0])
    file = b"".join(shape.file(pages, rows))
    length = int.from_bytes(file[-8:-4], "little")
    metadata = file[-8 - length : -8]
    fields, end = read_struct(metadata)
    assert (end, write_struct(fields)) == (length, metadata)
    made_ = pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True)
    group = made_.metadata.row_group(0)
    assert (made_.metadata.num_rows, group.num_rows) == (rows, rows)
    at = 4
    for number, page in enumerate(pages.values()):
        chunk = group.column(number)
        assert chunk.total_compressed_size == len(page.dictionary) + len(page.data)
        assert chunk.dictionary_page_offset == (at if page.dictionary else None)
        assert chunk.data_page_offset == at + len(page.dictionary)
        header, _ = read_struct(page.data)
        assert chunk.num_values == header[5][1][1][1]
        at += chunk.total_compressed_size
    whole_ = pq.read_table(pa.BufferReader(data)).slice(0, rows)
    assert made_.read().to_pylist() == whole_.to_pylist()
    assert place.start == 4


# ---- where they are cut


@pytest.mark.parametrize(
    ("sizes", "bands"),
    [
        ([100] * 40, [8, 8, 8, 8, 8]),
        ([100] * 10 + [3000] + [100] * 14, [8, 3, 8, 6]),  # one that is too large ends its row group
        ([5000, 5000, 100], [1, 1, 1]),
        ([100] * 3, [3]),
    ],
)
def test_where_bands_are_cut(sizes: list[int], bands: list[int]) -> None:
    records = [record(0, n, body=b"x" * (size - SIZE + 100)) for n, size in enumerate(sizes)]
    cutter = GroupCutter(1 << 20, 800)
    cut = [*cutter.add(part(records)), *cutter.rest()]
    rows = [sum(map(len, band.parts)) for band in cut]
    assert [n for n in rows if n] == bands
    assert {n for n, band in zip(rows, cut, strict=True) if not band.ends} <= {cutter.band_rows}
    assert cut[-1].ends


def test_many_rows_in_a_band_are_whole_vectors_of_engines() -> None:
    cutter = GroupCutter(64 * MIB, 5000 * SIZE)
    cut = [*cutter.add(part(run(0, 9000))), *cutter.rest()]
    assert cutter.band_rows == 2 * VECTOR_ROWS
    assert [sum(map(len, band.parts)) for band in cut] == [4096, 4096, 808]


def test_pages_that_do_not_end_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cuts pages elsewhere: nothing is sealed that could not be read by its bands."""
    usual = writer.parquet_writer

    def other(sink: object, first: pa.Table, *, band_rows: int) -> pq.ParquetWriter:
        return usual(sink, first, band_rows=band_rows - 1)

    monkeypatch.setattr(writer, "parquet_writer", other)
    with pytest.raises(Refused, match="pages of a row group"):
        made([part(run(0, 40))], row_group_bytes=1 << 20, band_bytes=10 * SIZE)


def test_rows_of_lists_are_compared_with_the_page_index(
    banded: tuple[MadeSegment, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pages do not say how many rows they have."""
    file, _ = banded
    segment = file.open()
    start, bands = segment.index_range.start, segment.directory.bands
    firsts = bands["first_row"][: segment.directory.bands_of(0)[1]].tolist()
    assert first_rows(file.data[start:], start, [0]) == {0: firsts}
    monkeypatch.setattr(writer, "first_rows", lambda *_: {0: [0, 11, 20, 30]})
    with pytest.raises(Refused, match="pages of a row group"):
        made([part(run(0, 40))], row_group_bytes=1 << 20, band_bytes=10 * SIZE)


def test_a_table_of_pages_is_made_of_pages_alone(banded: tuple[MadeSegment, list[bytes]]) -> None:
    file, _ = banded
    segment = file.open()
    place, (first, end) = segment.range_of(0), segment.directory.bands_of(0)
    rows = segment.directory.bands["rows"][first:end].tolist()
    stored = file.data[place.start : place.end]
    columns = [segment.metadata.schema.column(n).path for n in range(segment.metadata.num_columns)]
    found = page_table(stored, columns, rows)
    assert found is not None
    assert (found["stored_length"] == segment.directory.pages_of(0)["stored_length"].ravel()).all()
    assert page_table(stored + b"\0", columns, rows) is None
    assert page_table(stored, columns, [rows[0] + 1, rows[1] - 1, *rows[2:]]) is None


# ---- damage


def test_a_flipped_bit_in_any_page_of_a_band_is_found(banded: tuple[MadeSegment, list[bytes]]) -> None:
    """In a page that the band needs; another band is read all the same."""
    file, records = banded
    segment, chance = file.open(), random.Random(4)
    first, end = segment.directory.bands_of(0)
    pages = segment.directory.pages_of(0)
    for leaf in range(len(pages)):
        path = segment.metadata.schema.column(leaf).path.split(".")[0]
        band = chance.randrange(first, end)
        row = pages[leaf, 1 + band - first]
        at = int(row["position"]) + chance.randrange(int(row["stored_length"]))
        damaged = bytearray(file.data)
        damaged[at] ^= 1 << chance.randrange(8)
        for other in range(first, end):
            if other == band and path in ASSEMBLED_FROM:
                with pytest.raises(Corrupt, match="page of a segment is damaged") as caught:
                    records_of(segment, bytes(damaged), (other, other + 1))
                assert caught.value.fields["key"] == KEY
                assert caught.value.fields["position"] == row["position"]
            else:
                begin = int(segment.directory.bands["first_row"][other])
                found = records_of(segment, bytes(damaged), (other, other + 1))
                assert found == records[begin : begin + len(found)]
        with pytest.raises(Corrupt):
            read_all(bytes(damaged))


def test_bytes_of_another_band_or_of_none(banded: tuple[MadeSegment, list[bytes]]) -> None:
    segment, data = banded[0].open(), banded[0].data
    right, other = bytes_of(segment, data, (0, 1)), bytes_of(segment, data, (1, 2))
    for wrong in (
        BandBytes(other.stored, right.head), BandBytes(right.stored[:-1], right.head), BandBytes(right.stored),
        BandBytes(right.stored, b""), BandBytes(right.stored, right.stored),
    ):  # fmt: skip
        with pytest.raises(Corrupt):
            segment.records((0, 1), wrong)


# ---- several decoded together


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The bands of each call that decodes."""
    found, usual = list[tuple[int, int]](), Segment.records

    def records(segment: Segment, bands: tuple[int, int], data: BandBytes) -> BandRecords:
        found.append(bands)
        return usual(segment, bands, data)

    monkeypatch.setattr(Segment, "records", records)
    return found


def each(segment: Segment, data: bytes, bands: tuple[int, int]) -> list[list[bytes] | Corrupt]:
    """What is said of each of some bands, of bytes that go on behind them."""
    place = segment.range_of_bands(*bands)
    some = bytes_of(segment, data, bands)
    longer = replace(some, stored=data[place.start : place.end + 100])
    return [
        found
        if isinstance(found, Corrupt)
        else [bytes(found.buffer[a:b]) for a, b in pairwise(found.edges.tolist())]
        for found in segment.each_band(bands, longer)
    ]


@pytest.mark.parametrize("together_bytes", [1, 20_000, 12 * MIB])
def test_neighbours_are_decoded_together(
    banded: tuple[MadeSegment, list[bytes]],
    decoded: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    together_bytes: int,
) -> None:
    monkeypatch.setattr(reader, "TOGETHER_BYTES", together_bytes)
    file, records = banded
    segment = file.open()
    bands = segment.directory.bands
    first, end = segment.directory.bands_of(0)
    for low, high in ((first, end), (first + 1, end), (first + 1, end - 1)):
        decoded.clear()
        row = int(bands["first_row"][low])
        found = each(segment, file.data, (low, high))
        assert [len(some) for some in found if not isinstance(some, Corrupt)] == bands["rows"][
            low:high
        ].tolist()
        assert [r for some in found if not isinstance(some, Corrupt) for r in some] == records[
            row : row + int(bands["rows"][low:high].sum())
        ]
        assert [a for a, _ in decoded] == [low, *(b for _, b in decoded[:-1])]
        assert decoded[-1][1] == high
        sizes = [int(bands["bytes"][a:b].sum()) for a, b in decoded]
        assert all(size <= together_bytes or b - a == 1 for size, (a, b) in zip(sizes, decoded, strict=True))
        assert (len(decoded) == high - low) == (together_bytes == 1)


def test_damage_takes_no_neighbour_with_it(
    banded: tuple[MadeSegment, list[bytes]], decoded: list[tuple[int, int]]
) -> None:
    file, records = banded
    segment = file.open()
    first, end = segment.directory.bands_of(0)
    place = segment.range_of_bands(first + 1, first + 2)
    damaged = bytearray(file.data)
    damaged[place.end - 1] ^= 1
    found = each(segment, bytes(damaged), (first, end))
    assert decoded == [(first, end), *((band, band + 1) for band in range(first, end))]
    assert len(found) == end - first
    for band, some in enumerate(found, first):
        if isinstance(some, Corrupt):
            assert (band, some.fields["key"], some.fields["position"]) == (first + 1, KEY, place.start)
        else:
            row = int(segment.directory.bands["first_row"][band])
            assert some == records[row : row + len(some)]
    assert sum(isinstance(some, Corrupt) for some in found) == 1
