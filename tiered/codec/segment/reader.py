"""A segment, read from its footer and from row groups that are fetched one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tiered.codec.arrow.arrays import edges_of_values
from tiered.codec.arrow.assemble import ASSEMBLED_FROM, assemble
from tiered.codec.checksum import crc32c
from tiered.codec.segment.directory import SegmentDirectory, decode_directory
from tiered.codec.segment.footer import (
    ARCHIVE_ID,
    DIRECTORY,
    FORMAT,
    INDEX_CRC,
    MAGIC,
    OBJECT_ID,
    check_footer,
    footer_bytes,
)
from tiered.codec.segment.writer import SEGMENT_FORMAT
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, Invalid, Refused
from tiered.model import ByteRange

_AS_DICTIONARIES = ["topic", "store_host", "born_host"]
_FAILURES = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What pyarrow raises at bytes that it cannot read."""

_NONSENSE = (*_FAILURES, Invalid, LookupError, TypeError, AttributeError)
"""What else columns lead to that passed for Parquet and hold what no segment holds: no host, a null, a number of no value."""


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """The records of a row group, back to back in ``buffer`` between ``edges``."""

    buffer: memoryview
    edges: Ints


def open_segment(
    tail: Buffer, *, object_length: int, archive_id: bytes, object_id: bytes, key: str
) -> Segment:
    """The segment that ends in ``tail``, which has at least as many bytes as ``footer_bytes`` says of it.

    ``Corrupt`` if the footer is damaged, or is another object's; ``Refused`` if a newer program wrote the segment.
    """
    size = footer_bytes(tail, object_length=object_length, key=key)
    if len(tail) < size:
        raise Invalid(
            "the footer needs more bytes of the segment's end", key=key, expected=size, found=len(tail)
        )
    position = object_length - size
    footer = memoryview(tail)[-size:]
    check_footer(footer, position=position, key=key)
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(footer)))
    except _FAILURES as error:
        raise Corrupt(
            "a segment's footer is not Parquet's", key=key, position=position, found=str(error)
        ) from error
    values: dict[bytes, bytes] = metadata.metadata or {}
    _check_format(values, key=key, position=position)
    for name, wanted in ((ARCHIVE_ID, archive_id), (OBJECT_ID, object_id)):
        found = values.get(name.encode(), b"").decode("latin-1")
        if found != wanted.hex():
            raise Corrupt(
                "another object is stored under this key",
                key=key,
                position=position,
                expected=f"{name} {wanted.hex()}",
                found=found,
            )
    directory = decode_directory(values.get(DIRECTORY.encode(), b""), key=key, position=position)
    rows = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    if rows != directory.groups["rows"].tolist() or directory.groups_end > position:
        raise Corrupt(
            "a segment's directory is not of its row groups",
            key=key,
            position=position,
            expected=f"{len(rows)} row groups before {position}",
            found=f"{len(directory.groups)}, which end at {directory.groups_end}",
        )
    return Segment(key, object_length, position, directory, metadata)


