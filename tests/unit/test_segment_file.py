"""Segments: row groups cut where they should be, runs and sums, and damage anywhere that is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit import variedlog
from tests.kit.oddrecords import OddRecord, laid
from tests.kit.segments import (
    ARCHIVE,
    KEY,
    OBJECT,
    MadeSegment,
    made,
    opened,
    part,
    parts,
    read_all,
    read_group,
)
from tiered.codec.checksum import crc32c
from tiered.codec.record.message import encode_message
from tiered.codec.segment import footer
from tiered.codec.segment.cutting import GroupCutter, RunPart, joined_records
from tiered.codec.segment.reader import BandBytes, open_segment
from tiered.codec.segment.writer import SegmentWriter
from tiered.errors import Corrupt, Invalid, Refused
from tiered.settings import MIB

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


def record(
    queue_id: int, offset: int, body: bytes = b"x" * 100, properties: bytes = b"KEYS\x01k\x02"
) -> OddRecord:
    fields = {
        "queue_id": queue_id, "flag": 0, "queue_offset": offset, "physical_offset": 1000 * offset, "transaction": 0,
        "bits": 0, "born_timestamp": 1_700_000_000_000, "store_timestamp": 1_700_000_000_000 + offset,
        "reconsume_times": 0, "prepared": 0,
    }  # fmt: skip
    raw = laid(fields, topic=b"T", body=body, properties=properties, born=HOST, store=HOST, v2=False)
    return OddRecord(raw, queue_id, offset)


def run(queue_id: int, rows: int, first: int = 0) -> list[OddRecord]:
    return [record(queue_id, first + n) for n in range(rows)]


SIZE = len(record(0, 0).raw)


def varied_records(count: int) -> list[OddRecord]:
    """Those of one topic of a log of everything, and some that are kept verbatim; by queue and offset."""
    found = [
        OddRecord(encode_message(m), m.queue_id, m.queue_offset)
        for m in variedlog.messages(count) if m.topic == "Orders"
    ]  # fmt: skip
    found += [record(2, n, properties=b"A\x01\xff\x02" if n % 3 else b"") for n in range(9)]
    return sorted(found, key=lambda r: (r.queue_id, r.queue_offset))


@pytest.fixture(scope="module")
def varied() -> tuple[MadeSegment, list[bytes]]:
    """Queues of a log of everything, with records that are kept verbatim among them."""
    found = varied_records(300)
    return made(parts(found), "Orders", 20_000), [r.raw for r in found]


def test_every_record_comes_back(varied: tuple[MadeSegment, list[bytes]]) -> None:
    segment, records = varied
    assert read_all(segment.data) == records
    assert len(segment.open().directory.groups) > 2
    assert segment.sealed.rows == len(records)
    assert segment.sealed.verbatim == 9  # of another topic
    assert segment.sealed.length == len(segment.data)
    section = segment.sealed.footer
    assert section.position + section.length == len(segment.data)
    assert section.crc32c == crc32c(segment.data[section.position :])


def test_runs_are_what_replace_runs_needs() -> None:
    runs = [run(0, 30), run(1, 2), run(3, 25, first=70)]
    segment = made([part(r, generation=r[0].queue_id, flat=500) for r in runs], row_group_bytes=10 * SIZE)
    found = segment.sealed.runs
    assert (segment.open().directory.runs() == found).all()
    for row, records in zip(found, runs, strict=True):
        joined = b"".join(r.raw for r in records)
        first, last = records[0], records[-1]
        assert row["queue_id"] == row["generation"] == first.queue_id
        assert (row["first_queue_offset"], row["rows"], row["queue_offsets"]) == (
            first.queue_offset, len(records), len(records),
        )  # fmt: skip
        assert (row["first_flat_offset"], row["bytes"], row["crc32c"]) == (500, len(joined), crc32c(joined))
        assert row["min_store_time"] == 1_700_000_000_000 + first.queue_offset
        assert row["max_store_time"] == 1_700_000_000_000 + last.queue_offset
        assert row["physical_start"] == 1000 * first.queue_offset
        assert row["physical_end"] == 1000 * last.queue_offset + SIZE
    assert found["first_row"].tolist() == [0, 30, 32]
    assert found["first_block"].tolist() == [0, 3, 4], "parts, of which one row group may hold several"
    assert found["block_count"].tolist() == [3, 1, 3]


def test_a_place_in_a_queue_is_a_row_group_and_a_row() -> None:
    segment = made([part(run(0, 30)), part(run(1, 2)), part(run(3, 25, first=70))], row_group_bytes=10 * SIZE)
    opened_ = segment.open()
    directory = opened_.directory
    for at in directory.parts:
        found = read_group(opened_, segment.data, int(at["band"]))
        row = int(at["first_row"])
        expected = record(int(at["queue_id"]), int(at["first_queue_offset"])).raw
        assert found[row] == expected
        assert opened_.metadata.row_group(int(at["band"])).num_rows == len(found)
    flats = directory.parts["first_flat_offset"]
    assert flats.tolist() == [0, 10 * SIZE, 20 * SIZE, 0, 0, 8 * SIZE, 18 * SIZE]


@pytest.mark.parametrize(
    ("queues", "groups"),
    [
        ([25], [10, 10, 5]),
        ([3, 3, 3, 3, 3], [9, 6]),  # small queues share, and are not torn
        ([9, 9], [9, 9]),  # at a queue's end where enough is there
        ([4, 9], [10, 3]),  # too little to end with
        ([10, 10], [10, 10]),
        ([1], [1]),
    ],
)
def test_where_row_groups_are_cut(queues: list[int], groups: list[int]) -> None:
    cutter = GroupCutter(10 * SIZE, 1 << 20)
    cut = [band for q, rows in enumerate(queues) for band in cutter.add(part(run(q, rows)))]
    cut += cutter.rest()
    assert [sum(map(len, band.parts)) for band in cut] == groups
    assert all(band.ends for band in cut)


def test_a_part_that_goes_on_is_the_same_run() -> None:
    records = run(0, 7)
    size = 4 * SIZE
    whole = made([part(records)])
    halves = made([part(records[:4]), part(records[4:], flat=size, begins=False)])
    assert (whole.sealed.runs == halves.sealed.runs).all()
    assert len(made([part(records[:4]), part(records[4:], flat=size)]).sealed.runs) == 2


def test_a_batch_owns_several_offsets() -> None:
    records = [record(0, 5), record(0, 9), record(0, 10)]
    one = part(records)
    row = made([RunPart(**{n: getattr(one, n) for n in RunPart.__slots__} | {"end_offset": 14})]).sealed.runs[
        0
    ]
    assert (row["first_queue_offset"], row["rows"], row["queue_offsets"]) == (5, 3, 9)


@pytest.mark.parametrize(
    "second",
    [
        part(run(0, 2)), part(run(1, 2), begins=False), part(run(1, 2, first=1)),
        part(run(1, 2, first=5), flat=7, begins=False), part(run(1, 2, first=6), flat=2 * SIZE, begins=False),
        replace(part(run(2, 2)), commit_seq=np.zeros(1, np.int64)), part(run(2, 2)[::-1]),
    ],
    ids=["queue", "offset", "before", "flat", "hole", "columns", "order"],
)  # fmt: skip
def test_rows_out_of_order_are_refused(second: RunPart) -> None:
    cutter = GroupCutter(1 << 20, 1 << 20)
    assert list(cutter.add(part(run(1, 2, first=3)))) == []
    with pytest.raises(Invalid, match="sorted by queue"):
        list(cutter.add(second))


def test_a_writer_holds_a_row_group_and_no_more() -> None:
    """What is ready goes out while records come in."""
    writer = SegmentWriter(
        "T", archive_id=ARCHIVE, object_id=OBJECT, row_group_bytes=10 * SIZE, band_bytes=MIB
    )
    sizes = [
        sum(map(len, writer.add(part([record(0, n)], flat=n * SIZE, begins=n == 0)))) for n in range(100)
    ]
    assert [n for n, size in enumerate(sizes) if size] == list(range(9, 100, 10))
    assert sum(sizes) + sum(map(len, writer.close())) == writer.sealed.length


def test_written_beside_a_row_group_goes_out_once_the_next_is_full() -> None:
    """The same file, whoever is faster."""
    alone = made([part(run(0, 95))], row_group_bytes=10 * SIZE)
    with ThreadPoolExecutor(1) as beside:
        writer = SegmentWriter(
            "T",
            archive_id=ARCHIVE,
            object_id=OBJECT,
            row_group_bytes=10 * SIZE,
            beside=beside,
            band_bytes=MIB,
        )
        given = [writer.add(part([record(0, n)], flat=n * SIZE, begins=n == 0)) for n in range(95)]
        pieces = [*(piece for some in given for piece in some), *writer.close()]
    assert [n for n, some in enumerate(given) if some] == list(range(19, 95, 10))
    assert b"".join(pieces) == alone.data
    assert writer.sealed.runs.tolist() == alone.sealed.runs.tolist()


class Later:
    """Records that are read when their turn comes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.asked = data, []

    def between(self, start: int, end: int) -> memoryview:
        self.asked.append((start, end))
        return memoryview(self.data)[start:end]


