"""Packed records of the fold's ordered map.

Queues and runs are fixed-size little-endian structs, one field list each, from which both the numpy dtype
(ten thousand at once) and the ``struct`` layout (one at once) are made. Everything rarer is msgpack. The
layouts are part of the checkpoint format (``CHECKPOINT.md``); change one and ``FOLD_VERSION`` changes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_not
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from tiered.errors import Corrupt

FOLD_VERSION = 1
"""Of keys, records and rules. A cached fold or checkpoint of another version is not used."""

NO_TIME_LOW = 2**63 - 1
NO_TIME_HIGH = -(2**63)
"""Minimum and maximum store time of nothing."""

OPEN = -1
"""``closed_by`` of a live run, in the packed record only."""

_STRUCT_CODE = {"<i4": "i", "<i8": "q", "<u4": "I"}

QUEUE_FIELDS: tuple[tuple[str, str], ...] = (
    ("generation", "<i4"),  # 0: none is current
    ("highest_generation", "<i4"),  # of the queue; meaningful under ``q`` only
    ("lineage", "<i4"),
    ("first_offset", "<i8"),  # where the generation began
    ("birth_physical", "<i8"),
    ("min_offset", "<i8"),
    ("max_offset", "<i8"),
    ("flat_end", "<i8"),
    ("last_physical_end", "<i8"),
    ("min_store_time", "<i8"),
    ("max_store_time", "<i8"),
    ("messages", "<i8"),
    ("bytes", "<i8"),
    ("runs", "<i8"),
)
RUN_FIELDS: tuple[tuple[str, str], ...] = (
    ("commit_seq", "<i8"),
    ("index", "<i4"),
    ("object", "<i4"),  # row among the commit's AddObject rows
    ("lineage", "<i4"),
    ("rows", "<u4"),
    ("first_row", "<u4"),
    ("first_block", "<u4"),
    ("block_count", "<u4"),
    ("queue_offsets", "<u4"),
    ("first_queue_offset", "<i8"),
    ("start", "<i8"),
    ("end", "<i8"),
    ("first_flat_offset", "<i8"),
    ("flat_end", "<i8"),
    ("min_store_time", "<i8"),
    ("max_store_time", "<i8"),
    ("physical_start", "<i8"),
    ("physical_end", "<i8"),
    ("closed_by", "<i8"),
)
QUEUE_DTYPE = np.dtype(list(QUEUE_FIELDS))
"""A queue's record: its current generation and the highest number ever used. Also what ``queue_table``
returns."""
RUN_RECORD_DTYPE = np.dtype(list(RUN_FIELDS))
"""A run's record, live or closed."""
QUEUE_STRUCT = struct.Struct("<" + "".join(_STRUCT_CODE[c] for _, c in QUEUE_FIELDS))
RUN_STRUCT = struct.Struct("<" + "".join(_STRUCT_CODE[c] for _, c in RUN_FIELDS))


@dataclass(slots=True)
class QueueRecord:
    """One unpacked ``QUEUE_DTYPE`` record, for the fold's rare paths."""

    generation: int = 0
    highest_generation: int = 0
    lineage: int = 0
    first_offset: int = 0
    birth_physical: int = 0
    min_offset: int = 0
    max_offset: int = 0
    flat_end: int = 0
    last_physical_end: int = 0
    min_store_time: int = NO_TIME_LOW
    max_store_time: int = NO_TIME_HIGH
    messages: int = 0
    bytes: int = 0
    runs: int = 0


@dataclass(slots=True)
class RunRecord:
    """One unpacked ``RUN_RECORD_DTYPE`` record, for the fold's rare paths."""

    commit_seq: int
    index: int
    object: int
    lineage: int
    rows: int
    first_row: int
    first_block: int
    block_count: int
    queue_offsets: int
    first_queue_offset: int
    start: int
    end: int
    first_flat_offset: int
    flat_end: int
    min_store_time: int
    max_store_time: int
    physical_start: int
    physical_end: int
    closed_by: int


def pack_queue(r: QueueRecord) -> bytes:
    """Stored form of a queue or generation."""
    return QUEUE_STRUCT.pack(*(getattr(r, n) for n, _ in QUEUE_FIELDS))


def pack_run(r: RunRecord) -> bytes:
    """Stored form of a run."""
    return RUN_STRUCT.pack(*(getattr(r, n) for n, _ in RUN_FIELDS))


def unpack_queue(value: bytes) -> QueueRecord:
    """``QueueRecord`` from its stored form; ``Corrupt`` on a wrong length."""
    return QueueRecord(*_unpack(QUEUE_STRUCT, value, "queue"))


def unpack_run(value: bytes) -> RunRecord:
    """``RunRecord`` from its stored form; ``Corrupt`` on a wrong length."""
    return RunRecord(*unpacked_run(value))


def unpacked_run(value: bytes) -> tuple[int, ...]:
    """The fields of a run, as in ``RUN_FIELDS``; ``Corrupt`` on a wrong length."""
    return _unpack(RUN_STRUCT, value, "run")


def _unpack(layout: struct.Struct, value: bytes, what: str) -> tuple[Any, ...]:
    if len(value) != layout.size:
        raise damaged(f"a {what} record", expected=f"{layout.size} bytes", found=f"{len(value)} bytes")
    return layout.unpack(value)


def table(values: Sequence[bytes], dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Records side by side as one writable array; ``Corrupt`` if any has another length."""
    joined = bytearray().join(values)
    if len(joined) != len(values) * dtype.itemsize:
        raise damaged(
            "a packed record", expected=f"{dtype.itemsize} bytes each", found=f"{len(joined)} in all"
        )
    return np.frombuffer(joined, dtype=dtype)


def damaged(what: str, *, expected: object, found: object) -> Corrupt:
    """The error for a cached fold whose records cannot be understood."""
    return Corrupt(
        f"{what} of the cached fold is damaged",
        hint="delete the metadata directory under state.directory: it is rebuilt from the bucket",
        expected=expected,
        found=found,
    )


@dataclass(slots=True)
class MarkIndex:
    """Which ordinals of a lineage's marks are kept: [first_mark, next_mark) and, one per file, [first_file,
    next_file)."""

    first_mark: int = 0
    next_mark: int = 0
    first_file: int = 0
    next_file: int = 0

    def pack(self) -> bytes:
        """The stored form."""
        return pack_value([self.first_mark, self.next_mark, self.first_file, self.next_file])


MARK_STRUCT = struct.Struct("<qIq")
"""Stored form of a mark: physical offset, CRC32C, crc_from."""


def pack_value(value: object) -> bytes:
    """msgpack of a rare record."""
    made: bytes = msgpack.packb(value)
    return made


def unpack_value(value: bytes) -> Any:
    """Inverse of ``pack_value``; ``Corrupt`` on damage."""
    try:
        return msgpack.unpackb(value, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as e:
        raise damaged("a record", expected="msgpack", found=repr(value[:40])) from e


def packed_table(values: Sequence[bytes | None]) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
    """Queue records side by side, zeros for ``None``; and which were there."""
    known = np.fromiter(map(is_not, values, repeat(None)), np.bool_, len(values))
    if known.all():
        return table(values, QUEUE_DTYPE), known  # type: ignore[arg-type]
    blank = bytes(QUEUE_DTYPE.itemsize)
    return table([blank if v is None else v for v in values], QUEUE_DTYPE), known