def _check_format(values: dict[bytes, bytes], *, key: str, position: int) -> None:
    stated = values.get(FORMAT.encode(), b"").decode("latin-1")
    if not stated.isdecimal() or not int(stated):
        raise Corrupt("a segment does not say its format", key=key, position=position, found=stated)
    if int(stated) > SEGMENT_FORMAT:
        raise Refused(
            "a segment was written by a newer program",
            hint="install that program's version or a later one",
            key=key,
            expected=f"{FORMAT} ≤ {SEGMENT_FORMAT}",
            found=int(stated),
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment whose footer is proven.

    Whatever is decoded comes from bytes that passed the checksum of their row group and those of their pages; whole records
    also that of their run.
    """

    key: str
    length: int
    footer_position: int
    directory: SegmentDirectory
    metadata: pq.FileMetaData

    def range_of(self, row_group: int) -> ByteRange:
        """The bytes of one row group: one ranged read."""
        group = self.directory.groups[row_group]
        start = int(group["position"])
        return ByteRange(start, start + int(group["stored_length"]))

    @property
    def index_range(self) -> ByteRange:
        """What lies between row groups and footer: filters and page index, for engines; no reader of records needs it."""
        return ByteRange(self.directory.groups_end, self.footer_position)

    def check_index(self, head: Buffer, index: Buffer) -> None:
        """``Corrupt`` unless the file's first four bytes and those of ``index_range`` are what was written."""
        stated = (self.metadata.metadata or {}).get(INDEX_CRC.encode(), b"").decode("latin-1")
        found = f"{crc32c(index, crc32c(head)):08x}"
        if found != stated or bytes(head) != MAGIC:
            raise Corrupt(
                "a segment's filters or page index are damaged",
                key=self.key,
                position=self.index_range.start,
                expected=stated,
                found=found,
            )

    def check_group(self, row_group: int, data: Buffer) -> None:
        """``Corrupt`` unless these are the bytes of a row group that were written."""
        place, stated = self.range_of(row_group), int(self.directory.groups["crc32c"][row_group])
        if len(data) != place.length or crc32c(data) != stated:
            raise Corrupt(
                "a row group of a segment is damaged",
                key=self.key,
                position=place.start,
                expected=f"{place.length} bytes, CRC32C {stated:#010x}",
                found=f"{len(data)} bytes, CRC32C {crc32c(data):#010x}",
            )

    def columns(self, row_group: int, data: Buffer, names: Sequence[str]) -> pa.RecordBatch:
        """Columns of one row group, decoded from exactly the bytes of ``range_of``; text that repeats as dictionaries.

        ``Corrupt`` if the bytes are not those that were written.
        """
        self.check_group(row_group, data)
        place = self.range_of(row_group)
        try:
            file = pq.ParquetFile(
                pa.PythonFile(_Window(data, place.start, self.length), mode="r"),
                metadata=self.metadata,
                read_dictionary=_AS_DICTIONARIES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            table = file.read_row_group(row_group, columns=list(names), use_threads=False)
            batch: pa.RecordBatch = table.select(list(names)).combine_chunks().to_batches()[0]
        except (*_FAILURES, IndexError) as error:
            raise self._undecodable(place, str(error)) from error
        if len(batch) != int(self.directory.groups["rows"][row_group]):
            raise self._undecodable(place, f"{len(batch)} rows")
        return batch

    def records(self, row_group: int, data: Buffer) -> GroupRecords:
        """The records of one row group, as the broker wrote them, from exactly the bytes of ``range_of``.

        ``Corrupt`` if they are not the records that were sealed.
        """
        place = self.range_of(row_group)
        try:
            values = assemble(self.columns(row_group, data, ASSEMBLED_FROM))
        except _NONSENSE as error:
            raise self._undecodable(place, str(error)) from error
        edges = edges_of_values(values)
        buffer = memoryview(values.buffers()[2])
        crc, run = self.directory.crc_before(row_group), None
        for part in self.directory.parts_of(row_group):
            if run not in (None, part["run"]):
                crc = 0
            run, first = part["run"], int(part["first_row"])
            begin, end = int(edges[first]), int(edges[first + int(part["rows"])])
            crc = crc32c(buffer[begin:end], crc)
            if values.null_count or crc != part["crc32c"] or end - begin != part["bytes"]:
                raise Corrupt(
                    "records of a segment are not those that were sealed",
                    key=self.key,
                    position=place.start,
                    expected=f"CRC32C {int(part['crc32c']):#010x} of {int(part['bytes'])} bytes",
                    found=f"CRC32C {crc:#010x} of {end - begin} bytes",
                )
        return GroupRecords(buffer, edges)

    def _undecodable(self, place: ByteRange, found: str) -> Corrupt:
        return Corrupt(
            "a row group of a segment cannot be decoded", key=self.key, position=place.start, found=found
        )


class _Window:
    """The one part of a file that is here; pyarrow believes that it reads all of it."""

    closed = False

    def __init__(self, data: Buffer, start: int, length: int) -> None:
        self._data, self._start, self._length = memoryview(data), start, length
        self._at = 0

    def read(self, size: int = -1) -> memoryview:
        first = self._at - self._start
        if size < 0 or first < 0 or first + size > len(self._data):
            raise ValueError(f"bytes {self._at} to {self._at + size} are not of the row group")
        self._at += size
        return self._data[first : first + size]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""
