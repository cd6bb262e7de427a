"""The directory of an object: topics, tags and the table of runs (FORMAT.md, "Directory")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.format.intpack import narrow, pack_table, unpack_table
from tiered.codec.format.sections import Section, checked, unwrap, wrap
from tiered.codec.format.wire import pack, unpack
from tiered.codec.types import Buffer
from tiered.errors import Corrupt

RUN_DTYPE = np.dtype(
    [
        ("topic", "<i4"),  # index into the object's topics
        ("queue_id", "<i4"),
        ("generation", "<i4"),
        ("first_queue_offset", "<i8"),
        ("rows", "<i8"),  # records
        ("queue_offsets", "<i8"),  # owned
        ("first_flat_offset", "<i8"),
        ("bytes", "<i8"),  # of the records
        ("min_store_time", "<i8"),
        ("max_store_time", "<i8"),
        ("first_row", "<i8"),
        ("first_block", "<i8"),
        ("block_count", "<i8"),
        ("physical_start", "<i8"),
        ("physical_end", "<i8"),
    ]
)

_DERIVED = ("first_row", "first_block")  # runs lie back to back, so these are sums
_STORED = tuple(name for name in RUN_DTYPE.names or () if name not in _DERIVED)
_MAX_COUNT = 2**31 - 1  # rows and blocks of an object


@dataclass(frozen=True, slots=True)
class Directory:
    """What an object holds. ``runs`` is a ``RUN_DTYPE`` array, ``tags[0]`` is empty."""

    topics: tuple[str, ...]
    tags: tuple[bytes, ...]
    runs: npt.NDArray[Any]


def encode_directory(topics: Sequence[str], runs: npt.NDArray[Any], tags: Sequence[bytes]) -> bytes:
    """The section's bytes; the input must have passed ``directory_fault``."""
    table = pack_table({name: runs[name] for name in _STORED})
    return wrap(pack([list(topics), list(tags), table]))


def decode_directory(data: Buffer, section: Section, *, key: str) -> Directory:
    """``Corrupt`` unless CRC, types and every index are right."""
    at = section.position
    content = unwrap(checked(data, section, what="the directory", key=key), key=key, position=at)
    value = unpack(content, what="the directory", key=key, position=at)
    match value:
        case [list(topics), list(tags), bytes(table)]:
            pass
        case _:
            raise Corrupt(
                "an object's directory is malformed", key=key, position=at, expected="topics, tags, runs"
            )
    columns, rest = unpack_table(table, _STORED, key=key, position=at)
    runs = narrow(columns, RUN_DTYPE, what="the directory", key=key, position=at)
    fault: str | None = "bytes behind the runs" if len(rest) else None
    if fault is None and runs_in_bounds(runs):
        for name, length in zip(_DERIVED, ("rows", "block_count"), strict=True):
            runs[name] = np.cumsum(runs[length]) - runs[length]
    fault = fault or directory_fault(topics, runs, tags)
    if fault is not None:
        raise Corrupt("the directory makes no sense", key=key, position=at, found=fault)
    return Directory(tuple(topics), tuple(tags), runs)


def runs_in_bounds(runs: npt.NDArray[Any]) -> bool:
    """Whether counts are positive and small enough to be summed."""
    counts = [runs[name] for name in ("rows", "block_count", "queue_offsets", "bytes")]
    return bool(
        len(runs)
        and counts[0].min() >= 1
        and counts[1].min() >= 1
        and counts[2].min() >= 0
        and counts[3].min() >= 1
        and all(c.max() < 2**40 for c in counts)
        and len(runs) <= 2**22
        and max(int(c.sum()) for c in counts[:2]) <= _MAX_COUNT
    )


def directory_fault(topics: Sequence[Any], runs: npt.NDArray[Any], tags: Sequence[Any]) -> str | None:
    """What is wrong with a directory, or ``None``."""
    if set(map(type, topics)) - {str} or set(map(type, tags)) - {bytes} or not tags or tags[0] != b"":
        return "topics must be text, tags bytes, the first tag empty"
    if not runs_in_bounds(runs):
        return "no run, or counts of runs out of bounds"
    if runs["topic"].min() < 0 or runs["topic"].max() >= len(topics):
        return "topic numbers of runs"
    for name, length in zip(_DERIVED, ("rows", "block_count"), strict=True):
        if (runs[name] != np.cumsum(runs[length]) - runs[length]).any():
            return f"{name} of runs"
    return None
