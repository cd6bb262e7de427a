"""A segment, written as its records come: row groups go out as soon as they are full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA, StoredRows
from tiered.codec.arrow.proof import prove
from tiered.codec.checksum import crc32c
from tiered.codec.format.sections import Section
from tiered.codec.record.layout import physical_offsets, store_times
from tiered.codec.segment.cutting import GroupCutter, RunPart, joined_stretches
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
from tiered.codec.types import Buffer
from tiered.errors import Invalid

SEGMENT_FORMAT = 1
"""What ``tiered.format`` says; a reader refuses a higher one."""

_ZSTD_LEVEL = 1
_FALSE_POSITIVES = 0.01
_FILTERED = ("unique_key", "keys.list.element")
_UNSORTED = ("body", "record", "msg_id", "properties.key_value.key", "properties.key_value.value")
"""Columns whose smallest and largest value help nobody."""

_REPEATING = [
    "topic", "queue_id", "store_host", "born_host", "sys_flag", "flag", "reconsume_times", "prepared_transaction_offset",
    "magic", "tags", "commit_seq", "properties.key_value.key",
]  # fmt: skip
"""Columns of few distinct values, written with dictionaries."""


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A written segment: its length, its ``footer`` as ``AddObject`` names it, its ``runs`` (``directory.RUN_DTYPE``, each with
    the CRC32C over its records for ``ReplaceRuns``), rows, and how many of them are stored verbatim."""

    length: int
    footer: Section
    runs: npt.NDArray[Any]
    rows: int
    verbatim: int


class SegmentWriter:
    """Writes one segment of one topic. ``add`` takes parts sorted by queue, generation and queue offset, and gives bytes of the
    file, in order; ``close`` gives the last ones and then ``sealed`` says what was written. Holds about a row group
    (``row_group_bytes`` of records).

    Every row is proven before it is written (``codec.arrow.proof``). A writer that raised must not be used again.
    """

    def __init__(self, topic: str, *, archive_id: bytes, object_id: bytes, row_group_bytes: int) -> None:
        self._topic = topic
        self._ids = {ARCHIVE_ID: archive_id.hex(), OBJECT_ID: object_id.hex()}
        self._cutter = GroupCutter(row_group_bytes)
        self._sink = _Sink()
        self._file: pq.ParquetWriter | None = None
        self._groups: list[tuple[Any, ...]] = []
        self._parts: list[tuple[Any, ...]] = []
        self._verbatim = 0
        self.sealed: SealedSegment | None = None

    def add(self, part: RunPart) -> list[Buffer]:
        """Bytes that are ready, often none. ``Invalid`` if the part is out of order, ``Refused`` if rows cannot be proven."""
        return [piece for group in self._cutter.add(part) for piece in self._write(group)]

    def close(self) -> list[Buffer]:
        """The last bytes of the file. ``Invalid`` if there are no records."""
        pieces = self._write(rest) if (rest := self._cutter.rest()) else []
        if self._file is None:
            raise Invalid("a segment without records cannot be written", topic=self._topic)
        groups, parts = np.array(self._groups, GROUP_DTYPE), np.array(self._parts, PART_DTYPE)
        directory = with_places(self._topic, groups, parts)
        start = self._sink.position
        values = {**self._ids, FORMAT: str(SEGMENT_FORMAT), DIRECTORY: encode_directory(directory)}
        self._file.add_key_value_metadata({**values, INDEX_CRC: UNKNOWN_CRC, FOOTER_CRC: UNKNOWN_CRC})
        self._file.close()
        end = b"".join(self._sink.taken())
        length = start + len(end)
        size = footer_bytes(end, object_length=length, key="")
        index, footer = end[:-size], end[-size:]
        footer = sealed_footer(footer, crc32c(index, crc32c(MAGIC)))
        section = Section(length - size, size, crc32c(footer))
        self.sealed = SealedSegment(
            length, section, directory.runs(), int(groups["rows"].sum()), self._verbatim
        )
        return [*pieces, index, footer]

    def _write(self, group: Sequence[RunPart]) -> list[Buffer]:
        rows = _gathered(self._topic, group)
        proven = prove(rows)
        self._verbatim += proven.verbatim
        if self._file is None:
            self._file = parquet_writer(pa.PythonFile(self._sink, mode="w"), proven.columns)
        head = self._sink.taken()  # of the file, before the first row group
        self._file.write_table(pa.Table.from_batches([proven.columns]), row_group_size=len(rows))
        stored = b"".join(self._sink.taken())
        self._note(rows, group)
        self._groups.append((len(rows), len(rows.buffer), len(stored), crc32c(stored), 0, 0))
        return [*head, stored]

    def _note(self, rows: StoredRows, group: Sequence[RunPart]) -> None:
        """The parts of a row group, for the directory."""
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
                    run, len(self._groups), end - first, part.queue_id, part.generation, offset,
                    stretch[-1].end_offset - offset, part.flat_offset, behind - begin, times[first:end].min(),
                    times[first:end].max(), places[first], places[last] + behind - int(rows.edges[last]),
                    crc32c(data[begin:behind], crc), 0,
                )
            )  # fmt: skip
            first = end


def _gathered(topic: str, group: Sequence[RunPart]) -> StoredRows:
    """The rows of a row group in one buffer."""
    data = group[0].records if len(group) == 1 else memoryview(b"".join(part.records for part in group))
    sizes = np.concatenate([np.diff(part.edges) for part in group])
    return StoredRows(
        topic,
        data,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        np.repeat([np.int32(part.queue_id) for part in group], [len(part) for part in group]),
        np.concatenate([part.queue_offset for part in group]),
        np.concatenate([part.commit_seq for part in group]),
    )


def parquet_writer(sink: Any, first: pa.RecordBatch) -> pq.ParquetWriter:
    """Pyarrow's writer of segments. ``first`` row group: filters are made for as many keys in each as it has."""
    keys = dict(zip(_FILTERED, (len(first), max(1, len(first.column("keys").flatten()))), strict=True))
    leaves = _leaves(MESSAGE_SCHEMA)
    return pq.ParquetWriter(
        sink,
        MESSAGE_SCHEMA,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=_REPEATING,
        write_statistics=[name for name in leaves if name not in _UNSORTED],
        write_page_checksum=True,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(leaves.index("queue_id"))],
        bloom_filter_options={name: {"ndv": n, "fpp": _FALSE_POSITIVES} for name, n in keys.items()},
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of the columns as Parquet counts them."""
    inside = {
        "keys": ["keys.list.element"],
        "properties": ["properties.key_value.key", "properties.key_value.value"],
    }
    return [path for name in schema.names for path in inside.get(name, [name])]


class _Sink:
    """The file that pyarrow believes it writes to."""

    def __init__(self) -> None:
        self.position = 0
        self.closed = False
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(data)
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> list[bytes]:
        """What was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces
