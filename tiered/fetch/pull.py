"""``Pull``: what a read of a queue asks for."""

from __future__ import annotations

from msgspec import Struct

from tiered.fetch.base import ReaderId
from tiered.filter.base import RowFilter
from tiered.model import MessageQueue
from tiered.settings import KIB

MAX_TRANSFER_BYTES = 256 * KIB
"""Most bytes of an answer unless told otherwise: RocketMQ's ``maxTransferBytesOnMessageInMemory``."""


class Pull(Struct, frozen=True):
    """Records of a queue from queue offset ``offset`` on, for ``reader``.

    At most ``max_count`` and ``max_bytes``, but at least one record if there is one, however large. ``row_filter``: ``None``
    takes all.
    """

    reader: ReaderId
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int = MAX_TRANSFER_BYTES
    row_filter: RowFilter | None = None

    @property
    def queue(self) -> MessageQueue:
        """The queue that is read."""
        return MessageQueue(self.topic, self.queue_id)
