"""Pages of a row group: where they lie, and some of them as a Parquet file of their own, which any reader decodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import crc32c
from tiered.codec.segment.footer import MAGIC
from tiered.codec.segment.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Fields,
    field_head,
    list_head,
    read_struct,
    write_struct,
    written_number,
)
from tiered.codec.types import Buffer

PAGE_DTYPE = np.dtype(
    [
        ("stored_length", "<i8"),  # with the page's header; 0 where a column has no dictionary
        ("crc32c", "<u4"),  # of those bytes
        ("position", "<i8"),  # follows from the pages before
    ]
)

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_HEADER_OF_DATA = 5
_ARROW_SCHEMA = b"ARROW:schema"

# fields of Parquet's FileMetaData, RowGroup, ColumnChunk, ColumnMetaData
_VERSION, _SCHEMA, _ROWS, _GROUPS, _VALUES = 1, 2, 3, 4, 5
_COLUMNS, _BYTES, _GROUP_ROWS = 1, 2, 3
_METADATA, _PAGE_INDEX = 3, 4
_FIRST_ROW = 3
_TYPE, _ENCODINGS, _PATH, _CODEC, _COUNT, _RAW_BYTES, _STORED_BYTES, _FIRST_PAGE, _DICTIONARY = (
    1, 2, 3, 4, 5, 6, 7, 9, 11,
)  # fmt: skip


def page_table(data: Buffer, columns: Sequence[str], band_rows: Sequence[int]) -> npt.NDArray[np.void] | None:
    """Length and checksum of every page (``PAGE_DTYPE``) of a row group's bytes: for each column (its path) its dictionary's,
    then one for each band. ``None`` if they are not so, as far as a page says how many rows it has: one of lists does not."""
    view, at, found = memoryview(data), 0, []
    for path in columns:
        for place in range(len(band_rows) + 1):
            header, behind = read_struct(view, at)
            kind = header[1][1]
            if place == 0 and kind != _DICTIONARY_PAGE:
                found.append((0, 0, 0))
                continue
            end = behind + header[3][1]
            if kind != (_DICTIONARY_PAGE if place == 0 else _DATA_PAGE) or end > len(view):
                return None
            if place and "." not in path and header[_HEADER_OF_DATA][1][1][1] != band_rows[place - 1]:
                return None
            found.append((end - at, crc32c(view[at:end]), 0))
            at = end
    return np.array(found, PAGE_DTYPE) if at == len(view) else None


def first_rows(end: Buffer, start: int, groups: Iterable[int]) -> dict[int, list[int]]:
    """Where in their row group data pages begin, by the page index; only of those ``groups`` whose columns all say the same.
    ``end``: a Parquet file from byte ``start`` on, behind its row groups."""
    size = int.from_bytes(memoryview(end)[-8:-4], "little")
    fields, _ = read_struct(end, len(end) - 8 - size)
    found = {}
    for number in groups:
        chunks = fields[_GROUPS][1][1][number][_COLUMNS][1][1]
        indexes = (read_struct(end, chunk[_PAGE_INDEX][1] - start)[0] for chunk in chunks)
        rows = [[page[_FIRST_ROW][1] for page in index[1][1][1]] for index in indexes]
        if all(each == rows[0] for each in rows):
            found[number] = rows[0]
    return found


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """Pages of one column that follow each other: its dictionary's, if it has one, and data pages."""

    dictionary: Buffer
    data: Buffer