def test_records_are_read_when_their_row_group_is_full() -> None:
    whole = part(run(0, 25))
    later = Later(bytes(whole.buffer))
    assert (
        made([replace(whole, buffer=later)], row_group_bytes=10 * SIZE).data
        == made([whole], row_group_bytes=10 * SIZE).data
    )
    assert later.asked == [(0, 10 * SIZE), (10 * SIZE, 20 * SIZE), (20 * SIZE, 25 * SIZE)]


def test_records_that_lie_back_to_back_are_not_copied() -> None:
    whole = part(run(0, 6))
    parts_of_it = [whole.rows(0, 2), whole.rows(2, 4), whole.rows(5, 6)]
    data = memoryview(whole.buffer)
    assert joined_records(parts_of_it[:2]).obj is whole.buffer
    assert joined_records(parts_of_it[:2]) == data[: 4 * SIZE]
    assert joined_records(parts_of_it) == bytes(data[: 4 * SIZE]) + data[5 * SIZE :]
    others = replace(whole.rows(2, 4), buffer=b"?" * len(data))
    assert joined_records([whole.rows(0, 2), others]) == bytes(data[: 2 * SIZE]) + b"?" * 2 * SIZE


def test_nothing_is_no_segment() -> None:
    with pytest.raises(Invalid, match="without records"):
        made([])


