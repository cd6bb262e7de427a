"""The port by which a destination is read back: optional for drivers, and only for comparing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Ints
from tiered.errors import Refused
from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch, SinkPosition

if TYPE_CHECKING:
    from tiered.sink.kinds import SinkKind, SinkPlace
    from tiered.sink.order import SinkOrder

Digests = npt.NDArray[np.uint64]

ANOTHER_SINKS = 0
"""The origin of a message that is another sink's, by its own word: it is counted, and not compared."""


class Marks(NamedTuple):
    """What messages are compared by, a row for each, in order. ``queue`` points into ``queues``; ``origin``: digest of the
    offset message id, which no two messages of a broker's log share; ``content``: digest of the body and the properties."""

    queues: tuple[MessageQueue, ...]
    queue: Ints
    queue_offset: Ints
    origin: Digests
    content: Digests


class ReadBack(Protocol):
    """A destination opened for reading alone. One thread. Errors: ``Unavailable``, ``Invalid`` (rights), ``Corrupt``.

    ``ordered``: whether the destination keeps an order of messages, which ``read`` then follows.
    """

    ordered: bool

    def position(self) -> SinkPosition | None:
        """How far the destination says that it is; ``None``: it keeps nothing. Asked before ``read``, and takes the sink from
        nobody."""
        ...

    def target(self, queue: MessageQueue) -> MessageQueue:
        """What a queue of the source is called in marks."""
        ...

    def lane(self, queue: MessageQueue) -> str:
        """What has to be read for a queue (``target``): queues of one lane are best read together, by one reader."""
        ...

    def given(self, batch: SinkBatch) -> Marks:
        """The marks that a reader must find of a batch."""
        ...

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        """Marks of all messages of these queues (``target``) that are there when it begins; perhaps of others, and of later
        ones. Each part is small: some thousands of messages."""
        ...

    def buried(self) -> Iterator[Marks]:
        """The same of messages that went to the place for what the destination cannot take; their content does not count."""
        ...

    def begins_late(self, queue: MessageQueue) -> bool:
        """Once ``read`` has begun: whether the destination may have deleted the first messages of a queue (``target``)."""
        ...

    def unread(self) -> str | None:
        """After ``read``: what of the destination could not be read, in words."""
        ...

    def close(self) -> None:
        """Let go. Raises nothing."""
        ...


@runtime_checkable
class ReadableKind(Protocol):
    """A kind of destination that can be read back."""

    def read_back(self, order: SinkOrder, place: SinkPlace) -> ReadBack:
        """``Refused`` where this order's destination cannot be compared; else errors as of ``SinkKind.open``."""
        ...


def open_read_back(kind: SinkKind, order: SinkOrder, place: SinkPlace) -> ReadBack:
    """A destination for reading. ``Refused`` if its kind cannot."""
    if not isinstance(kind, ReadableKind):
        raise cannot_be_read(order.kind)
    return kind.read_back(order, place)


def cannot_be_read(kind: str) -> Refused:
    """What to say of a kind without a way back."""
    return Refused(
        "what this kind of sink was given cannot be read back, so nothing can be compared", kind=kind,
        hint="compare at the receiver: each message names its topic, queue_id and queue_offset",
    )  # fmt: skip