@dataclass(frozen=True)
class FileShape:
    """What all row groups of a Parquet file share: its schema, and type and compression of each column."""

    version: int
    schema: tuple[int, list[Fields]]
    arrow_schema: bytes | None
    leaves: tuple[Fields, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Buffer) -> FileShape:
        """That of serialised metadata. ``ValueError``, ``LookupError`` or ``TypeError`` if it is none."""
        fields, _ = read_struct(metadata)
        first = fields[_GROUPS][1][1][0]
        leaves = [chunk[_METADATA][1] for chunk in first[_COLUMNS][1][1]]
        values = {pair[1][1]: pair[2][1] for pair in fields[_VALUES][1][1] if 2 in pair}
        names = [leaf[_PATH][1][1][0].decode() for leaf in leaves]
        return cls(
            fields[_VERSION][1], fields[_SCHEMA][1], values.get(_ARROW_SCHEMA),
            tuple({n: leaf[n] for n in (_TYPE, _ENCODINGS, _PATH, _CODEC)} for leaf in leaves), tuple(names),
        )  # fmt: skip

    def leaves_of(self, names: Sequence[str]) -> list[int]:
        """Numbers of the columns that make up these columns of a table."""
        return [number for number, name in enumerate(self.names) if name in names]

    def file(self, pages: dict[int, ChunkPages], rows: int) -> list[Buffer]:
        """A Parquet file of one row group, in pieces: of these pages by number of their column; other columns are empty, and
        must not be read. ``ValueError`` or ``LookupError`` if something is no page."""
        pieces: list[Buffer] = [MAGIC]
        at, chunks = len(MAGIC), []
        for number, leaf in enumerate(self._written):
            chunk = pages.get(number, _NO_PAGES)
            size = len(chunk.dictionary) + len(chunk.data)
            values = _values(chunk.data) if leaf.repeats else rows
            chunks.append(leaf.chunk(values, size, at, at + len(chunk.dictionary)))
            if size:
                pieces += [chunk.dictionary, chunk.data]
            at += size
        footer = b"".join(
            [self._opening, written_number(rows), self._groups, *chunks, _SIZE_HEAD, written_number(at),
             _GROUP_ROWS_HEAD, written_number(rows), self._closing]
        )  # fmt: skip
        return [*pieces, footer, len(footer).to_bytes(4, "little"), MAGIC]

    @cached_property
    def _written(self) -> tuple[_Leaf, ...]:
        return tuple(map(_Leaf.of, self.leaves))

    @cached_property
    def _opening(self) -> bytes:
        """Up to the number of rows."""
        fields: Fields = {_VERSION: (I32, self.version), _SCHEMA: (LIST, self.schema)}
        return write_struct(fields)[:-1] + field_head(_SCHEMA, _ROWS, I64)

    @cached_property
    def _groups(self) -> bytes:
        """Behind it, up to the first column of the one row group."""
        group = field_head(_ROWS, _GROUPS, LIST) + list_head(1, STRUCT)
        return group + field_head(0, _COLUMNS, LIST) + list_head(len(self.leaves), STRUCT)

    @cached_property
    def _closing(self) -> bytes:
        """Behind the row group's number of rows."""
        if self.arrow_schema is None:
            return bytes(2)
        pair = {1: (BINARY, _ARROW_SCHEMA), 2: (BINARY, self.arrow_schema)}
        values = write_struct({_VALUES: (LIST, (STRUCT, [pair]))})[1:]
        return b"\0" + field_head(_GROUPS, _VALUES, LIST) + values


_SIZE_HEAD = field_head(_COLUMNS, _BYTES, I64)
_GROUP_ROWS_HEAD = field_head(_BYTES, _GROUP_ROWS, I64)
_COUNT_HEAD = field_head(_CODEC, _COUNT, I64)
_RAW_HEAD = field_head(_COUNT, _RAW_BYTES, I64)
_STORED_HEAD = field_head(_RAW_BYTES, _STORED_BYTES, I64)
_FIRST_HEAD = field_head(_STORED_BYTES, _FIRST_PAGE, I64)
_DICTIONARY_HEAD = field_head(_FIRST_PAGE, _DICTIONARY, I64)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column in the metadata of a made file: what is the same in all of them is written once. ``repeats``: a row may have
    several values, or none."""

    head: bytes
    repeats: bool

    @classmethod
    def of(cls, leaf: Fields) -> _Leaf:
        outer = write_struct({2: (I64, 0)})[:-1] + field_head(2, _METADATA, STRUCT)
        return cls(outer + write_struct(leaf)[:-1], len(leaf[_PATH][1][1]) > 1)

    def chunk(self, values: int, size: int, begin: int, first_page: int) -> bytes:
        """A chunk of ``size`` bytes at ``begin``, whose data pages begin at ``first_page``."""
        length = written_number(size)
        found = [
            self.head, _COUNT_HEAD, written_number(values), _RAW_HEAD, length, _STORED_HEAD, length,
            _FIRST_HEAD, written_number(first_page),
        ]  # fmt: skip
        if first_page > begin:
            found += [_DICTIONARY_HEAD, written_number(begin)]
        return b"".join([*found, b"\0\0"])


class PartOfFile:
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


_NO_PAGES = ChunkPages(b"", b"")


def _values(data: Buffer) -> int:
    """How many values data pages have, one behind the other."""
    at = count = 0
    while at < len(data):
        header, behind = read_struct(data, at)
        count += header[_HEADER_OF_DATA][1][1][1]
        at = behind + header[3][1]
    if at != len(data):
        raise ValueError("a page is cut off")
    return count
