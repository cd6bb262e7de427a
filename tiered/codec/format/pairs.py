"""Keys and values back to back behind their lengths: u4 × n lengths of keys, u4 × n of values, keys, values."""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt

import numpy as np

Columns = tuple[list[bytes], list[bytes]]
"""Keys, and their values in the same order."""


def join_pairs(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """The bytes of some pairs."""
    lengths = np.empty(2 * len(keys), "<u4")
    lengths[: len(keys)] = np.fromiter(map(len, keys), np.int64, len(keys))
    lengths[len(keys) :] = np.fromiter(map(len, values), np.int64, len(keys))
    return b"".join((lengths.tobytes(), *keys, *values))


def split_pairs(body: bytes, count: int) -> Columns:
    """What ``join_pairs`` joined, ``count`` pairs whose keys ascend. ``ValueError`` that says what is wrong."""
    start = 8 * count
    if len(body) < start:
        raise ValueError(f"{len(body)} bytes for {count} pairs")
    ends = np.frombuffer(body, "<u4", 2 * count).cumsum(dtype=np.int64) + start
    if count and ends[-1] != len(body):
        raise ValueError(f"lengths add up to {int(ends[-1])} of {len(body)} bytes")
    at: list[int] = ends.tolist()
    parts = list(map(body.__getitem__, map(slice, [start, *at[:-1]], at)))
    keys = parts[:count]
    if not all(map(lt, keys, keys[1:])):
        raise ValueError("keys do not ascend")
    return keys, parts[count:]
