"""A segment, written as its records come: bands are proven one by one, row groups go out as soon as they are full."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tiered.allocator import give_back_freed_memory
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA, StoredRows
from tiered.codec.arrow.proof import prove
from tiered.codec.checksum import crc32c
from tiered.codec.format.sections import Section
from tiered.codec.record.layout import physical_offsets, store_times
from tiered.codec.segment.cutting import CutBand, GroupCutter, RunPart, joined_records, joined_stretches
from tiered.codec.segment.directory import GROUP_DTYPE, PART_DTYPE, encode_directory, with_places
from tiered.codec.segment.footer import (
    ARCHIVE_ID,
    DIRECTORY,
    FOOTER_CRC,
    FORMAT,
    INDEX_CRC,
    MAGIC,
    OBJECT_ID,
    UNKNOWN_CRC,
    footer_bytes,
    sealed_footer,
)
from tiered.codec.segment.growing import GrowingFile
from tiered.codec.segment.pages import PAGE_DTYPE, first_rows, page_table
from tiered.codec.types import Buffer
from tiered.errors import Invalid, Refused

SEGMENT_FORMAT = 2
"""What ``tiered.format`` says; a reader refuses a higher one."""

_ZSTD_LEVEL = 1
_MOST_PAGE_BYTES = 1 << 30  # pages end with their band, never before
_FALSE_POSITIVES = 0.01
_BUFFER_BYTES = 1 << 20
"""Written at once: pyarrow writes every page apart, and each call of Python waits for the interpreter lock."""
_FILTERED = ("unique_key", "keys.list.element")
_UNSORTED = ("body", "record", "msg_id", "properties.key_value.key", "properties.key_value.value")
"""Columns whose smallest and largest value help nobody."""

_REPEATING = [
    "topic", "queue_id", "store_host", "born_host", "sys_flag", "flag", "reconsume_times", "prepared_transaction_offset",
    "magic", "tags", "body_size", "body_encoding", "commit_seq", "properties.key_value.key",
]  # fmt: skip
"""Columns of few distinct values, written with dictionaries."""

_ASCENDING = ("queue_offset", "physical_offset", "store_timestamp", "born_timestamp")
"""Columns of numbers near to their neighbours, written as differences."""


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A written segment: its length, its ``footer`` as ``AddObject`` names it, its ``runs`` (``directory.RUN_DTYPE``, each with
    the CRC32C over its records for ``ReplaceRuns``), rows, and how many of them are stored verbatim."""

    length: int
    footer: Section
    runs: npt.NDArray[Any]
    rows: int
    verbatim: int


DECLARED = tuple(
    field.name
    for field in MESSAGE_SCHEMA
    if not pa.types.is_nested(field.type) and field.name not in ("record", "body")
)
"""Columns that a file may declare to be without nulls; engines group and add such columns a third faster."""


class LateNulls(Exception):
    """``columns`` without nulls in the first row group, and declared so, have some in a later one: the file must begin anew."""

    def __init__(self, columns: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(columns)))
        self.columns = columns


