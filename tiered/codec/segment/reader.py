"""A segment, read from its footer and from bands of rows: some pages of a row group, or all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tiered.codec.arrow.arrays import edges_of_values
from tiered.codec.arrow.assemble import ASSEMBLED_FROM, assemble
from tiered.codec.checksum import crc32c
from tiered.codec.segment.directory import SegmentDirectory, decode_directory
from tiered.codec.segment.footer import (
    ARCHIVE_ID,
    DIRECTORY,
    END_BYTES,
    FORMAT,
    INDEX_CRC,
    MAGIC,
    OBJECT_ID,
    check_footer,
    footer_bytes,
)
from tiered.codec.segment.pages import ChunkPages, FileShape, PartOfFile
from tiered.codec.segment.writer import SEGMENT_FORMAT
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, Invalid, Refused
from tiered.model import ByteRange

TOGETHER_BYTES = 12 << 20
"""Of records in bands that are decoded together: two bands of 4 MiB, rounded up to whole vectors of rows. Every call costs some
2 ms beside its rows; larger arrays cost more than that, in pages that the system hands out and takes back each time."""

_AS_DICTIONARIES = ["topic", "store_host", "born_host"]
_FAILURES = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What pyarrow raises at bytes that it cannot read."""

_NONSENSE = (*_FAILURES, Invalid, LookupError, TypeError, AttributeError)
"""What else columns lead to that passed for Parquet and hold what no segment holds: no host, a null, a number of no value."""


@dataclass(frozen=True, slots=True)
class BandRecords:
    """The records of bands, back to back in ``buffer`` between ``edges``; ``buffer`` may hold those of other bands, too."""

    buffer: memoryview
    edges: Ints


