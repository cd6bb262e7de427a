"""What stands in the line of commits, and what becomes of it: a flush, its objects, its proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from tiered.archive.log.planned import Place, PlannedCommit
from tiered.archive.log.resending import ResendEvents
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditBatch
from tiered.codec.format.object import EncodedObject
from tiered.codec.types import Buffer, Ints
from tiered.errors import TieredError
from tiered.model import PhysicalOffset


class Priority(IntEnum):
    """Who gets the next place in the log: the smallest first, and those of one priority in the order they came."""

    ARCHIVE = 0  # what the broker wrote, and the gaps and rewinds in it
    READS = 1  # how far those are who read the archive
    SEALING = 2  # merges, seals, retention


@dataclass(frozen=True, slots=True)
class DataObject:
    """An object of a flush: ``path`` (under the broker's root) is empty for data that travels inside the commit.

    ``there``: it was put before the flush came into the line, because that takes long; it is only put again if it is lost.
    """

    path: str
    object_id: bytes
    encoded: EncodedObject
    there: bool = False


@dataclass(frozen=True, slots=True)
class DispatchOffsets:
    """End of the queue offsets taken of each queue, by topic and queue id."""

    topics: tuple[str, ...]
    queue_ids: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class FlushStatistics:
    """Figures of what a flush archives, for metrics. ``store_times``: of every record in ms, for latency."""

    record_bytes: int
    store_times: Ints
    gaps: int
    generations: int
    aliases: int = 0


@dataclass(frozen=True, slots=True)
class Flush:
    """What one commit is made of: its edits and the objects that they name.

    ``next_offset``: the hold is released up to it once this is proven; ``None`` releases nothing. ``first_seen``: when its
    first record was read, by the monotonic clock. ``messages``: those it archives; ``raw_bytes``: its part of the commitlog,
    excluded records too.
    """

    edits: Sequence[EditBatch]
    next_offset: PhysicalOffset | None
    first_seen: float
    messages: int = 0
    raw_bytes: int = 0
    objects: tuple[DataObject, ...] = ()
    dispatch_offsets: DispatchOffsets | None = None
    archived: FlushStatistics | None = None
    priority: Priority = Priority.ARCHIVE

    @property
    def inline(self) -> list[Buffer]:
        """The data that travels inside the commit."""
        return [part for item in self.objects if not item.path for part in item.encoded.parts]

    @property
    def uploads(self) -> list[DataObject]:
        """The objects that are put before the commit."""
        return [item for item in self.objects if item.path]

    def settle(self, place: Place, fold: ArchiveState) -> Flush:
        """This flush: it is the same wherever it stands."""
        return self


class Unsettled(Protocol):
    """What may stand in the line: a ``Flush``, or what becomes one when its turn comes."""

    @property
    def messages(self) -> int:
        """How many messages it archives."""
        ...

    @property
    def raw_bytes(self) -> int:
        """Bytes of the commitlog that it covers, excluded records too."""
        ...

    @property
    def priority(self) -> Priority:
        """Before whom it gets its place."""
        ...

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The flush at this place, on top of the fold as it will be then. It may be asked again after an error.

        ``None``: what it was made from has changed meanwhile, and there is nothing to commit.
        """
        ...


@dataclass(frozen=True, slots=True)
class Proven:
    """One flush became real: its commit, and the store's time of it."""

    flush: Flush
    commit: PlannedCommit
    store_time_ms: int


class Riders(Protocol):
    """Who has edits that no commit is made for, and that any may carry."""

    def riding(self, fold: ArchiveState, edits: Sequence[EditBatch]) -> Sequence[EditBatch]:
        """What a commit of these edits on top of this fold is to carry as well. It may be asked again for the same place."""
        ...

    def refused(self, error: TieredError) -> None:
        """The fold does not take that: the commit is made without it, and nothing may ride any more."""
        ...


class LineEvents(ResendEvents, Protocol):
    """Who hears what becomes of commits."""

    def proven(self, event: Proven) -> None:
        """A flush of the line became real."""
        ...
