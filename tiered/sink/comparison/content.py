"""Digests of messages: bodies as consumers see them, and properties as a mapping. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch
from tiered.sink.comparison.base import Digests, Marks
from tiered.sink.messages import SinkMessages, messages_of


def content_of(body: bytes, properties: Iterable[tuple[str, str]]) -> int:
    """Of one message: 64 bits of XXH3. The order of properties does not count; of equal names the last one has to be given."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in sorted(properties))
    return xxhash.xxh3_64_intdigest(body, xxhash.xxh3_64_intdigest(text.encode("utf-8", "replace")))


def origin_of(message_id: str) -> int:
    """Of an offset message id as text."""
    return xxhash.xxh3_64_intdigest(message_id.encode())


def digests(values: Iterable[int], count: int) -> Digests:
    """As an array."""
    return np.fromiter(values, np.uint64, count)


def marks_of(
    queues: Sequence[tuple[str, int]], offsets: Iterable[int], origins: Iterable[int], contents: Iterable[int]
) -> Marks:
    """Of columns; ``queues``: (topic, queue id) of each message."""
    number = {queue: at for at, queue in enumerate(dict.fromkeys(queues))}
    count = len(queues)
    return Marks(
        tuple(MessageQueue(topic, queue_id) for topic, queue_id in number),
        np.fromiter(map(number.__getitem__, queues), np.int64, count),
        np.fromiter(offsets, np.int64, count),
        digests(origins, count),
        digests(contents, count),
    )


def taken_apart(batch: SinkBatch) -> Marks:
    """Of a batch as destinations have it that are given what consumers see: batches in one record are messages of their own."""
    return marks_of_messages(messages_of(batch))


def marks_of_messages(messages: SinkMessages) -> Marks:
    """Of messages as columns."""
    queues = [
        (messages.topics[topic], number)
        for topic, number in zip(messages.topic.tolist(), messages.queue_id.tolist(), strict=True)
    ]
    contents = (
        content_of(body.content, ((name, value.decode("utf-8", "replace")) for name, value in own))
        for body, own in zip(messages.bodies(), messages.properties, strict=True)
    )
    return marks_of(queues, messages.queue_offset.tolist(), map(origin_of, messages.message_id), contents)
