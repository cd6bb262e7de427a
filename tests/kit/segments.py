"""Segments made of given records, in memory, and read whole as a careful reader reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import numpy as np

from tests.kit.oddrecords import OddRecord
from tiered.codec.segment.cutting import RunPart
from tiered.codec.segment.footer import footer_bytes
from tiered.codec.segment.reader import Segment, open_segment
from tiered.codec.segment.writer import SealedSegment, SegmentWriter

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
    parts: Iterator[RunPart] | Sequence[RunPart], topic: str = "T", row_group_bytes: int = 2000
) -> MadeSegment:
    """A segment of these parts."""
    writer = SegmentWriter(topic, archive_id=ARCHIVE, object_id=OBJECT, row_group_bytes=row_group_bytes)
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


def read_group(segment: Segment, data: bytes, number: int) -> list[bytes]:
    """The records of one row group."""
    place = segment.range_of(number)
    found = segment.records(number, data[place.start : place.end])
    return [bytes(found.buffer[a:b]) for a, b in pairwise(found.edges.tolist())]


def read_all(data: bytes) -> list[bytes]:
    """Every record, and every byte looked at."""
    segment = opened(data)
    place = segment.index_range
    segment.check_index(data[:4], data[place.start : place.end])
    return [record for n in range(len(segment.directory.groups)) for record in read_group(segment, data, n)]