class SegmentWriter:
    """Writes one segment of one topic. ``add`` takes parts sorted by queue, generation and queue offset, and gives bytes of the
    file, in order; ``close`` gives the last ones and then ``sealed`` says what was written. Holds about the columns of a row
    group (``row_group_bytes`` of records), and of the records themselves those of a band (``band_bytes``).

    With ``beside``, which does one thing after the other, a row group is written there while the bands of the next one are
    proven: the columns of two are held then. What is given when does not depend on who is faster.

    Of the columns ``DECLARED`` those that have no null in the first row group are declared to have none, but for ``nullable``
    ones. ``add`` and ``close`` raise ``LateNulls`` if that was wrong.

    Every row is proven before it is written (``codec.arrow.proof``). A writer that raised must not be used again.
    """

    def __init__(
        self,
        topic: str,
        *,
        archive_id: bytes,
        object_id: bytes,
        row_group_bytes: int,
        band_bytes: int,
        beside: Executor | None = None,
        nullable: Collection[str] = DECLARED,
    ) -> None:
        self._topic = topic
        self._nullable = nullable
        self._schema = MESSAGE_SCHEMA
        self._beside = beside
        self._waiting: Future[list[Buffer]] | None = None
        self._ids = {ARCHIVE_ID: archive_id.hex(), OBJECT_ID: object_id.hex()}
        self._cutter = GroupCutter(row_group_bytes, band_bytes)
        self._sink = GrowingFile()
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER_BYTES)
        self._file: pq.ParquetWriter | None = None
        self._groups: list[tuple[Any, ...]] = []
        self._parts: list[tuple[Any, ...]] = []
        self._pages: list[npt.NDArray[Any]] = []
        self._banded: dict[int, list[int]] = {}  # first row of each band, by row group
        self._bands: list[pa.RecordBatch] = []  # of the row group that is not written yet
        self._band, self._bytes = 0, 0  # bands of the file so far; records' bytes of that row group
        self._verbatim = 0
        self.sealed: SealedSegment | None = None

    def add(self, part: RunPart) -> list[Buffer]:
        """Bytes that are ready, often none. ``Invalid`` if the part is out of order, ``Refused`` if rows cannot be proven."""
        return [piece for band in self._cutter.add(part) for piece in self._take(band)]

    def close(self) -> list[Buffer]:
        """The last bytes of the file. ``Invalid`` if there are no records."""
        pieces = [piece for band in self._cutter.rest() for piece in self._take(band)]
        pieces += self._write_waiting()
        if self._file is None:
            raise Invalid("a segment without records cannot be written", topic=self._topic)
        groups, parts = np.array(self._groups, GROUP_DTYPE), np.array(self._parts, PART_DTYPE)
        pages = np.concatenate([np.zeros(0, PAGE_DTYPE), *self._pages])
        directory = with_places(self._topic, groups, parts, pages)
        start = self._sink.position
        values = {**self._ids, FORMAT: str(SEGMENT_FORMAT), DIRECTORY: encode_directory(directory)}
        self._file.add_key_value_metadata({**values, INDEX_CRC: UNKNOWN_CRC, FOOTER_CRC: UNKNOWN_CRC})
        self._file.close()
        end = bytes(self._taken())
        if first_rows(end, start, self._banded) != self._banded:
            raise self._uneven()
        length = start + len(end)
        size = footer_bytes(end, object_length=length, key="")
        index, footer = end[:-size], end[-size:]
        footer = sealed_footer(footer, crc32c(index, crc32c(MAGIC)))
        section = Section(length - size, size, crc32c(footer))
        self.sealed = SealedSegment(
            length, section, directory.runs(), int(groups["rows"].sum()), self._verbatim
        )
        return [*pieces, index, footer]

    def _take(self, band: CutBand) -> list[Buffer]:
        """Prove a band and keep its columns; the bytes of its row group, if that ends."""
        if band.parts:
            rows = _gathered(self._topic, band.parts)
            proven = prove(rows)
            self._verbatim += proven.verbatim
            self._bands.append(proven.columns)
            self._note(rows, band.parts)
            self._band, self._bytes = self._band + 1, self._bytes + len(rows.buffer)
        if not band.ends:
            return []
        bands, size = self._bands, self._bytes
        self._bands, self._bytes = [], 0
        if self._beside is None:
            return self._write(bands, size)
        pieces = self._write_waiting()
        self._waiting = self._beside.submit(self._write_and_let_go, bands, size)
        return pieces

    def _write_waiting(self) -> list[Buffer]:
        waiting, self._waiting = self._waiting, None
        return [] if waiting is None else waiting.result()

    def _write_and_let_go(self, bands: list[pa.RecordBatch], size: int) -> list[Buffer]:
        """``_write``, and have the memory back: the next row group, half made, lies between what is free then."""
        pieces = self._write(bands, size)
        bands.clear()
        give_back_freed_memory()
        return pieces

    def _write(self, bands: list[pa.RecordBatch], size: int) -> list[Buffer]:
        """A row group of these columns, made of ``size`` bytes of records."""
        table = pa.Table.from_batches(bands)
        if self._file is None:
            self._schema = declared(table, self._nullable)
        full = {field.name for field in self._schema if not field.nullable}
        late = frozenset(name for name in full if table.column(name).null_count)
        if late:
            raise LateNulls(late)
        table = pa.Table.from_arrays(table.columns, schema=self._schema)
        if self._file is None:
            self._file = parquet_writer(self._stream, table, band_rows=self._cutter.band_rows)
        head = self._taken()  # of the file, before the first row group
        self._file.write_table(table, row_group_size=len(table))
        stored = self._taken()
        if len(bands) > 1:
            pages = page_table(stored, _LEAVES, [len(band) for band in bands])
            if pages is None:
                raise self._uneven()
            self._pages.append(pages)
            self._banded[len(self._groups)] = np.arange(0, len(table), len(bands[0])).tolist()
        self._groups.append((len(table), size, len(stored), crc32c(stored), len(bands[0]), 0, 0, 0, 0))
        return [head, stored]

    def _uneven(self) -> Refused:
        return Refused(
            "pages of a row group are not those that were asked for",
            hint="report this with the installed version of pyarrow",
            topic=self._topic,
        )

    def _taken(self) -> memoryview:
        self._stream.flush()
        return self._sink.taken()

    def _note(self, rows: StoredRows, group: Sequence[RunPart]) -> None:
        """The parts of a band, for the directory."""
        starts, data = rows.edges[:-1], memoryview(rows.buffer)
        times, places = store_times(data, starts), physical_offsets(data, starts)
        first = 0
        for stretch in joined_stretches(group):
            part, end = stretch[0], first + sum(map(len, stretch))
            run, crc = (self._parts[-1][0], self._parts[-1][13]) if self._parts else (-1, 0)
            begin, behind = int(rows.edges[first]), int(rows.edges[end])
            if part.begins:
                run, crc = run + 1, 0
            offset, last = int(part.queue_offset[0]), end - 1
            self._parts.append(
                (
                    run, self._band, end - first, part.queue_id, part.generation, offset,
                    stretch[-1].end_offset - offset, part.flat_offset, behind - begin, times[first:end].min(),
                    times[first:end].max(), places[first], places[last] + behind - int(rows.edges[last]),
                    crc32c(data[begin:behind], crc), 0,
                )
            )  # fmt: skip
            first = end


