"""How large the tables of a flush may become, and whether it may travel inside its commit.

Inline data is at most 4 MiB of records (``dispatch.inline_bytes``) and at most as much of tables. Tables are nearly always a
few per cent of their records, but nothing in RocketMQ says so: keys of three letters take twice their own size. Such a flush
becomes an object of its own, before anything is encoded, since its id is part of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiered.codec.format.commit import MAX_INLINE_BYTES
from tiered.settings import MIB

MAX_INLINE_RECORD_BYTES = 4 * MIB
MAX_INLINE_TABLE_BYTES = MAX_INLINE_BYTES - MAX_INLINE_RECORD_BYTES

# What one of each adds to the tables at most, uncompressed (FORMAT.md). Integer columns never take more than their type.
ROW_BYTES = 5 * 4 + 4 * 8 + 4
"""Ten columns: five of four bytes, four of eight, the body CRC."""
KEY_BYTES = 8 + 4 + 8 + 2
"""Hash, run, queue offset, 10 bits of the filter."""
RUN_BYTES = 3 * 4 + 10 * 8 + 8 + 2
"""A row of the directory; the filter's count and its rounding."""
BLOCK_BYTES = 3 * 8 + 5 * 4 + 1
"""A row of the block table."""
NAME_BYTES = 5
"""Length of a text in front of it."""
ROWS_PER_CHUNK = 8192
CHUNK_BYTES = 10 * (17 + 9) + 8
"""Heads and index rows of one group of all columns, and its first hash."""
FIXED_BYTES = 4096
"""Footer, envelopes, heads of tables."""


def table_bytes_at_most(
    *, rows: int, keys: int, runs: int, blocks: int, names: Iterable[int], dictionary: int = 0
) -> int:
    """A bound on what an object takes besides its blocks. ``names``: lengths in bytes of its topics and tags; ``dictionary``:
    bytes of its dictionary."""
    groups = -(-rows // ROWS_PER_CHUNK) + -(-keys // ROWS_PER_CHUNK)
    lengths = list(names)
    return (
        FIXED_BYTES
        + ROW_BYTES * rows
        + KEY_BYTES * keys
        + RUN_BYTES * runs
        + BLOCK_BYTES * blocks
        + CHUNK_BYTES * groups
        + NAME_BYTES * len(lengths)
        + sum(lengths)
        + dictionary
    )


def tables_fit(
    *, rows: int, keys: int, runs: int, blocks: int, names: Iterable[int], dictionary: int = 0
) -> bool:
    """Whether the tables of such an object are small enough for inline data, whatever is in them."""
    size = table_bytes_at_most(
        rows=rows, keys=keys, runs=runs, blocks=blocks, names=names, dictionary=dictionary
    )
    return size <= MAX_INLINE_TABLE_BYTES
