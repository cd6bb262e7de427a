"""What a segment holds: its row groups and, in each, the parts of runs (FORMAT.md, "Segment")."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.format.intpack import narrow, pack_table, unpack_table
from tiered.codec.format.sections import unwrap, wrap
from tiered.codec.format.wire import pack, unpack
from tiered.codec.segment.footer import MAGIC
from tiered.codec.types import Ints
from tiered.errors import Corrupt

GROUP_DTYPE = np.dtype(
    [
        ("rows", "<i8"),
        ("bytes", "<i8"),  # of the records
        ("stored_length", "<i8"),
        ("crc32c", "<u4"),  # of the stored bytes
        ("position", "<i8"),  # the rest follows from the lines before
        ("first_row", "<i8"),
    ]
)

PART_DTYPE = np.dtype(
    [
        ("run", "<i4"),  # parts of one run follow each other
        ("row_group", "<i4"),
        ("rows", "<i8"),  # records
        ("queue_id", "<i4"),
        ("generation", "<i4"),
        ("first_queue_offset", "<i8"),
        ("queue_offsets", "<i8"),  # owned
        ("first_flat_offset", "<i8"),
        ("bytes", "<i8"),  # of the records
        ("min_store_time", "<i8"),
        ("max_store_time", "<i8"),
        ("physical_start", "<i8"),  # of the first record, as it says itself
        ("physical_end", "<i8"),  # of the last
        ("crc32c", "<u4"),  # of the run's records up to the end of this part
        ("first_row", "<i8"),  # in its row group; follows from the parts before
    ]
)

RUN_DTYPE = np.dtype(
    [
        ("queue_id", "<i4"),
        ("generation", "<i4"),
        ("first_queue_offset", "<i8"),
        ("rows", "<i8"),
        ("queue_offsets", "<i8"),
        ("first_flat_offset", "<i8"),
        ("bytes", "<i8"),
        ("min_store_time", "<i8"),
        ("max_store_time", "<i8"),
        ("first_row", "<i8"),  # in the file
        ("first_block", "<i8"),  # blocks are parts
        ("block_count", "<i8"),
        ("physical_start", "<i8"),
        ("physical_end", "<i8"),
        ("crc32c", "<u4"),  # of all its records, one behind the other
    ]
)
"""A run of a segment, with the columns of ``AppendRun`` that are the run's own."""

_STORED_GROUP = ("rows", "bytes", "stored_length", "crc32c")
_STORED_PART = tuple(name for name in PART_DTYPE.names or () if name != "first_row")
_MOST = 1 << 40


@dataclass(frozen=True, slots=True)
class SegmentDirectory:
    """``groups`` (GROUP_DTYPE) in file order; ``parts`` (PART_DTYPE) in row order. One topic."""

    topic: str
    groups: npt.NDArray[Any]
    parts: npt.NDArray[Any]

    def runs(self) -> npt.NDArray[Any]:
        """The runs (RUN_DTYPE), in row order."""
        parts = self.parts
        first = np.flatnonzero(np.diff(parts["run"], prepend=-1))
        last = np.append(first[1:], len(parts)) - 1
        runs = np.zeros(len(first), RUN_DTYPE)
        for name in (
            "queue_id", "generation", "first_queue_offset", "first_flat_offset", "physical_start",
        ):  # fmt: skip
            runs[name] = parts[name][first]
        for name in ("rows", "queue_offsets", "bytes"):
            runs[name] = np.add.reduceat(parts[name], first)
        runs["min_store_time"] = np.minimum.reduceat(parts["min_store_time"], first)
        runs["max_store_time"] = np.maximum.reduceat(parts["max_store_time"], first)
        runs["physical_end"], runs["crc32c"] = parts["physical_end"][last], parts["crc32c"][last]
        runs["first_block"], runs["block_count"] = first, last - first + 1
        runs["first_row"] = self.groups["first_row"][parts["row_group"][first]] + parts["first_row"][first]
        return runs

    def parts_of(self, row_group: int) -> npt.NDArray[Any]:
        """The parts of one row group, and before them the crc32c that its first part's goes on from."""
        first, end = np.searchsorted(self.parts["row_group"], (row_group, row_group + 1))
        found: npt.NDArray[Any] = self.parts[first:end]
        return found

    def crc_before(self, row_group: int) -> int:
        """What the first part of a row group continues the sum of: its run's sum so far, 0 where the run begins there."""
        first = int(np.searchsorted(self.parts["row_group"], row_group))
        if first == 0 or self.parts["run"][first - 1] != self.parts["run"][first]:
            return 0
        return int(self.parts["crc32c"][first - 1])

    @property
    def groups_end(self) -> int:
        """Where the last row group ends in the file."""
        return len(MAGIC) + int(self.groups["stored_length"].sum())


