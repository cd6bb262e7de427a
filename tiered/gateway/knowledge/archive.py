"""What the gateway asks of the archive: small ports, all of which ``MessageStore`` is; see there what the verbs mean."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from tiered.archive.read.lookup import KeyLookup, Located
from tiered.archive.state.values import QueueState
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.storagelevels import StorageLevel
from tiered.model import (
    ArchiveCommit,
    BoundaryType,
    GetMessageResult,
    MessageQueue,
    PhysicalOffset,
    Progress,
    QueueOffset,
)


class KnownArchive(Protocol):
    """What is known of the archive without a request, and looks for what is new. The event loop may ask all but ``follow``."""

    def known(self, queue: MessageQueue) -> QueueState | None: ...

    def progress(self) -> Progress | None: ...

    def place(self) -> ArchiveCommit | None: ...

    def physical_floor(self, queue: MessageQueue, offset: int) -> PhysicalOffset | None: ...

    def storage_level(self, topic: str) -> StorageLevel: ...

    def follow(self) -> bool: ...

    def follow_if_older(self) -> Future[bool]: ...


class PullArchive(KnownArchive, Protocol):
    """What pulls are answered from."""

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]: ...


class ReadersArchive(Protocol):
    """Who reads what, for what the cache keeps. Never waits."""

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None: ...

    def alive(self, reader: ReaderId) -> None: ...

    def forget(self, reader: ReaderId) -> None: ...


class BoundsArchive(KnownArchive, Protocol):
    """Offsets and times of queues. Blocks."""

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset | None: ...

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset | None: ...

    def earliest_message_time(self, topic: str, queue_id: int) -> int | None: ...

    def message_time(self, topic: str, queue_id: int, offset: int) -> int | None: ...

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> QueueOffset | None: ...


class LookupArchive(Protocol):
    """Single messages. Blocks."""

    def query_message(self, lookup: KeyLookup) -> list[memoryview]: ...

    def view_message(self, physical_offset: int) -> memoryview | None: ...


class ComparedArchive(KnownArchive, Protocol):
    """Single messages by where they lie, to compare with the broker's. Blocks."""

    def newest(self) -> Located | None: ...

    def locate(self, physical_offset: int) -> Located | None: ...


class GatewayArchive(PullArchive, BoundsArchive, ReadersArchive, LookupArchive, ComparedArchive, Protocol):
    """All of these ports: what a part that hands them on to others takes."""
