"""Level-2 objects as everybody reads objects: parts of runs as blocks, columns, keys (FORMAT.md, "Segment").

The blocks of a segment are the parts of its directory. Several may lie in one band of a row group, which is what is checked and
decoded: they share its position and stored length in the block table. The columns that all bands of a row group share, its
head, are fetched beside the first of them and kept. Needs pyarrow, which is an extra: this module is imported
when a segment is met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.read.runs import KEY_ROW_DTYPE
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.arrow import share_allocator
from tiered.codec.format.block import BLOCK_DTYPE, MAX_BLOCK_BYTES, BlockTable
from tiered.codec.format.directory import RUN_DTYPE, Directory
from tiered.codec.format.object import ROW_DTYPE, as_sections
from tiered.codec.format.sections import SectionKind, checked, section_of
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.properties import tags_codes
from tiered.codec.segment.directory import SegmentDirectory
from tiered.codec.segment.footer import MAGIC
from tiered.codec.segment.keyrows import groups_with_key, numbers, rows_with_key
from tiered.codec.segment.reader import BandBytes, BandRecords, Segment, open_segment
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, Invalid
from tiered.model import ByteRange

IN_ROW_GROUP = 255
"""Codec of a block that is part of a band: its records come of that, and of nothing less."""

_FIELDS = ("physical_offset", "store_timestamp", "born_timestamp", "sys_flag", "body_crc", "commit_seq")
"""Columns of objects that are columns of segments."""

_OF_RECORDS = ("size", "tags_code", "body_length", *_FIELDS[:-1])
"""Columns of objects that follow from the records."""

_ROW_NAMES = frozenset(ROW_DTYPE.names or ())
_MOST_INT = (1 << 31) - 1
_METADATA_COST = 6  # bytes in memory for each of a footer

Fetch = Callable[[str, ByteRange], bytes]

Head = Callable[[Segment, int], Buffer | None]
"""The head of a row group, unchecked, often from what is kept; ``None`` where it has none."""


@dataclass(frozen=True, slots=True)
class SealedTables:
    """A segment whose footer is the one that the fold names, with its tables as those of any object.

    ``blocks`` has a row for each part, with its records and raw bytes, and position, stored length and CRC32C of its band.
    ``directory`` has no tags: a row group brings its messages' tags with everything else.
    """

    segment: Segment
    blocks: BlockTable
    directory: Directory

    @property
    def band_of(self) -> npt.NDArray[Any]:
        """The band that each block lies in."""
        found: npt.NDArray[Any] = self.segment.directory.parts["band"]
        return found

    def group_of(self, band: int) -> int:
        """The row group that a band lies in."""
        return int(self.segment.directory.bands["row_group"][band])

    def group_of_block(self, block: int) -> int:
        """The row group that a block lies in."""
        return self.group_of(int(self.band_of[block]))

    @property
    def nbytes(self) -> int:
        """About what it takes in memory."""
        parts = self.segment.directory.parts
        footer = self.segment.length - self.segment.footer_position
        return footer * _METADATA_COST + self.blocks.nbytes + self.directory.runs.nbytes + parts.nbytes

    def rows_of(self, band: int) -> tuple[int, int]:
        """First row of a band in the file, and how many it has."""
        row = self.segment.directory.bands[band]
        return int(row["first_row"]), int(row["rows"])

    def records(self, band: int, stored: Buffer, head: Buffer | None) -> BandRecords:
        """The records of a band, of its stored bytes and the head of its row group; every checksum compared."""
        return self.segment.records((band, band + 1), BandBytes(stored, head))

    def each_band(
        self, bands: tuple[int, int], stored: Buffer, head: Buffer | None
    ) -> Iterator[BandRecords | Corrupt]:
        """The records of each of some bands of one row group, or what is wrong with it. ``stored`` begins with their bytes."""
        return self.segment.each_band(bands, BandBytes(stored, head))

    def rows_around(self, runs: Sequence[RunState], physical_offset: int) -> Iterator[tuple[int, int]]:
        """First row and number of rows of the bands in which a part of these runs reaches around a physical offset."""
        parts = self.segment.directory.parts
        around = (parts["physical_start"] <= physical_offset) & (physical_offset < parts["physical_end"])
        mine = np.zeros(len(parts), np.bool_)
        for run in runs:
            mine[run.first_block : run.end_block] = True
        yield from map(self.rows_of, np.unique(parts["band"][around & mine]).tolist())


class SegmentReader:
    """Reads segments by one way to bytes. Thread-safe. Keeps the band that was read last: small runs share one."""

    def __init__(self, fetch: Fetch, head: Head, archive_id: bytes) -> None:
        share_allocator()
        self._fetch, self._head, self._archive_id = fetch, head, archive_id
        self._last_stored: tuple[str, int, bytes] | None = None
        self._last_records: tuple[str, int, BandRecords] | None = None

    def open(self, item: ObjectState, key: str) -> SealedTables:
        """``Corrupt`` if the file does not end as the fold says, or is another object; ``Refused`` for a newer program's."""
        section = section_of(as_sections(item.sections), SectionKind.SEGMENT_FOOTER, key=key)
        tail = checked(self._fetch(key, section.range), section, what="a segment's footer", key=key)
        segment = open_segment(
            tail, object_length=item.length, archive_id=self._archive_id, object_id=item.object_id, key=key
        )
        directory = segment.directory
        return SealedTables(segment, _block_table(directory, key), _directory(directory))

    def records(self, tables: SealedTables, band: int) -> BandRecords:
        """The records of a band; every checksum compared."""
        key = tables.segment.key
        last = self._last_records
        if last is not None and last[:2] == (key, band):
            return last[2]
        found = tables.segment.records((band, band + 1), self._stored(tables.segment, band))
        self._last_records = key, band, found
        return found

    def block_bytes(
        self, tables: SealedTables, first: int, end: int, request_bytes: int
    ) -> Iterator[memoryview]:
        """The records of consecutive blocks. Bands that are neighbours come in one request of about ``request_bytes``."""
        parts, band_of, at = tables.segment.directory.parts, tables.band_of, first
        bands = (int(band_of[first]), int(band_of[end - 1]) + 1) if first < end else (0, 0)
        for band, found in enumerate(self._bands(tables, *bands, request_bytes), bands[0]):
            while at < end and band_of[at] == band:
                row = int(parts["first_row"][at])
                low, high = found.edges[[row, row + int(parts["rows"][at])]].tolist()
                yield found.buffer[low:high]
                at += 1

    def columns(self, tables: SealedTables, names: Sequence[str], band: int) -> dict[str, npt.NDArray[Any]]:
        """Columns (``ROW_DTYPE`` names, ``commit_seq``) of all rows of a band."""
        unknown = set(names) - {*_OF_RECORDS, "commit_seq", "queue_offsets"}
        if unknown:
            raise Invalid("a segment has no such columns of numbers", found=", ".join(sorted(unknown)))
        segment, bands = tables.segment, (band, band + 1)
        data = self._narrow(segment, band)
        fields = [name for name in names if name in _FIELDS]
        found = numbers(segment, bands, data, fields) if fields else {}
        if found is None or len(fields) < len(set(names) - {"queue_offsets"}):
            found = self._from_records(tables, band, names, data)
        if "queue_offsets" in names:
            found["queue_offsets"] = _owned(segment, band, data)
        types = {name: ROW_DTYPE[name] if name in _ROW_NAMES else np.dtype("<i8") for name in names}
        return {name: found[name].astype(types[name]) for name in names}

    def key_rows(self, tables: SealedTables, index: Buffer, key: str) -> npt.NDArray[Any]:
        """Rows (``KEY_ROW_DTYPE``) of messages with the key. ``index``: what ``filters`` returned."""
        segment = tables.segment
        found = [np.zeros(0, KEY_ROW_DTYPE)]
        for group in groups_with_key(segment, index, key):
            bands = segment.directory.bands_of(group)
            data = self._narrow(segment, bands[0])
            rows = rows_with_key(segment, bands, data, key)
            if not len(rows):
                continue
            parts = segment.directory.parts_between(*bands)
            ends = np.cumsum(parts["rows"])
            part = parts[np.searchsorted(ends, rows, side="right")]
            some = np.zeros(len(rows), KEY_ROW_DTYPE)
            some["queue_id"], some["generation"] = part["queue_id"], part["generation"]
            some["queue_offset"] = _queue_offsets(segment, bands, data)[rows]
            found.append(some)
        return np.concatenate(found)

    def filters(self, tables: SealedTables) -> bytes:
        """The bytes of the bloom filters and of the page index, checked."""
        segment = tables.segment
        index = self._fetch(segment.key, segment.index_range)
        segment.check_index(MAGIC, index)
        return index

    def check(self, tables: SealedTables) -> None:
        """``Corrupt`` unless the bytes that no reader of records asks for are what was written."""
        segment = tables.segment
        head = self._fetch(segment.key, ByteRange(0, len(MAGIC)))
        if head != MAGIC:
            raise Corrupt(
                "a segment does not begin as a Parquet file",
                key=segment.key,
                position=0,
                expected=MAGIC,
                found=head,
            )
        segment.check_index(head, self._fetch(segment.key, segment.index_range))

    def _from_records(
        self, tables: SealedTables, band: int, names: Sequence[str], data: BandBytes
    ) -> dict[str, Ints]:
        records = self.records(tables, band)
        starts, sizes = records.edges[:-1], np.diff(records.edges)
        try:
            batch = decode_headers(records.buffer, Frames(starts, sizes, int(records.edges[-1]), Stop.END))
        except Corrupt as error:
            place = tables.segment.range_of_bands(band, band + 1).start
            raise Corrupt(
                "a record of a segment is not what its header says",
                key=tables.segment.key, position=place, found=str(error),
            ) from error  # fmt: skip
        found = {
            name: batch.headers[name].astype(np.int64)
            for name in names
            if name in _OF_RECORDS and name != "tags_code"
        }
        if "tags_code" in names:
            found["tags_code"] = tags_codes(batch)
        if "commit_seq" in names:
            found |= numbers(tables.segment, (band, band + 1), data, ("commit_seq",)) or {}
        return found

    def _bands(self, tables: SealedTables, first: int, end: int, request_bytes: int) -> Iterator[BandRecords]:
        segment, at = tables.segment, first
        held: tuple[int, Buffer | None] = -1, None
        while at < end:
            if self._is_last(segment, at):
                yield self.records(tables, at)
                at += 1
                continue
            begin, stop = segment.range_of_bands(at, at + 1).start, at + 1
            while stop < end and _follows(segment, stop) and _end(segment, stop) - begin <= request_bytes:
                stop += 1
            data = memoryview(self._fetch(segment.key, ByteRange(begin, _end(segment, stop - 1))))
            while at < stop:
                group = tables.group_of(at)
                behind = min(stop, segment.directory.bands_of(group)[1])
                stored = data[segment.range_of_bands(at, at + 1).start - begin :]
                if held[0] != group:
                    held = group, self._head(segment, group)
                for band, found in enumerate(tables.each_band((at, behind), stored, held[1]), at):
                    if isinstance(found, Corrupt):
                        raise found
                    self._last_records = segment.key, band, found
                    yield found
                at = behind

    def _is_last(self, segment: Segment, band: int) -> bool:
        last = self._last_records
        return last is not None and last[:2] == (segment.key, band)

    def _stored(self, segment: Segment, band: int) -> BandBytes:
        """All stored bytes of a band, unchecked."""
        head = self._head(segment, int(segment.directory.bands["row_group"][band]))
        last = self._last_stored
        if last is not None and last[:2] == (segment.key, band):
            return BandBytes(last[2], head)
        data = self._fetch(segment.key, segment.range_of_bands(band, band + 1))
        self._last_stored = segment.key, band, data
        return BandBytes(data, head)

    def _narrow(self, segment: Segment, band: int) -> BandBytes:
        """Those that hold all columns but bodies, for any bands of the same row group."""
        head = self._head(segment, int(segment.directory.bands["row_group"][band]))
        return self._stored(segment, band) if head is None else BandBytes(b"", head)