# ---- damage


@pytest.fixture(scope="module")
def small() -> tuple[MadeSegment, list[bytes]]:
    records = [*run(0, 5), *run(1, 5)]
    return made(parts(records), row_group_bytes=4 * SIZE), [r.raw for r in records]


def regions(data: bytes) -> dict[str, range]:
    segment = opened(data)
    groups = [segment.range_of(n) for n in range(len(segment.directory.groups))]
    edges = [4, *(g.end for g in groups), segment.footer_position, len(data) - 8, len(data)]
    names = ["head", *(f"row group {n}" for n in range(len(groups))), "index", "footer", "end"]
    return {name: range(a, b) for name, (a, b) in zip(names, pairwise([0, *edges]), strict=True)}


def test_a_flipped_bit_anywhere_is_found(small: tuple[MadeSegment, list[bytes]]) -> None:
    segment, records = small
    assert read_all(segment.data) == records
    chance = random.Random(1)
    for name, places in regions(segment.data).items():
        for at in sorted(chance.sample(places, min(len(places), 30))):
            damaged = bytearray(segment.data)
            damaged[at] ^= 1 << chance.randrange(8)
            with pytest.raises(Corrupt) as caught:
                read_all(bytes(damaged))
            assert caught.value.fields["key"] == KEY, name
            assert isinstance(caught.value.fields["position"], int), name


def test_a_file_of_another_length_is_found(small: tuple[MadeSegment, list[bytes]]) -> None:
    data = small[0].data
    chance = random.Random(2)
    for length in (*range(0, 16), *chance.sample(range(16, len(data)), 60)):
        with pytest.raises(Corrupt):
            read_all(data[:length])
    for other in (data + b"\0", data[1:], data + data, data[:100] + data[101:]):
        with pytest.raises(Corrupt):
            read_all(other)


def test_pages_have_checksums_of_their_own(small: tuple[MadeSegment, list[bytes]]) -> None:
    """Damage behind the back of the row group's checksum: the pages' and the runs' find it, or it changed nothing."""
    segment, records = small
    sound = segment.open()
    place = sound.range_of(0)
    expected = records[: int(sound.directory.groups["rows"][0])]
    chance = random.Random(3)
    by_page = 0
    for at in sorted(chance.sample(range(place.start, place.end), 200)):
        damaged = bytearray(segment.data)
        damaged[at] ^= 1 << chance.randrange(8)
        groups = sound.directory.groups.copy()
        groups["crc32c"][0] = crc32c(damaged[place.start : place.end])
        believing = replace(sound, directory=replace(sound.directory, groups=groups))
        try:
            found = read_group(believing, bytes(damaged), 0)
        except Corrupt as error:
            by_page += "CRC" in str(error.fields["found"]) or "checksum" in str(error.fields["found"])
        else:
            assert found == expected
    assert by_page > 20


