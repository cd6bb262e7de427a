"""What the gateway asks of the archive: small ports, all of which ``MessageStore`` is; there and in ``store.base`` is what the
verbs mean."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from tiered.archive.read.lookup import Located
from tiered.archive.state.values import QueueState
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.storagelevels import StorageLevel
from tiered.model import (
    ArchiveCommit,
    GetMessageResult,
    MessageQueue,
    PhysicalOffset,
    Progress,
)
from tiered.store.base import MessageLookups, MessageReads, QueueBounds


class KnownArchive(Protocol):
    """What is known of the archive without a request, and looks for what is new. The event loop may ask all but ``follow``."""

    def known(self, queue: MessageQueue) -> QueueState | None: ...

    def progress(self) -> Progress | None: ...

    def place(self) -> ArchiveCommit | None: ...

    def physical_floor(self, queue: MessageQueue, offset: int) -> PhysicalOffset | None: ...

    def storage_level(self, topic: str) -> StorageLevel: ...

    def follow(self) -> bool: ...

    def follow_if_older(self) -> Future[bool]: ...


class PullArchive(KnownArchive, MessageReads, Protocol):
    """What pulls are answered from. The event loop may ask ``get_message_at_once``, too."""

    def get_message_at_once(self, pull: Pull) -> GetMessageResult | None: ...


class ReadersArchive(Protocol):
    """Who reads what, for what the cache keeps. Never waits."""

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None: ...

    def alive(self, reader: ReaderId) -> None: ...

    def forget(self, reader: ReaderId) -> None: ...


class BoundsArchive(KnownArchive, QueueBounds, Protocol):
    """Offsets and times of queues. Blocks."""


class LookupArchive(MessageLookups, Protocol):
    """Single messages. Blocks."""


class ComparedArchive(KnownArchive, Protocol):
    """Single messages by where they lie, to compare with the broker's. Blocks."""

    def newest(self) -> Located | None: ...

    def locate(self, physical_offset: int) -> Located | None: ...


class GatewayArchive(PullArchive, BoundsArchive, ReadersArchive, LookupArchive, ComparedArchive, Protocol):
    """All of these ports: what a part that hands them on to others takes."""
