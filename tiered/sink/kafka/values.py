"""Values of records: bodies as consumers see them, and which messages are larger than Kafka takes."""

from __future__ import annotations

from collections.abc import Sequence

from tiered.codec.types import Ints
from tiered.errors import Invalid
from tiered.sink.kafka.records import BODY, Headers, queue_of, record_bytes
from tiered.sink.messages import MAX_BODY_BYTES, SinkMessages

_SMALL = 64 << 10
"""Key and headers of a message always fit: its properties have at most 32 KiB."""
_AS_STORED = b"as stored: it cannot be decompressed"


def looked_at(messages: SinkMessages, most: int) -> bool:
    """Whether messages have to be looked at one by one: some are compressed, or perhaps larger than ``most`` bytes."""
    longest = max(map(len, messages.stored), default=0)
    return longest + _SMALL > most or bool(messages.compressed.any())


def values_of(
    messages: SinkMessages, headers: Sequence[Headers], kept: Ints, most: int
) -> tuple[list[bytes], list[Headers]]:
    """Bodies as consumers see them, of the messages ``kept``, and headers that say so where one is not."""
    values, heads = [], []
    for at in kept.tolist():
        body = messages.body(at, most)
        values.append(body.content)
        heads.append(headers[at] if body.readable else {**headers[at], BODY: _AS_STORED})
    return values, heads


def too_large(
    messages: SinkMessages,
    keys: Sequence[bytes | None],
    headers: Sequence[Headers],
    most: int,
    *,
    buried: bool,
) -> set[int]:
    """Messages whose records would have more than ``most`` bytes. ``Invalid`` if there are some and none may be ``buried``."""
    packed = messages.compressed
    large = set()
    for at, stored in enumerate(messages.stored):
        content = stored
        if packed[at]:
            body = messages.body(at, most)
            content = (body if body.readable else messages.body(at, MAX_BODY_BYTES)).content
        size = record_bytes(content, keys[at], headers[at])
        if size > most:
            large.add(at)
            if not buried:
                raise Invalid(
                    "a message is larger than this sink may send to Kafka", queue=queue_of(messages, at),
                    queue_offset=int(messages.queue_offset[at]), found=size, expected=f"≤ {most} bytes",
                    hint="raise max_message_bytes and the topic's max.message.bytes, or name a dead_letter_topic",
                )  # fmt: skip
    return large