def test_a_wrong_column_is_found_by_the_sum_of_the_run(small: tuple[MadeSegment, list[bytes]]) -> None:
    """A row group that is sound, and of other records."""
    segment, _ = small
    sound = segment.open()
    directory = sound.directory
    parts_ = directory.parts.copy()
    parts_["crc32c"][0] ^= 1
    wrong = replace(sound, directory=replace(directory, parts=parts_))
    with pytest.raises(Corrupt, match="not those that were sealed"):
        read_group(wrong, segment.data, 0)


def test_swapped_row_groups_and_files_are_found(small: tuple[MadeSegment, list[bytes]]) -> None:
    segment, _ = small
    sound = segment.open()
    place = sound.range_of(0)
    with pytest.raises(Corrupt, match="row group of a segment is damaged"):
        sound.records((1, 2), BandBytes(segment.data[place.start : place.end]))
    for other in ({"archive_id": bytes(16)}, {"object_id": bytes(16)}):
        with pytest.raises(Corrupt, match="another object is stored under this key"):
            segment.open(**other)


def changed(data: bytes, change: Callable[[dict[bytes, bytes]], None]) -> bytes:
    """The same messages in a file of ours whose metadata says something else."""
    table = pq.read_table(pa.BufferReader(data))
    values = dict(pq.read_metadata(pa.BufferReader(data)).metadata)
    values.pop(b"ARROW:schema")
    values |= {b"tiered.crc32c": b"00000000", b"tiered.index_crc32c": b"00000000"}
    change(values)
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(values)
    plain = out.getvalue().to_pybytes()
    size = footer.footer_bytes(plain[-8:], object_length=len(plain), key=KEY)
    return plain[:-size] + footer.sealed_footer(plain[-size:], 0)


@pytest.mark.parametrize(
    ("name", "value", "kind", "says"),
    [
        (b"tiered.format", b"3", Refused, "newer program"),
        (b"tiered.format", b"0", Corrupt, "does not say its format"),
        (b"tiered.format", b"", Corrupt, "does not say its format"),
        (b"tiered.directory", b"????", Corrupt, "base64"),
        (b"tiered.directory", b"AAAA", Corrupt, "envelope"),
        (b"tiered.x", b"", Corrupt, "not of its row groups"),
    ],
)
def test_what_the_metadata_may_not_say(
    small: tuple[MadeSegment, list[bytes]], name: bytes, value: bytes, kind: type[Exception], says: str
) -> None:
    data = changed(small[0].data, lambda values: values.update({name: value}))
    with pytest.raises(kind, match=says):
        opened(data)


def test_a_parquet_file_of_somebody_else(small: tuple[MadeSegment, list[bytes]]) -> None:
    out = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(small[0].data)), out)
    with pytest.raises(Corrupt, match="no checksum"):
        opened(out.getvalue().to_pybytes())


def test_lengths_are_compared_before_anything_is_allocated(small: tuple[MadeSegment, list[bytes]]) -> None:
    data = small[0].data
    for end in (b"\xff\xff\xff\xffPAR1", b"\x00\x00\x00\x04PAR1"):
        with pytest.raises(Corrupt, match="does not end as a Parquet file"):
            footer.footer_bytes(data[:-8] + end, object_length=1 << 40, key=KEY)
    with pytest.raises(Refused, match="encrypted"):
        footer.footer_bytes(data[:-4] + b"PARE", object_length=len(data), key=KEY)
    with pytest.raises(Invalid, match="needs more bytes"):
        open_segment(data[-20:], object_length=len(data), archive_id=ARCHIVE, object_id=OBJECT, key=KEY)


def test_a_tag_that_looks_like_the_checksum_changes_nothing() -> None:
    looks = b"TAGS\x01\x18\x0dtiered.crc32c\x18\x0812345678\x02"
    segment = made([part([record(0, 1, properties=looks)])])
    assert segment.data.count(looks[5:-1]) >= 2  # statistics hold it
    assert read_all(segment.data) == [record(0, 1, properties=looks).raw]
