"""The border between compute and storage: what may be asked of a store of messages, whoever keeps them.

RocketMQ's own border is its ``MessageStore``: put, flush, get, query, load, recover, offsets. Here it has two sides (DESIGN.md,
"The border"). *Put* and *flush* are the broker's: whoever writes sends a message by remoting, and has it once the broker says
so. All other verbs are these, and everything that serves readers is written against them.

Offsets are queue offsets, times are ms since 1970, ranges are half-open. Errors of every verb: ``Unavailable`` (ask again) and
``Corrupt`` (damaged bytes are never given); an answer is never less than what is there because something failed. Threads: any;
what returns a ``Future`` never waits, all else may.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from tiered.archive.read.lookup import KeyLookup
from tiered.fetch.pull import Pull
from tiered.model import ArchiveCommit, BoundaryType, GetMessageResult, QueueOffset


class MessageReads(Protocol):
    """*get*: records of a queue from an offset on, or why there are none (``tiered.store.answer``)."""

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
        """The answer, or its error, through a future."""
        ...


class QueueBounds(Protocol):
    """*min and max offset*, and the times between them. ``None``: nothing is known of the queue, or no message is there."""

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """The first readable offset."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """One behind the last offset that is known."""
        ...

    def earliest_message_time(self, topic: str, queue_id: int) -> int | None:
        """Store time of the first readable message."""
        ...

    def message_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of the message at an offset."""
        ...

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> QueueOffset | None:
        """The first offset stored at or after a time (``UPPER``: the last of that very time); the end when all are older."""
        ...


class MessageLookups(Protocol):
    """*query*: single messages, by key and by where they lie in the log; records verbatim."""

    def query_message(self, lookup: KeyLookup) -> list[memoryview]:
        """Messages with a key, in the order in which they were stored."""
        ...

    def view_message(self, physical_offset: int) -> memoryview | None:
        """The record that begins at a physical offset; ``None`` if none begins there."""
        ...


class Recovery(Protocol):
    """*load* and *recover*: a store is opened where its log ends (``MessageStore.open``), holds nothing that the log does not,
    and catches up with it at any time."""

    def place(self) -> ArchiveCommit | None:
        """Up to where it knows the log; ``None``: the log is empty. Never waits."""
        ...

    def follow(self) -> bool:
        """Look whether the log went on; true if it did."""
        ...

    def reach(self, commit: int) -> Future[bool]:
        """Come to a commit or beyond it; whether it was come to."""
        ...


class StoreOfMessages(MessageReads, QueueBounds, MessageLookups, Recovery, Protocol):
    """The border as a whole. ``MessageStore`` is one, over an archive; ``LateStore`` one that is opened later. A read node has
    *get* of it over the wire, and is believed only where it gives something (docs/NODES.md)."""
