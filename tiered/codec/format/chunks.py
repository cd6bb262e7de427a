"""Tables stored column-wise in chunks, read a few columns and rows at a time (FORMAT.md, "Chunked table").

Two sections: the chunks, and a small index of them that is read first. Rows are cut into groups of
``rows_per_chunk`` (the last may be shorter); a group's columns lie side by side and groups follow each
other, so that adjacent rows of several columns are one range of bytes. Each chunk is one integer column,
zstd-compressed where that helps, with its own CRC32C.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import crc32cs
from tiered.codec.format.intpack import check_fits, narrow, pack_ints, pack_table, unpack_ints, unpack_table
from tiered.codec.format.sections import (
    CODEC_NONE,
    CODEC_ZSTD,
    ZSTD_LEVEL,
    Section,
    check_length_and_crc,
    checked,
    unwrap,
    wrap,
)
from tiered.codec.types import Buffer, Ints
from tiered.codec.zstd import deflate, inflate
from tiered.errors import Corrupt
from tiered.model import ByteRange

ROWS_PER_CHUNK = 8192
"""64 KiB of 8-byte values."""

MAX_ROWS_PER_CHUNK = 65536

_INDEX_HEAD = struct.Struct(
    "<QIB"
)  # rows, rows per chunk, number of columns; then the columns' numbers, u1 each
_CHUNK_DTYPE = np.dtype([("stored_length", "<i4"), ("codec", "u1"), ("crc32c", "<u4")])
_CHUNK_FIELDS = _CHUNK_DTYPE.names or ()


@dataclass(frozen=True, slots=True)
class ChunkedColumn:
    """A column's number on the wire, never reused, and its type in memory."""

    number: int
    dtype: np.dtype[Any]


Schema = Mapping[str, ChunkedColumn]


def encode_chunks(
    columns: Mapping[str, npt.NDArray[Any]], schema: Schema, *, extra: bytes = b""
) -> tuple[list[bytes], bytes]:
    """The chunks in order, and the index section, ``extra`` at its end.

    ``columns``: at least one row, equal lengths, in the order in which they are to lie.
    """
    rows = len(next(iter(columns.values())))
    chunks: list[bytes] = []
    codecs: list[int] = []
    for first in range(0, rows, ROWS_PER_CHUNK):
        for values in columns.values():
            packed = pack_ints(values[first : first + ROWS_PER_CHUNK])
            small = deflate(packed, level=ZSTD_LEVEL)
            helps = len(small) < len(packed)
            chunks.append(small if helps else packed)
            codecs.append(CODEC_ZSTD if helps else CODEC_NONE)
    table: dict[str, npt.NDArray[Any]] = {
        "stored_length": np.fromiter(map(len, chunks), np.int64, len(chunks)),
        "codec": np.array(codecs, np.int64),
        "crc32c": crc32cs(chunks),
    }
    numbers = bytes(schema[name].number for name in columns)
    head = _INDEX_HEAD.pack(rows, ROWS_PER_CHUNK, len(columns)) + numbers
    return chunks, wrap(head + pack_table(table) + extra)


