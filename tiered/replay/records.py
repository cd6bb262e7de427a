"""An archived record as a message to a retry topic. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tiered.codec.record.layout import SYS_COMPRESSED, SYS_INNER_BATCH
from tiered.codec.record.message import Message, decode_message
from tiered.replay.base import RETRY_PREFIX
from tiered.replay.broker import Code
from tiered.replay.client import Request

PRODUCER_GROUP = "CID_TIERED_REPLAY"
"""What the broker's lists show as the sender."""

KEPT_SYS_FLAGS = SYS_COMPRESSED | 0x2 | 0x700
"""Compressed, many tags, kind of compression. What a transaction or an address made of the record does not travel."""

ORIGIN_GROUP = "ORIGIN_GROUP"
"""A property of the broker's own: with the group's name in it, a message to a retry topic wakes POPs that wait (5.5; older
brokers let them time out first, which takes some seconds)."""

MAX_PROPERTIES_BYTES = 32_767
"""A record's properties have at most this many; more, and the broker refuses the message for good."""
BROKERS_BYTES = 1024
"""Room left for what the broker adds to them."""

_DROPPED = frozenset(
    {"TRAN_MSG", "PGROUP", "DELAY", "WAIT", "INNER_NUM", "CLUSTER", "POP_CK", "__CRC32#", ORIGIN_GROUP}
)
_DROPPED_PREFIX = "TIMER_"


def request_for(record: bytes | memoryview, group: str, topic: str) -> Request | None:
    """The request (10) that stores the message again in ``topic``, queue 0: same body, flag, compression, birth and properties.

    ``topic`` is the retry topic of ``group``. What would delay it or send it elsewhere is left out. From a retry topic it
    keeps how often it was tried. ``None`` for a batch that the broker keeps as one record: no retry topic holds such.
    ``Corrupt`` if the record is none.
    """
    message = decode_message(record)
    if message.sys_flag & SYS_INNER_BATCH:
        return None
    ext = {
        "producerGroup": PRODUCER_GROUP,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 1,
        "queueId": 0,
        "sysFlag": message.sys_flag & KEPT_SYS_FLAGS,
        "bornTimestamp": message.born_timestamp,
        "flag": message.flag,
        "properties": _with_origin(properties_text(message.properties), group),
        "reconsumeTimes": tries(message),
        "unitMode": False,
        "batch": False,
    }
    return Request(Code.SEND_MESSAGE, ext, message.body)


def properties_text(properties: Mapping[str, str]) -> str:
    """The properties that travel, as a send carries them."""
    return "".join(
        f"{name}\x01{value}\x02"
        for name, value in properties.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIX)
    )


def _with_origin(properties: str, group: str) -> str:
    """The properties, and the group's name if there is room for it: waking POPs that wait is worth no message."""
    origin = f"{ORIGIN_GROUP}\x01{group}\x02"
    size = len(properties.encode("utf-8", "replace")) + len(origin.encode())
    return properties + origin if size <= MAX_PROPERTIES_BYTES - BROKERS_BYTES else properties


def tries(message: Message) -> int:
    """How often the group tried it before: never, unless it comes from a retry topic."""
    return message.reconsume_times if message.topic.startswith(RETRY_PREFIX) else 0
