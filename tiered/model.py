"""Value types that every floor shares: queues, the three offsets, ranges, addresses of archived rows.

Offsets are three different spaces and three NewTypes, so that a type checker stops the classic mix-up.
Ranges are half-open; absence is ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Byte position in the broker's commitlog, within one lineage."""

QueueOffset = NewType("QueueOffset", int)
"""Position of a message in its queue (RocketMQ's logical offset)."""

FlatOffset = NewType("FlatOffset", int)
"""Byte position in a queue's own flat commitlog (RocketMQ tieredstore's re-based offset)."""

OFF_QUEUE_TOPIC = "!off-queue"
"""Hidden topic, queue 0, for prepared and rollback records: they own no queue offset in the broker."""


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """A queue of this broker: RocketMQ's (topic, queue id)."""

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

    ``mark_crc`` is the CRC32C from ``crc_from`` to ``physical_offset`` (archive.md, section 4, Marks).
    """

    lineage: int
    physical_offset: int
    mark_crc: int
    crc_from: int


@dataclass(frozen=True, slots=True)
class RunId:
    """A run's identity: the commit that appended it and its number among that commit's runs."""

    commit_seq: int
    index: int


@dataclass(frozen=True, slots=True)
class ObjectRef:
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


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """RocketMQ's answer to a pull: ``records`` are the stored records verbatim, in queue order, with their queue offsets.

    ``next_begin_offset`` is where to go on; ``min_offset``/``max_offset`` are the archive's own, half-open.
    """

    status: GetMessageStatus
    next_begin_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: tuple[memoryview, ...] = ()
    queue_offsets: tuple[QueueOffset, ...] = ()

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all records."""
        return sum(map(len, self.records))
