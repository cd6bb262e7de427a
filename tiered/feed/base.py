"""Where a follower of the log stands, and what it is given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tiered.codec.record.batch import MessageBatch
from tiered.errors import Corrupt
from tiered.model import MessageQueue, PhysicalOffset


class LogAnchor(NamedTuple):
    """Bytes right before a position, as a rule the last record: where they lie, how many, their CRC-32C. By it a log is known
    again."""

    start: int
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """Everything of the live log below ``physical`` was given; ``None``: the archive is still being read.

    ``anchor``: ``None`` where nothing of this log was seen yet. ``lacks``: up to there something was passed over, because the
    log no longer has it and no archive is named; what a queue had there shows only in what follows. ``None``: nothing was.
    """

    physical: PhysicalOffset | None = None
    anchor: LogAnchor | None = None
    lacks: PhysicalOffset | None = None

    def encode(self) -> bytes:
        """As it is stored."""
        lacks = {} if self.lacks is None else {"lacks": self.lacks}
        return json.dumps({"physical": self.physical, "anchor": self.anchor, **lacks}).encode()

    @classmethod
    def decode(cls, stored: bytes | None) -> FeedPosition:
        """The position stored; the beginning for ``None``. ``Corrupt``."""
        if stored is None:
            return cls()
        try:
            told = json.loads(stored)
            physical, anchor, lacks = told["physical"], told["anchor"], told.get("lacks")
            return cls(
                None if physical is None else PhysicalOffset(int(physical)),
                None if anchor is None else LogAnchor(*map(int, anchor)),
                None if lacks is None else PhysicalOffset(int(lacks)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(
                "the position of a follower of the log cannot be read",
                found=ascii(stored[:80]),
                hint="delete the directory of its store: it is made again",
            ) from error


@dataclass(frozen=True, slots=True)
class Follow:
    """How far a follower is in one queue: the ``next`` offset that it wants, and where the record of the one before it lies in
    the broker's log, and when it was stored (``None``: not known). By these a queue that began anew is told from one that goes
    on: what came in place of a tail that the broker lost may lie where that lay."""

    next: int = 0
    physical: int | None = None
    stored_ms: int | None = None


class Passed(NamedTuple):
    """What was not given of a queue below ``end`` cannot be had."""

    queue: MessageQueue
    end: int


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """Messages of followed topics, verbatim, in the order of each of their queues; perhaps none.

    ``position``: where a follower stands once it has done with them; stored together with what it did. ``anew``: the queue that
    these messages begin again, from another life of its topic. ``lost``: why the queue's messages before these
    cannot be had, which is for the follower to tell. ``passed``: where no message of the queue follows that would show it.
    """

    messages: MessageBatch
    position: FeedPosition
    anew: MessageQueue | None = None
    lost: str | None = None
    passed: Passed | None = None


class MessageFeed(Protocol):
    """Messages in order. One thread. Errors: ``Unavailable`` (log or archive away), ``Corrupt``."""

    def poll(self) -> FeedBatch | None:
        """What comes next; ``None`` at the end of what there is now."""
        ...

    def end(self) -> PhysicalOffset:
        """Where the live log ends now: any thread may ask."""
        ...

    def looked_seconds(self) -> float:
        """How long ago it looked where the end is that ``poll`` is at when it gives nothing."""
        ...

    @property
    def waiting(self) -> str | None:
        """Why nothing comes although this is not the log's end; ``None``: it is, or something came."""
        ...
