"""Which rows of a segment carry a key: bloom filters say which row groups may have one, the columns which rows do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from tiered.codec.segment.reader import BandBytes, Segment
from tiered.codec.types import Buffer, Ints

_FILTERED = ("unique_key", "keys.list.element")
_BLOCK_BYTES = 32  # of a split block bloom filter, as Parquet defines it
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint64,
)


def groups_with_key(segment: Segment, index: Buffer, key: str) -> list[int]:
    """Row groups in which a message may have ``key`` as its unique key or among its keys; a group without filters may.

    ``index``: the bytes of ``segment.index_range``, which ``check_index`` found right.
    """
    hashed, view = xxhash.xxh64_intdigest(key.encode()), memoryview(index)
    start = segment.index_range.start
    return [
        number
        for number in range(segment.metadata.num_row_groups)
        if any(
            _may_hold(view, column, start, hashed) for column in _columns(segment.metadata.row_group(number))
        )
    ]


def rows_with_key(segment: Segment, bands: tuple[int, int], data: BandBytes, key: str) -> Ints:
    """Rows of bands of a row group, ascending, that have the key. ``data`` and errors: as ``Segment.columns``."""
    batch = segment.columns(bands, data, ("unique_key", "keys"))
    unique = pc.fill_null(pc.equal(batch.column("unique_key"), key), False)
    lists = batch.column("keys")
    found = pc.equal(pc.list_flatten(lists), key)
    among = pc.list_parent_indices(lists).filter(found).to_numpy(zero_copy_only=False)
    rows: Ints = np.union1d(np.flatnonzero(unique.to_numpy(zero_copy_only=False)), among).astype(np.int64)
    return rows


def numbers(
    segment: Segment, bands: tuple[int, int], data: BandBytes, names: Sequence[str]
) -> dict[str, Ints] | None:
    """Columns of numbers and times (in ms) of bands of a row group; ``None`` if one has no value in some row."""
    batch = segment.columns(bands, data, names)
    found: dict[str, Ints] = {}
    for name in names:
        column = batch.column(name)
        if column.null_count:
            return None
        is_time = pa.types.is_timestamp(column.type)
        values = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        found[name] = values // 1000 if is_time else values
    return found


def _columns(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    columns = [group.column(n) for n in range(group.num_columns)]
    return [column for column in columns if column.path_in_schema in _FILTERED]


def _may_hold(index: memoryview, column: pq.ColumnChunkMetaData, start: int, hashed: int) -> bool:
    """Whether a column's filter does not deny a value. The filter's own header is shorter than a block of it."""
    offset, length = column.bloom_filter_offset, column.bloom_filter_length
    if offset is None or length is None or not length // _BLOCK_BYTES:
        return True
    size = length // _BLOCK_BYTES * _BLOCK_BYTES
    end = offset + length - start
    blocks = np.frombuffer(index[end - size : end], "<u4").reshape(-1, _BLOCK_BYTES // 4)
    block = blocks[(hashed >> 32) * len(blocks) >> 32]
    bits = (np.uint64(hashed & 0xFFFF_FFFF) * _SALT & np.uint64(0xFFFF_FFFF)) >> np.uint64(27)
    return bool(((block >> bits.astype(np.uint32)) & 1).all())