def _gathered(topic: str, group: Sequence[RunPart]) -> StoredRows:
    """The rows of a band in one buffer."""
    data = joined_records(group)
    sizes = np.concatenate([np.diff(part.edges) for part in group])
    return StoredRows(
        topic,
        data,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        np.repeat([np.int32(part.queue_id) for part in group], [len(part) for part in group]),
        np.concatenate([part.queue_offset for part in group]),
        np.concatenate([part.commit_seq for part in group]),
    )


def declared(first: pa.Table, nullable: Collection[str]) -> pa.Schema:
    """The schema of a file whose ``first`` row group is this: as ``SegmentWriter`` says."""
    full = {name for name in DECLARED if name not in nullable and not first.column(name).null_count}
    return pa.schema(
        [field.with_nullable(field.nullable and field.name not in full) for field in MESSAGE_SCHEMA]
    )


def parquet_writer(sink: Any, first: pa.Table, *, band_rows: int) -> pq.ParquetWriter:
    """Pyarrow's writer of segments. ``first`` row group: its schema is the file's, and filters are made for as many keys in
    each as it has. Every page but a row group's last has ``band_rows``."""
    among = sum(len(chunk.flatten()) for chunk in first.column("keys").chunks)
    keys = dict(zip(_FILTERED, (len(first), max(1, among)), strict=True))
    return pq.ParquetWriter(
        sink,
        first.schema.remove_metadata(),
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=_REPEATING,
        column_encoding=dict.fromkeys(_ASCENDING, "DELTA_BINARY_PACKED"),
        dictionary_pagesize_limit=_MOST_PAGE_BYTES,
        data_page_size=_MOST_PAGE_BYTES,
        max_rows_per_page=band_rows,
        write_statistics=[name for name in _LEAVES if name not in _UNSORTED],
        write_page_checksum=True,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(_LEAVES.index("queue_id"))],
        bloom_filter_options={name: {"ndv": n, "fpp": _FALSE_POSITIVES} for name, n in keys.items()},
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of the columns as Parquet counts them."""
    inside = {
        "keys": ["keys.list.element"],
        "properties": ["properties.key_value.key", "properties.key_value.value"],
    }
    return [path for name in schema.names for path in inside.get(name, [name])]


_LEAVES = _leaves(MESSAGE_SCHEMA)