def with_places(topic: str, groups: npt.NDArray[Any], parts: npt.NDArray[Any]) -> SegmentDirectory:
    """A directory whose derived columns are filled in."""
    groups["position"] = len(MAGIC) + _before(groups["stored_length"])
    groups["first_row"] = _before(groups["rows"])
    parts["first_row"] = _before(parts["rows"]) - groups["first_row"][parts["row_group"]]
    return SegmentDirectory(topic, groups, parts)


def encode_directory(directory: SegmentDirectory) -> str:
    """The text that stands in the file's metadata."""
    groups = pack_table({name: directory.groups[name] for name in _STORED_GROUP})
    parts = pack_table({name: directory.parts[name] for name in _STORED_PART})
    return base64.b64encode(wrap(pack([directory.topic, groups, parts]))).decode()


def decode_directory(text: bytes, *, key: str, position: int) -> SegmentDirectory:
    """``Corrupt`` unless it is one that makes sense; the footer's checksum must have been compared."""
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Corrupt("a segment's directory is not base64", key=key, position=position) from error
    content = unwrap(packed, key=key, position=position)
    value = unpack(content, what="a segment's directory", key=key, position=position)
    match value:
        case [str(topic), bytes(group_table), bytes(part_table)]:
            pass
        case _:
            raise Corrupt(
                "a segment's directory is malformed",
                key=key,
                position=position,
                expected="topic, row groups, parts",
            )
    tables, rests = [], 0
    for data, names, dtype in (
        (group_table, _STORED_GROUP, GROUP_DTYPE),
        (part_table, _STORED_PART, PART_DTYPE),
    ):
        columns, rest = unpack_table(data, names, key=key, position=position)
        tables.append(narrow(columns, dtype, what="a segment's directory", key=key, position=position))
        rests += len(rest)
    groups, parts = tables
    fault = "bytes behind a table" if rests else _fault(groups, parts)
    if fault is not None:
        raise Corrupt("a segment's directory makes no sense", key=key, position=position, found=fault)
    return with_places(topic, groups, parts)


def _before(lengths: npt.NDArray[Any]) -> Ints:
    sums: Ints = np.cumsum(lengths) - lengths
    return sums


def _fault(groups: npt.NDArray[Any], parts: npt.NDArray[Any]) -> str | None:
    """What is wrong with the two tables, or ``None``."""
    if not len(groups) or not len(parts):
        return "no row group, or no part"
    counts = [t[n] for t in (groups, parts) for n in ("rows", "bytes")] + [groups["stored_length"]]
    if any(c.min() < 1 or c.max() > _MOST or len(c) > 1 << 22 for c in counts):
        return "counts out of bounds"
    steps = np.diff(parts["row_group"], prepend=-1), np.diff(parts["run"], prepend=-1)
    if (
        any(s.min() < 0 or s.max() > 1 or s[0] != 1 for s in steps)
        or parts["row_group"][-1] != len(groups) - 1
    ):
        return "numbers of row groups or runs"
    first = np.flatnonzero(steps[0])
    for name in ("rows", "bytes"):
        if (np.add.reduceat(parts[name], first) != groups[name]).any():
            return f"{name} of parts and of their row group"
    return None