def _follows(segment: Segment, band: int) -> bool:
    """Whether a band's stored bytes lie right behind those of the band before."""
    return _end(segment, band - 1) == segment.range_of_bands(band, band + 1).start


def _end(segment: Segment, band: int) -> int:
    return segment.range_of_bands(band, band + 1).end


def _block_table(directory: SegmentDirectory, key: str) -> BlockTable:
    """A row for each part."""
    parts, bands = directory.parts, directory.bands[directory.parts["band"]]
    if bands["stored_length"].max() > _MOST_INT or parts["bytes"].max() > MAX_BLOCK_BYTES:
        raise Corrupt(
            "a segment has a band that is too large",
            key=key,
            expected=f"at most {MAX_BLOCK_BYTES} bytes",
            found=int(max(bands["stored_length"].max(), parts["bytes"].max())),
        )
    table = np.zeros(len(parts), BLOCK_DTYPE)
    for name in ("run", "first_queue_offset", "rows", "min_store_time", "max_store_time"):
        table[name] = parts[name]
    for name in ("position", "stored_length", "crc32c"):
        table[name] = bands[name]
    table["raw_length"], table["codec"] = parts["bytes"], IN_ROW_GROUP
    return table


def _directory(directory: SegmentDirectory) -> Directory:
    """The runs as any object's directory has them; blocks are parts."""
    found = directory.runs()
    runs = np.zeros(len(found), RUN_DTYPE)
    for name in set(RUN_DTYPE.names or ()) & set(found.dtype.names or ()):
        runs[name] = found[name]
    return Directory((directory.topic,), (b"",), runs)


def _queue_offsets(segment: Segment, bands: tuple[int, int], data: BandBytes) -> Ints:
    """The archive's queue offset of every row of bands of a row group."""
    found = numbers(segment, bands, data, ("queue_offset",))
    assert found is not None, "the column has a value in every row"
    return found["queue_offset"]


def _owned(segment: Segment, band: int, data: BandBytes) -> Ints:
    """How many queue offsets each row of a band owns: up to the next one, or to the end of its part."""
    offsets = _queue_offsets(segment, (band, band + 1), data)
    parts = segment.directory.parts_of(band)
    following = np.append(offsets[1:], 0)
    following[parts["first_row"] + parts["rows"] - 1] = parts["first_queue_offset"] + parts["queue_offsets"]
    return following - offsets
