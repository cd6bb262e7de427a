"""Messages that checks give to a sink: ordinary ones, many, and such as break programs that believe in good manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import scan
from tiered.codec.record.message import Message, encode_message
from tiered.sink.base import SinkBatch

MIB = 1 << 20
LARGE_BODY_BYTES = 4 * MIB
_FIRST_MS = 1_700_000_000_000

LEGAL_TOPICS = ("%RETRY%orders", "a|b", "A_b", "a-b", "UPPER", "upper", "t" * 127, "null", "CON", "-")
"""Names that brokers take."""
WILD_TOPICS = (
    "Grüße",
    "a/b",
    "..",
    "line\nbreak",
    "quote\"'",
    "semi;colon&x=1",
    "\u202egnissim",
    "tab\tand space",
)
"""Names that only an archive can hold: a sink gives such messages whole, or says ``Invalid``."""

HOSTILE_PROPERTIES: Mapping[str, str] = {
    "equals": "a=b", "separators": "a\x01b;c,d:e|f&g", "quotes": "\"'`\\", "lines": "a\r\nb\tc",
    "unicode": "Grüße \U0001f600 \u0000 \ufeff", "blank name ": " ", "Content-Length": "0", "x" * 300: "y" * 3000,
    "__proto__": "null", "TAGS": "tag with blank", "KEYS": "one two  three",
}  # fmt: skip
HOSTILE_BODIES = (
    b"", b"\0", b"\xff\xfe\x80", b"\n", b"\r\n{}\n", b"null", b"{\"a\": 1}", "Grüße".encode(),
    bytes(range(256)), b"\x1f\x8b\x08",
)  # fmt: skip


class Received(NamedTuple):
    """A message as a reader of the destination sees it; ``properties``: ``None`` if the destination does not carry them."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: Mapping[str, str] | None


def message_of(
    topic: str,
    queue_id: int,
    queue_offset: int,
    body: bytes,
    properties: Mapping[str, str] | None = None,
    *,
    physical: int = 0,
) -> Message:
    """A message of a sample."""
    given = {"UNIQ_KEY": f"{queue_id:08X}{queue_offset:024X}", **(properties or {})}
    time = _FIRST_MS + queue_offset
    return Message(
        topic, queue_id, queue_offset, physical, body, given, born_timestamp=time, store_timestamp=time
    )


def batch_of(messages: Sequence[Message], rows: Sequence[int] | None = None) -> tuple[SinkBatch, bytearray]:
    """A batch of these messages, or of these rows of them; and its buffer, which may change once they are flushed."""
    buffer = bytearray(b"".join(encode_message(message) for message in messages))
    frames = scan(buffer, base=None, max_record_bytes=64 * MIB)
    if len(frames) != len(messages):
        raise ValueError(f"a sample is not one of records: {frames.detail}")
    chosen = np.arange(len(messages)) if rows is None else np.array(rows)
    return SinkBatch(decode_headers(buffer, frames), chosen.astype(np.int64)), buffer


def ordinary(
    count: int, *, first: int = 0, topics: Sequence[str] = ("Orders", "Payments"), queues: int = 2
) -> list[Message]:
    """So many messages of each queue, the queues in turn."""
    return [
        message_of(
            topic, queue, offset, b"%s %d %d" % (topic.encode(), queue, offset), {"TAGS": f"t{offset % 3}"}
        )
        for offset in range(first, first + count)
        for topic in topics
        for queue in range(queues)
    ]


def hostile(topics: Sequence[str] = ("Hostile",), *, large: int = LARGE_BODY_BYTES) -> list[Message]:
    """Messages with odd bodies and properties; in the first topic also one with a body of ``large`` bytes."""
    made = [
        message_of(topic, 0, offset, body, HOSTILE_PROPERTIES if offset % 2 else None)
        for topic in topics
        for offset, body in enumerate(HOSTILE_BODIES)
    ]
    if large:
        body = bytes(range(256)) * (large // 256)
        made.append(message_of(topics[0], 0, len(HOSTILE_BODIES), body))
    return made
