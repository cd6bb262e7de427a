"""Messages as records of Kafka: key, headers, time. Columns become lists once a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from tiered.model import MessageQueue
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.messages import SinkMessages
from tiered.sink.propertycolumns import property_columns

TOPIC, QUEUE, OFFSET, MESSAGE_ID, SINK, FLAG, BODY = (
    f"rocketmq.{name}" for name in ("topic", "queue", "offset", "msgid", "sink", "flag", "body")
)
"""Headers that are ours: where the message was, RocketMQ's offset message id, which sink gave it (``SinkPlace.short_id``;
records of before it was told have none), its flag if it has one; ``BODY`` only where the value is not the message's body,
and why."""
PROPERTY = "rocketmq.property."
"""Put before the name of a property that would be taken for one of ours; all others are headers of their own names."""
_OURS = "rocketmq."

Headers = dict[str, bytes | str]
_FIRST = (TOPIC, QUEUE, OFFSET, MESSAGE_ID, SINK)


def queue_of(messages: SinkMessages, at: int) -> MessageQueue:
    """The queue of one message."""
    return MessageQueue(messages.topics[int(messages.topic[at])], int(messages.queue_id[at]))


def keys_of(messages: SinkMessages, which: str) -> Sequence[bytes | None]:
    """The record key of each message: the option ``key``."""
    if which == "keys":
        return messages.keys
    if which == "unique":
        return messages.unique_key
    if which == "none":
        return [None] * len(messages)
    pairs = messages.topic << 32 | messages.queue_id
    names = {
        pair: f"{messages.topics[pair >> 32]}/{pair & 0xFFFF_FFFF}".encode("utf-8", "surrogateescape")
        for pair in np.unique(pairs).tolist()
    }
    return list(map(names.__getitem__, pairs.tolist()))


def is_another_sinks(headers: Mapping[str, object], sink: str) -> bool:
    """Whether a record says that it is not of this sink (``SinkPlace.short_id``)."""
    return headers.get(SINK, sink.encode()) != sink.encode()


def headers_of(messages: SinkMessages, sink: str) -> list[Headers]:
    """The headers of each message: ours first, then its properties. One dictionary each: with no object for each header, which
    the garbage collector would look at again and again, they cost half of what pairs do."""
    topics = [topic.encode("utf-8", "surrogateescape") for topic in messages.topics]
    queues = {number: b"%d" % number for number in np.unique(messages.queue_id).tolist()}
    ours = (
        map(topics.__getitem__, messages.topic.tolist()),
        map(queues.__getitem__, messages.queue_id.tolist()),
        map(str, messages.queue_offset.tolist()),
        messages.message_id,
        repeat(sink.encode()),
    )
    columns = property_columns(messages.entries, len(messages))
    if columns is not None:
        names = (*_FIRST, *map(_free, columns.names))
        found: list[Headers] = [dict(zip(names, row)) for row in zip(*ours, *columns.values)]
    else:
        found = [
            {**dict(zip(_FIRST, place)), **{_free(name): value for name, value in own}}
            for place, own in zip(zip(*ours), messages.properties, strict=True)
        ]
    for at in np.flatnonzero(messages.flag).tolist():
        flag: Headers = {FLAG: b"%d" % int(messages.flag[at])}
        found[at] = {name: found[at][name] for name in _FIRST} | flag | found[at]
    return found


def times_of(messages: SinkMessages, settings: KafkaSettings) -> list[int]:
    """CreateTime of each record in ms; at least 1, because 0 is *now* for the client."""
    column = messages.born_timestamp if settings.born else messages.store_timestamp
    times: list[int] = np.maximum(column, 1).tolist()
    return times


def record_bytes(body: bytes | None, key: bytes | None, headers: Headers) -> int:
    """About what a record takes, rather too much."""
    size = len(body or b"") + len(key or b"") + 128
    return size + sum(
        len(name.encode("utf-8", "replace")) + len(value) + 10 for name, value in headers.items()
    )


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS)


def _free(name: str) -> str:
    return PROPERTY + name if _is_ours(name) else name
