"""Value types that every floor shares: queues, the three offsets, ranges, addresses of archived rows.

Offsets are three different spaces and three NewTypes, so that a type checker stops the classic mix-up.
Ranges are half-open; absence is ``None``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, NewType, overload

from msgspec import Struct, field

PhysicalOffset = NewType("PhysicalOffset", int)
"""Byte position in the broker's commitlog, within one lineage."""

QueueOffset = NewType("QueueOffset", int)
"""Position of a message in its queue (RocketMQ's logical offset)."""

OFF_QUEUE_TOPIC = "!off-queue"
"""Hidden topic, queue 0, for prepared and rollback records: they own no queue offset in the broker."""


class MessageQueue(Struct, frozen=True, order=True, gc=False):
    """A queue of this broker: RocketMQ's (topic, queue id). It is the key of most look-ups, so its hash and its comparison are
    no calls of Python's; and no tuple, which JSON would take for a list."""

    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Half-open range of bytes [start, end)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"bad byte range [{self.start}, {self.end})")

    @property
    def length(self) -> int:
        """Bytes covered."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything of ``lineage`` below ``physical_offset`` is archived, excluded or inside a PhysGap.

    ``mark_crc`` is the CRC32C from ``crc_from`` to ``physical_offset`` (DESIGN.md, "Marks").
    """

    lineage: int
    physical_offset: int
    mark_crc: int
    crc_from: int


class RunId(Struct, frozen=True, gc=False):
    """A run's identity: the commit that appended it and its number among that commit's runs."""

    commit_seq: int
    index: int


class ObjectRef(Struct, frozen=True, gc=False):
    """An object's identity in the fold: the commit that added it and its number among that commit's objects."""

    commit_seq: int
    index: int


class GetMessageStatus(Enum):
    """How a read went, by RocketMQ's names. None of these is an error."""

    FOUND = "found"
    NO_MATCHED_MESSAGE = "no matched message"  # messages are there, the filter took none
    MESSAGE_WAS_REMOVING = "message was removing"  # deleted while it was read
    OFFSET_FOUND_NULL = "offset found null"  # a hole: archived neither here nor ever
    OFFSET_OVERFLOW_BADLY = "offset overflow badly"  # beyond the end by more than one
    OFFSET_OVERFLOW_ONE = "offset overflow one"  # exactly at the end
    OFFSET_TOO_SMALL = "offset too small"
    NO_MATCHED_LOGIC_QUEUE = "no matched logic queue"  # no such queue
    NO_MESSAGE_IN_QUEUE = "no message in queue"


class BoundaryType(Enum):
    """Which of the messages of one store time a search by time means: the first, or the last."""

    LOWER = "lower"
    UPPER = "upper"


class Records(Sequence[memoryview]):
    """Stored records verbatim, in order: a few stretches of memory in which records lie back to back, cut into records only
    when somebody asks for them one by one. Immutable; equal to any sequence of equal records.

    ``chunks``: the stretches, none empty. ``edges``: for each, where its records begin in it, from 0 on, and its end.
    """

    __slots__ = ("_counts", "_edges", "_size_bytes", "chunks")

    def __init__(self, chunks: Sequence[memoryview] = (), edges: Sequence[Sequence[int]] = ()) -> None:
        self.chunks = tuple(chunks)
        self._edges = tuple(edges)
        self._counts: list[int] = []  # records in this chunk and those before it
        count = 0
        for bounds in self._edges:
            count += len(bounds) - 1
            self._counts.append(count)
        self._size_bytes = sum(map(len, self.chunks))

    @classmethod
    def of(cls, records: Sequence[memoryview]) -> Records:
        """From records that lie apart."""
        return cls(records, [(0, len(record)) for record in records])

    @property
    def size_bytes(self) -> int:
        """Bytes of all records."""
        return self._size_bytes

    def within(self, count: int, size_bytes: int) -> Records:
        """The first ones, at most ``count`` and ``size_bytes``; but at least one, if there is one."""
        if len(self) <= count and self._size_bytes <= size_bytes:
            return self
        kept = size = 0
        for bounds in self._edges:
            fit = bisect_right(bounds, size_bytes - size) - 1
            kept += fit
            size += bounds[fit]
            if fit < len(bounds) - 1:
                break
        return self[: max(1, min(kept, count))]

    def __len__(self) -> int:
        return self._counts[-1] if self._counts else 0

    def __iter__(self) -> Iterator[memoryview]:
        for chunk, bounds in zip(self.chunks, self._edges, strict=True):
            for begin, end in pairwise(bounds):
                yield chunk[begin:end]

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> Records: ...

    def __getitem__(self, index: int | slice) -> memoryview | Records:
        if isinstance(index, slice):
            first, end, step = index.indices(len(self))
            return self._between(first, end) if step == 1 else Records.of(list(self)[index])
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        at = bisect_right(self._counts, number)
        bounds = self._edges[at]
        row = number - (self._counts[at - 1] if at else 0)
        return self.chunks[at][bounds[row] : bounds[row + 1]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Records({len(self)} of {self._size_bytes} bytes)"

    def _between(self, first: int, end: int) -> Records:
        chunks, edges, before = [], [], 0
        for chunk, bounds, after in zip(self.chunks, self._edges, self._counts, strict=True):
            low, high = max(first, before) - before, min(end, after) - before
            if low < high:
                base = bounds[low]
                chunks.append(chunk[base : bounds[high]])
                edges.append([edge - base for edge in bounds[low : high + 1]])
            before = after
        return Records(chunks, edges)


class ArchiveCommit(NamedTuple):
    """A commit of an archive: the archive's id (16 bytes) and the commit's number."""

    archive_id: bytes
    commit: int


class GetMessageResult(Struct, frozen=True):
    """RocketMQ's answer to a pull: ``records`` are the stored records verbatim, in queue order, with their queue offsets.

    ``next_begin_offset`` is where to go on; ``min_offset``/``max_offset`` are the archive's own, half-open.
    """

    status: GetMessageStatus
    next_begin_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: Records = field(default_factory=Records)
    queue_offsets: tuple[QueueOffset, ...] = ()

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all records."""
        return self.records.size_bytes


@dataclass(frozen=True, slots=True)
class CompactedPage:
    """``records``: those that compaction keeps at ``commit``, from where they were asked for, each with its first offset.

    The next page begins at ``next_offset``; ``last``: it is the queue's end at that commit, which begins at ``min_offset``.
    """

    commit: int
    min_offset: int
    next_offset: int
    last: bool
    records: Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Past:
    """Which archive is meant: as it was after a commit, or at a time of the store in ms since 1970. One of them."""

    commit: int | None = None
    time_ms: int | None = None
