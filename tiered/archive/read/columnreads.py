"""Columns of one object by few requests: their index with the columns before it, and near pieces joined.

A store answers a request for a few kilobytes and one for two megabytes in about the same time, so what is asked one after the
other counts, and bytes that lie between do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tiered.archive.read.tables import TableCache
from tiered.codec.format.object import ColumnsReader
from tiered.codec.format.sections import Section, SectionKind
from tiered.codec.types import Buffer
from tiered.model import ByteRange

AT_ONCE_BYTES = 2 * 1024 * 1024
"""Columns and their index come in one request where both have no more: some 230,000 messages, 9 bytes each. It is the largest
range that S3 is asked for by the shorter way (``provider/s3ranges.py``)."""
JOINED_BYTES = 128 * 1024
"""Asked for together although as much of other columns lies between: one group of rows has some 70 KB of them."""

Fetch = Callable[[str, ByteRange], bytes]
Columns = dict[str, npt.NDArray[Any]]


def columns_index(
    tables: TableCache, fetch: Fetch, key: str, sections: Mapping[int, Section]
) -> ColumnsReader:
    """The index of an object's columns: kept, or fetched alone."""
    index = sections[SectionKind.COLUMN_INDEX]
    return tables.once(
        key,
        "columns",
        lambda: ColumnsReader(fetch(key, index.range), sections, key=key),
        lambda made: index.length * 8 + 256,
    )


def index_comes_along(tables: TableCache, key: str, sections: Mapping[int, Section]) -> bool:
    """Whether the next columns of an object come in one request with their index, which is not here yet."""
    return tables.find(key, "columns") is None and _together(sections) is not None


def read_columns(
    tables: TableCache,
    fetch: Fetch,
    key: str,
    sections: Mapping[int, Section],
    names: Sequence[str],
    first_row: int,
    rows: int,
) -> Columns:
    """Columns of some rows: one request where their index is here or everything up to its end is small enough."""
    whole, data = _together(sections), b""
    if whole is not None and tables.find(key, "columns") is None:
        data = fetch(key, whole)
        index = sections[SectionKind.COLUMN_INDEX]
        piece = memoryview(data)[index.position - whole.start : index.range.end - whole.start]
        reader = tables.once(
            key,
            "columns",
            lambda: ColumnsReader(piece, sections, key=key),
            lambda made: index.length * 8 + 256,
        )
    else:
        reader = columns_index(tables, fetch, key, sections)
    ranges = reader.ranges(names, first_row, rows)
    if data and whole is not None:
        pieces: list[Buffer] = [memoryview(data)[r.start - whole.start : r.end - whole.start] for r in ranges]
    else:
        pieces = _joined(fetch, key, ranges)
    return reader.decode(names, first_row, rows, pieces)


def _together(sections: Mapping[int, Section]) -> ByteRange | None:
    """Columns and the index behind them; ``None`` where that is much, or they do not follow each other."""
    columns, index = sections[SectionKind.COLUMNS], sections[SectionKind.COLUMN_INDEX]
    if columns.range.end != index.position or columns.length + index.length > AT_ONCE_BYTES:
        return None
    return ByteRange(columns.position, index.range.end)


def _joined(fetch: Fetch, key: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
    """The bytes of ascending ranges."""
    groups: list[list[ByteRange]] = []
    for wanted in ranges:
        near = bool(groups) and wanted.start - groups[-1][-1].end <= JOINED_BYTES
        if near and wanted.end - groups[-1][0].start <= AT_ONCE_BYTES:
            groups[-1].append(wanted)
        else:
            groups.append([wanted])
    pieces: list[Buffer] = []
    for group in groups:
        base = group[0].start
        data = memoryview(fetch(key, ByteRange(base, group[-1].end)))
        pieces += [data[r.start - base : r.end - base] for r in group]
    return pieces
