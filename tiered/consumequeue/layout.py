"""Keys and values of the consume-queue index.

A *chunk* is up to ``CHUNK_ROWS`` consecutive messages of one queue as columns. Its *head* has a key of its own beside it,
so that a search by time reads heads alone, hundreds of which share a block of the engine. Each queue has a *tail*: its first
offset, and the head of its last chunk once more, so that appending to ten thousand queues is one look-up of many keys.

Keys: kind (one byte), length of the topic (two bytes), the topic, queue id (four bytes), and for heads and columns the
chunk's first queue offset (eight bytes); numbers are big-endian, so that keys of a queue stand in the order of its offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Ints
from tiered.errors import Corrupt

_STAMP = "consumequeue 1"
CHUNK_ROWS = 1024
TAIL, HEAD, COLUMNS = b"t", b"h", b"c"

_TOPIC_LENGTH = struct.Struct(">H")
_QUEUE_ID = struct.Struct(">I")
_OFFSET = struct.Struct(">Q")
_COVERAGE = struct.Struct("<IQQ")

HEAD_DTYPE = np.dtype(
    [
        ("end", "<i8"),  # queue offset behind the last message
        ("rows", "<i8"),
        ("min_time", "<i8"),  # store times of the chunk, ms
        ("max_time", "<i8"),
        (
            "running_max",
            "<i8",
        ),  # of this chunk and all before it: it never falls, so a search by time is a bisection
        ("first_physical", "<i8"),
        ("end_physical", "<i8"),  # behind the last message
    ]
)
TAIL_DTYPE = np.dtype(
    [("first", "<i8"), ("chunk_first", "<i8"), ("running_before", "<i8"), ("head", HEAD_DTYPE)]
)

_SPARSE, _TAGGED = 1, 2
"""Bits of a chunk's first byte: columns of offsets (they do not follow each other one by one), a column of tags codes."""
_BARE = bytes(8)
NO_TIME = -(1 << 62)
"""Before any store time."""


@dataclass(frozen=True, slots=True)
class IndexedRange:
    """Physical range [begin, end) of one lineage whose messages are in the index."""

    lineage: int
    begin: int
    end: int

    def encode(self) -> bytes:
        return _COVERAGE.pack(self.lineage, self.begin, self.end)

    @classmethod
    def decode(cls, data: bytes) -> IndexedRange:
        """``Corrupt`` if that is no coverage."""
        if len(data) != _COVERAGE.size:
            raise Corrupt("the consume-queue index names no range of the log", found=data.hex())
        return cls(*_COVERAGE.unpack(data))


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Messages of one queue, in order, or of many back to back. ``owned``: how many queue offsets each has."""

    offset: Ints
    owned: Ints
    physical: Ints
    size: Ints
    tags_code: Ints
    time: Ints

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, at: Any) -> QueueRows:
        """The rows at these positions, or in this slice."""
        return QueueRows(
            self.offset[at],
            self.owned[at],
            self.physical[at],
            self.size[at],
            self.tags_code[at],
            self.time[at],
        )

    @classmethod
    def none(cls) -> QueueRows:
        """No message."""
        return cls(*(np.empty(0, np.int64) for _ in range(6)))

    @classmethod
    def join(cls, parts: Sequence[QueueRows]) -> QueueRows:
        """All rows, back to back."""
        names = ("offset", "owned", "physical", "size", "tags_code", "time")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def stamp_of(archive_id: bytes) -> str:
    """What a store of the index is stamped with: one of another archive, or of another layout, is emptied."""
    return f"{_STAMP} {archive_id.hex()}"


def queue_key(topic: str, queue_id: int) -> bytes:
    """What all keys of a queue have in common behind their kind."""
    name = topic.encode()
    return _TOPIC_LENGTH.pack(len(name)) + name + _QUEUE_ID.pack(queue_id & 0xFFFFFFFF)


def chunk_key(kind: bytes, queue: bytes, first: int) -> bytes:
    """Key of a head or of columns."""
    return kind + queue + _OFFSET.pack(first)


def first_of(key: bytes) -> int:
    """The first queue offset of a chunk, of its key."""
    found: int = _OFFSET.unpack(key[-_OFFSET.size :])[0]
    return found


def queue_of(key: bytes) -> bytes:
    """The queue of a tail's key."""
    return key[len(TAIL) :]


def encode_columns(rows: QueueRows) -> bytes:
    """The columns of one chunk: those that say nothing are left out."""
    count, tagged = len(rows), bool(rows.tags_code.any())
    sparse = bool(rows.offset[-1] - rows.offset[0] != count - 1 or rows.owned[-1] != 1)
    kinds = (_SPARSE if sparse else 0) | (_TAGGED if tagged else 0)
    parts = [
        bytes((kinds,)) + _BARE[1:],  # so that the columns are aligned
        np.ascontiguousarray(rows.physical, "<i8").tobytes(),
        np.ascontiguousarray(rows.time, "<i8").tobytes(),
    ]
    if tagged:
        parts.append(np.ascontiguousarray(rows.tags_code, "<i8").tobytes())
    if sparse:
        parts.append(np.ascontiguousarray(rows.offset, "<i8").tobytes())
    parts.append(np.ascontiguousarray(rows.size, "<i4").tobytes())
    if sparse:
        parts.append(np.ascontiguousarray(rows.owned, "<i4").tobytes())
    return b"".join(parts)


def decode_columns(data: bytes, first: int, rows: int) -> QueueRows:
    """The columns of a chunk that has so many rows. ``Corrupt`` if there are not so many."""
    kinds = data[0] if data else 0
    sparse, tagged = bool(kinds & _SPARSE), bool(kinds & _TAGGED)
    if rows < 1 or len(data) != 8 + rows * (20 + 8 * tagged + 12 * sparse):
        raise Corrupt(
            "a chunk of the consume-queue index has another length", expected_rows=rows, found=len(data)
        )
    at = 8

    def column(dtype: str) -> npt.NDArray[Any]:
        nonlocal at
        found = np.frombuffer(data, dtype, rows, at)
        at += found.nbytes
        return found

    physical, time = column("<i8"), column("<i8")
    tags_code = column("<i8") if tagged else np.zeros(rows, np.int64)
    offset = column("<i8") if sparse else first + np.arange(rows)
    size = column("<i4").astype(np.int64)
    owned = column("<i4").astype(np.int64) if sparse else np.ones(rows, np.int64)
    return QueueRows(offset, owned, physical, size, tags_code, time)
