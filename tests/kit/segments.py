"""Segments made of given records, in memory, and read whole as a careful reader reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import numpy as np

from tests.kit.oddrecords import OddRecord
from tiered.codec.segment.cutting import RunPart
from tiered.codec.segment.footer import footer_bytes
from tiered.codec.segment.reader import BandBytes, BandRecords, Segment, open_segment
from tiered.codec.segment.writer import DECLARED, SealedSegment, SegmentWriter
from tiered.codec.types import Buffer
from tiered.settings import MIB

ARCHIVE, OBJECT = bytes(range(16)), bytes(range(16, 32))
KEY = "c/b/segment/0000000001-x.parquet"


@dataclass(frozen=True, slots=True)
class MadeSegment:
    """A file and what its writer says of it."""

    data: bytes
    sealed: SealedSegment

    def open(self, **expected: bytes) -> Segment:
        """Its footer, proven."""
        return opened(self.data, **expected)


def part(records: Sequence[OddRecord], *, generation: int = 0, flat: int = 0, begins: bool = True) -> RunPart:
    """Records of one queue; each owns one queue offset, but for holes that the next one shows."""
    edges = np.fromiter(accumulate((len(r.raw) for r in records), initial=0), np.int64)
    offsets = np.array([r.queue_offset for r in records], np.int64)
    return RunPart(
        records[0].queue_id, generation, b"".join(r.raw for r in records), edges, offsets, int(offsets[-1]) + 1, flat,
        offsets // 10, begins,
    )  # fmt: skip


def parts(records: Sequence[OddRecord]) -> Iterator[RunPart]:
    """Records sorted by queue and offset; a run for each queue."""
    for _, found in groupby(
        sorted(records, key=lambda r: (r.queue_id, r.queue_offset)), lambda r: r.queue_id
    ):
        yield part(list(found))


def made(
    parts: Iterator[RunPart] | Sequence[RunPart],
    topic: str = "T",
    row_group_bytes: int = 2000,
    band_bytes: int = MIB,
    nullable: Collection[str] = DECLARED,
) -> MadeSegment:
    """A segment of these parts."""
    writer = SegmentWriter(
        topic, archive_id=ARCHIVE, object_id=OBJECT, row_group_bytes=row_group_bytes, band_bytes=band_bytes,
        nullable=nullable,
    )  # fmt: skip
    pieces = [bytes(piece) for one in parts for piece in writer.add(one)]
    pieces += [bytes(piece) for piece in writer.close()]
    assert writer.sealed is not None
    return MadeSegment(b"".join(pieces), writer.sealed)


def opened(data: bytes, *, archive_id: bytes = ARCHIVE, object_id: bytes = OBJECT) -> Segment:
    """The segment that these bytes are."""
    size = footer_bytes(data[-8:], object_length=len(data), key=KEY)
    return open_segment(
        data[-size:], object_length=len(data), archive_id=archive_id, object_id=object_id, key=KEY
    )


def whole(segment: Segment, data: Buffer, bands: tuple[int, int]) -> BandBytes:
    """What is fetched for some bands of a row group of a file, and no more."""
    head = segment.head_range(int(segment.directory.bands["row_group"][bands[0]]))
    place = segment.range_of_bands(*bands)
    return BandBytes(data[place.start : place.end], None if head is None else data[head.start : head.end])


def each_band(segment: Segment, data: bytes, number: int) -> Iterator[BandRecords]:
    """The records of one row group, band by band."""
    for band in range(*segment.directory.bands_of(number)):
        yield segment.records((band, band + 1), whole(segment, data, (band, band + 1)))


def read_group(segment: Segment, data: bytes, number: int) -> list[bytes]:
    """The records of one row group, and every byte of it looked at."""
    place = segment.head_range(number)
    if place is not None:
        segment.check_head(number, data[place.start : place.end])
    return [
        bytes(found.buffer[a:b])
        for found in each_band(segment, data, number)
        for a, b in pairwise(found.edges.tolist())
    ]


def read_all(data: bytes) -> list[bytes]:
    """Every record, and every byte looked at."""
    segment = opened(data)
    place = segment.index_range
    segment.check_index(data[:4], data[place.start : place.end])
    return [record for n in range(len(segment.directory.groups)) for record in read_group(segment, data, n)]