@dataclass(frozen=True, slots=True)
class BandBytes:
    """Stored bytes of neighbouring bands of a row group: ``stored``, those of ``Segment.range_of_bands`` (empty if bodies are
    not asked for), and ``head``, those of ``Segment.head_range``, where the row group has one."""

    stored: Buffer
    head: Buffer | None = None


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
    version = int(values[FORMAT.encode()])
    directory = decode_directory(
        values.get(DIRECTORY.encode(), b""), version=version, key=key, position=position
    )
    rows = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    columns = {len(directory.pages_of(n)) for n in range(len(rows)) if directory.is_banded(n)}
    if (
        rows != directory.groups["rows"].tolist()
        or directory.groups_end > position
        or columns - {metadata.num_columns}
    ):
        raise Corrupt(
            "a segment's directory is not of its row groups",
            key=key,
            position=position,
            expected=f"{len(rows)} row groups before {position}",
            found=f"{len(directory.groups)}, which end at {directory.groups_end}",
        )
    return Segment(key, object_length, position, directory, metadata, _Shape(footer[:-END_BYTES]))


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
    _shape: _Shape

    def range_of(self, row_group: int) -> ByteRange:
        """The bytes of one row group."""
        group = self.directory.groups[row_group]
        start = int(group["position"])
        return ByteRange(start, start + int(group["stored_length"]))

    def range_of_bands(self, first: int, end: int) -> ByteRange:
        """Of bands [first, end) of one row group: what is fetched for them alone, which is their pages of the last column, or
        the whole row group where that is one band."""
        bands = self.directory.bands
        last = bands[end - 1]
        return ByteRange(int(bands["position"][first]), int(last["position"]) + int(last["stored_length"]))

    def head_range(self, row_group: int) -> ByteRange | None:
        """What all bands of a row group share: its columns but the last. ``None`` where it is one band."""
        if not self.directory.is_banded(row_group):
            return None
        first, _ = self.directory.bands_of(row_group)
        return ByteRange(self.range_of(row_group).start, int(self.directory.bands["position"][first]))

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

    def check_band(self, band: int, data: Buffer) -> None:
        """``Corrupt`` unless these are the bytes of ``range_of_bands`` of one band that were written."""
        place, stated = self.range_of_bands(band, band + 1), int(self.directory.bands["crc32c"][band])
        if len(data) != place.length or crc32c(data) != stated:
            raise Corrupt(
                "a row group of a segment is damaged",
                key=self.key,
                position=place.start,
                expected=f"{place.length} bytes, CRC32C {stated:#010x}",
                found=f"{len(data)} bytes, CRC32C {crc32c(data):#010x}",
            )

    def check_head(self, row_group: int, data: Buffer) -> None:
        """``Corrupt`` unless these are the bytes of ``head_range`` that were written."""
        begin, table = self.range_of(row_group).start, self.directory.pages_of(row_group)
        for page in (*table[:-1].ravel().tolist(), table[-1, 0].item()):
            self._page(page, begin, data)

    def is_sound_head(self, row_group: int, data: Buffer) -> bool:
        """Whether ``check_head`` finds nothing."""
        try:
            self.check_head(row_group, data)
        except Corrupt:
            return False
        return True

    def _page(self, row: tuple[int, int, int], begin: int, source: Buffer | None) -> Buffer:
        """A page, by its row of the table, out of bytes that begin at ``begin`` in the file."""
        length, stated, position = row
        at = position - begin
        page = memoryview(b"" if source is None else source)[max(at, 0) : max(at + length, 0)]
        if len(page) != length or (length and crc32c(page) != stated):
            raise Corrupt(
                "a page of a segment is damaged",
                key=self.key,
                position=position,
                expected=f"CRC32C {stated:#010x}",
            )
        return page

    def _pages(self, rows: list[tuple[int, int, int]], begin: int, source: Buffer | None) -> Buffer:
        """Pages that lie back to back, each checked."""
        pages = [self._page(row, begin, source) for row in rows]
        if len(pages) == 1:
            return pages[0]
        return memoryview(source or b"")[rows[0][2] - begin :][: sum(map(len, pages))]

    def columns(self, bands: tuple[int, int], data: BandBytes, names: Sequence[str]) -> pa.RecordBatch:
        """Columns of bands [first, end) of one row group; text that repeats as dictionaries.

        ``Corrupt`` if the bytes are not those that were written.
        """
        first, end = bands
        group = int(self.directory.bands["row_group"][first])
        place = self.range_of_bands(first, end)
        if not self.directory.is_banded(group):
            self.check_band(first, data.stored)
            source: Any = pa.PythonFile(PartOfFile(data.stored, place.start, self.length), mode="r")
            metadata = self.metadata
        else:
            pieces = self._file_of(group, bands, data, names)
            source, metadata = pa.BufferReader(b"".join(pieces)), None
        try:
            file = pq.ParquetFile(
                source,
                metadata=metadata,
                read_dictionary=_AS_DICTIONARIES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            number = group if metadata is not None else 0
            table = file.read_row_group(number, columns=list(names), use_threads=False)
            batch: pa.RecordBatch = table.select(list(names)).combine_chunks().to_batches()[0]
        except (*_FAILURES, IndexError) as error:
            raise self._undecodable(place, str(error)) from error
        if len(batch) != int(self.directory.bands["rows"][first:end].sum()):
            raise self._undecodable(place, f"{len(batch)} rows")
        return batch

    def _file_of(
        self, group: int, bands: tuple[int, int], data: BandBytes, names: Sequence[str]
    ) -> list[Buffer]:
        """A Parquet file of the pages of some columns of bands, each checked."""
        table, (first, _) = self.directory.pages_of(group), self.directory.bands_of(group)
        low, high = bands[0] - first, bands[1] - first
        starts = [(self.range_of(group).start, data.head), (self.range_of_bands(*bands).start, data.stored)]
        found: dict[int, ChunkPages] = {}
        place = self.range_of_bands(*bands)
        try:
            shape = self._shape.read()
            for leaf in shape.leaves_of(names):
                begin, source = starts[leaf == len(table) - 1]
                dictionary, *rows = table[leaf, [0, *range(low + 1, high + 1)]].tolist()
                found[leaf] = ChunkPages(
                    self._page(dictionary, begin, source), self._pages(rows, begin, source)
                )
            return shape.file(found, int(self.directory.bands["rows"][bands[0] : bands[1]].sum()))
        except _NONSENSE as error:
            raise self._undecodable(place, str(error)) from error

    def records(self, bands: tuple[int, int], data: BandBytes) -> BandRecords:
        """The records of bands [first, end) of one row group, as the broker wrote them.

        ``Corrupt`` if they are not the records that were sealed.
        """
        place = self.range_of_bands(*bands)
        try:
            values = assemble(self.columns(bands, data, ASSEMBLED_FROM))
        except _NONSENSE as error:
            raise self._undecodable(place, str(error)) from error
        edges = edges_of_values(values)
        buffer = memoryview(values.buffers()[2])
        parts = self.directory.parts_between(*bands)
        ends = edges[np.append(0, np.cumsum(parts["rows"], dtype=np.int64))].tolist()
        crc, run = self.directory.crc_before(bands[0]), None
        wanted = parts[["run", "crc32c", "bytes"]].tolist()
        for begin, end, (number, stated, size) in zip(ends, ends[1:], wanted, strict=False):
            if run not in (None, number):
                crc = 0
            run = number
            crc = crc32c(buffer[begin:end], crc)
            if values.null_count or crc != stated or end - begin != size:
                raise Corrupt(
                    "records of a segment are not those that were sealed",
                    key=self.key,
                    position=place.start,
                    expected=f"CRC32C {stated:#010x} of {size} bytes",
                    found=f"CRC32C {crc:#010x} of {end - begin} bytes",
                )
        return BandRecords(buffer, edges)

    def each_band(self, bands: tuple[int, int], data: BandBytes) -> Iterator[BandRecords | Corrupt]:
        """The records of each of bands [first, end) of one row group, or what is wrong with it, one after the other. ``data``
        may go on behind them.

        Neighbours are decoded together, up to ``TOGETHER_BYTES`` of records. Where that fails each is decoded by itself, so
        damage is that of one band, and takes no other with it.
        """
        table, (first, end) = self.directory.bands, bands
        begin, stored = self.range_of_bands(first, first + 1).start, memoryview(data.stored)
        while first < end:
            sizes = np.cumsum(table["bytes"][first:end])
            stop = first + max(1, int(np.searchsorted(sizes, TOGETHER_BYTES, "right")))
            place = self.range_of_bands(first, stop)
            some = BandBytes(stored[place.start - begin : place.end - begin], data.head)
            yield from self._together((first, stop), some)
            first = stop

    def _together(self, bands: tuple[int, int], data: BandBytes) -> Iterator[BandRecords | Corrupt]:
        first, end = bands
        try:
            found = self.records(bands, data)
        except Corrupt as error:
            if end - first == 1:
                yield error
                return
        else:
            rows = np.append(0, np.cumsum(self.directory.bands["rows"][first:end])).tolist()
            for low, high in pairwise(rows):
                yield BandRecords(found.buffer, found.edges[low : high + 1])
            return
        begin = self.range_of_bands(*bands).start
        for band in range(first, end):
            place = self.range_of_bands(band, band + 1)
            mine = BandBytes(memoryview(data.stored)[place.start - begin : place.end - begin], data.head)
            yield from self._together((band, band + 1), mine)

    def _undecodable(self, place: ByteRange, found: str) -> Corrupt:
        return Corrupt(
            "a row group of a segment cannot be decoded", key=self.key, position=place.start, found=found
        )


class _Shape:
    """What a footer says of all its row groups, parsed when it is asked for."""

    def __init__(self, metadata: Buffer) -> None:
        self._metadata = metadata
        self._found: FileShape | None = None

    def read(self) -> FileShape:
        if self._found is None:
            self._found = FileShape.of(self._metadata)
        return self._found
