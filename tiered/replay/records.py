"""An archived record as a message to a retry topic. Pure."""

from __future__ import annotations

from tiered.broker.client import Request
from tiered.broker.send import ANOTHER_DELIVERY, KEPT_SYS_FLAGS, ORIGIN_GROUP, Sending, properties_text
from tiered.codec.record.layout import SYS_INNER_BATCH
from tiered.codec.record.message import MAX_PROPERTIES_BYTES, Message, decode_message
from tiered.replay.base import RETRY_PREFIX

PRODUCER_GROUP = "CID_TIERED_REPLAY"
"""What the broker's lists show as the sender."""

BROKERS_BYTES = 1024
"""Room left for what the broker adds to them."""


def request_for(record: bytes | memoryview, group: str, topic: str) -> Request | None:
    """The request (10) that stores the message again in ``topic``, queue 0: same body, flag, compression, birth and properties.

    ``topic`` is the retry topic of ``group``. What would delay it or send it elsewhere is left out. From a retry topic it
    keeps how often it was tried. ``None`` for a batch that the broker keeps as one record: no retry topic holds such.
    ``Corrupt`` if it is not a record.
    """
    message = decode_message(record)
    if message.sys_flag & SYS_INNER_BATCH:
        return None
    return Sending(
        topic,
        0,
        message.body,
        _with_origin(properties_text(message.properties, ANOTHER_DELIVERY), group),
        PRODUCER_GROUP,
        sys_flag=message.sys_flag & KEPT_SYS_FLAGS,
        flag=message.flag,
        born_ms=message.born_timestamp,
        reconsume_times=tries(message),
        queues_if_new=1,
    ).request()


def _with_origin(properties: str, group: str) -> str:
    """The properties, and the group's name if there is room for it: no message is lost to wake POPs that wait."""
    origin = f"{ORIGIN_GROUP}\x01{group}\x02"
    size = len(properties.encode("utf-8", "replace")) + len(origin.encode())
    return properties + origin if size <= MAX_PROPERTIES_BYTES - BROKERS_BYTES else properties


def tries(message: Message) -> int:
    """How often the group tried it before: never, unless it comes from a retry topic."""
    return message.reconsume_times if message.topic.startswith(RETRY_PREFIX) else 0