class ChunkedTable:
    """The index of a chunked table, decoded: says which ranges of the object to fetch, then decodes what
    came.

    Columns with unknown numbers are skipped. ``rows`` and ``names`` are what the table holds.
    """

    def __init__(
        self, index: Buffer, *, index_section: Section, section: Section, schema: Schema, what: str, key: str
    ) -> None:
        """``Corrupt`` if the index is damaged or does not describe ``section`` exactly."""
        self._what, self._key, self._section, self._schema = what, key, section, schema
        at = index_section.position
        content = memoryview(
            unwrap(checked(index, index_section, what=f"the index of {what}", key=key), key=key, position=at)
        )
        head = _INDEX_HEAD.unpack_from(content) if len(content) >= _INDEX_HEAD.size else (0, 0, 0)
        self.rows: int = head[0]
        self.rows_per_chunk: int = head[1]
        count: int = head[2]
        body = _INDEX_HEAD.size + count
        if (
            not 1 <= self.rows_per_chunk <= MAX_ROWS_PER_CHUNK
            or not self.rows
            or not count
            or len(content) < body
        ):
            self._fail(
                "its index has no head", f"rows, at most {MAX_ROWS_PER_CHUNK} per chunk, columns", head, at
            )
        numbers = list(content[_INDEX_HEAD.size : body])
        columns, self.rest = unpack_table(content[body:], _CHUNK_FIELDS, key=key, position=at)
        self._chunks = narrow(columns, _CHUNK_DTYPE, what=f"the index of {what}", key=key, position=at)
        self.groups = -(-self.rows // self.rows_per_chunk)
        if len(self._chunks) != self.groups * count or len(set(numbers)) != count:
            self._fail("its index has the wrong number of chunks", self.groups * count, len(self._chunks), at)
        lengths = self._chunks["stored_length"].astype(np.int64)
        if lengths.min() < 1 or int(lengths.sum()) != section.length:
            self._fail("its chunks do not fill it", section.length, int(lengths.sum()), at)
        self._ends = (np.cumsum(lengths) + section.position).reshape(self.groups, count)
        self._starts = self._ends - lengths.reshape(self.groups, count)
        self._chunks = self._chunks.reshape(self.groups, count)
        by_number = {column.number: name for name, column in schema.items()}
        self._place = {by_number[n]: i for i, n in enumerate(numbers) if n in by_number}

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that the table holds and this program knows, in the order in which they lie."""
        return tuple(self._place)

    def ranges(self, names: Sequence[str], first_row: int, rows: int) -> list[ByteRange]:
        """Bytes of the object to fetch for these rows of ``names``: ascending, neighbours joined.

        ``Corrupt`` if the table lacks such rows or columns.
        """
        joined: list[ByteRange] = []
        for _, group, place in self._wanted(names, first_row, rows):
            start, end = int(self._starts[group, place]), int(self._ends[group, place])
            if joined and joined[-1].end == start:
                joined[-1] = ByteRange(joined[-1].start, end)
            else:
                joined.append(ByteRange(start, end))
        return joined

    def decode(
        self, names: Sequence[str], first_row: int, rows: int, pieces: Sequence[Buffer]
    ) -> dict[str, npt.NDArray[Any]]:
        """Columns of these rows, from the bytes of ``ranges`` for the same arguments, in that order."""
        ranges = self.ranges(names, first_row, rows)
        if [len(p) for p in pieces] != [r.length for r in ranges]:
            self._fail(
                "the bytes given are not those asked for",
                [r.length for r in ranges],
                [len(p) for p in pieces],
                ranges[0].start if ranges else self._section.position,
            )
        views = [memoryview(p) for p in pieces]
        parts: dict[str, list[Ints]] = {name: [] for name in names}
        which = 0
        for name, group, place in self._wanted(names, first_row, rows):
            start, end = int(self._starts[group, place]), int(self._ends[group, place])
            while start >= ranges[which].end:
                which += 1
            at = start - ranges[which].start
            parts[name].append(self._chunk(views[which][at : at + end - start], group, place))
        skip = first_row % self.rows_per_chunk
        return {name: self._typed(name, found, skip, rows) for name, found in parts.items()}

    def _typed(self, name: str, parts: list[Ints], skip: int, rows: int) -> npt.NDArray[Any]:
        dtype = self._schema[name].dtype
        if not parts:
            return np.zeros(0, dtype)
        values = (np.concatenate(parts) if len(parts) > 1 else parts[0])[skip : skip + rows]
        check_fits(name, values, dtype, what=self._what, key=self._key, position=self._section.position)
        return values.view(dtype) if dtype.itemsize == 8 else values.astype(dtype)

    def _chunk(self, stored: memoryview, group: int, place: int) -> Ints:
        chunk = self._chunks[group, place]
        at = int(self._starts[group, place])
        rows = min(self.rows_per_chunk, self.rows - group * self.rows_per_chunk)
        check_length_and_crc(
            stored,
            length=int(chunk["stored_length"]),
            crc=int(chunk["crc32c"]),
            what=f"a chunk of {self._what}",
            key=self._key,
            position=at,
        )
        packed: Buffer = stored
        if chunk["codec"] == CODEC_ZSTD:
            packed = inflate(stored, raw_length=None, bound=32 + 8 * rows, key=self._key, position=at)
        elif chunk["codec"] != CODEC_NONE:
            self._fail("a chunk has an unknown codec", "0 or 1", int(chunk["codec"]), at)
        return unpack_ints(packed, rows, key=self._key, position=at)

    def _wanted(self, names: Sequence[str], first_row: int, rows: int) -> Iterator[tuple[str, int, int]]:
        """(name, group, place) of every chunk needed, in the order in which they lie."""
        missing = [n for n in names if n not in self._place]
        if missing or first_row < 0 or rows < 0 or first_row + rows > self.rows:
            self._fail(
                "it lacks the rows or columns asked for",
                f"rows [{first_row}, {first_row + rows}) of {', '.join(names)}",
                f"{self.rows} rows of {', '.join(self._place)}",
                self._section.position,
            )
        if not rows:
            return
        places = sorted((self._place[name], name) for name in set(names))
        for group in range(first_row // self.rows_per_chunk, -(-(first_row + rows) // self.rows_per_chunk)):
            for place, name in places:
                yield name, group, place

    def _fail(self, why: str, expected: object, found: object, position: int) -> None:
        raise Corrupt(
            f"{self._what}: {why}", key=self._key, position=position, expected=expected, found=found
        )
