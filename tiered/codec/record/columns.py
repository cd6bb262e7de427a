"""Boundaries → one structured array of headers with interned topics; ``properties`` makes more columns of it on request.

This is what flows from the source to the blocks: one buffer, arrays beside it, no Python object per message.
"""

from __future__ import annotations

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.frame import Frames, verified
from tiered.codec.record.header import Headers, read_headers
from tiered.codec.record.topics import TopicTable, decode_topics
from tiered.codec.types import Buffer
from tiered.errors import Corrupt


def decode_headers(buffer: Buffer, frames: Frames) -> MessageBatch:
    """Every header field of every record of ``frames``, rows in buffer order.

    Raises ``Corrupt`` if a boundary lies outside the buffer, if inner lengths do not add up, or if a topic is
    not UTF-8.
    """
    headers = read_headers(buffer, frames.starts, frames.sizes)
    if headers.flaw is not None:
        row = headers.flaw.row
        raise Corrupt(
            "a record is not what its header says",
            position=int(frames.starts[row]),
            expected=f"a record of {int(frames.sizes[row])} bytes",
            found=headers.flaw.reason,
        )
    return _batch(buffer, headers)


def verify_headers(buffer: Buffer, frames: Frames, base: int | None) -> tuple[Frames, MessageBatch]:
    """``frame.verify`` and ``decode_headers`` of what it found good, in one pass over the headers."""
    good, found = verified(buffer, frames, base)
    if found is None:
        return good, decode_headers(buffer, good)
    headers, topics = found
    count = len(good)
    if count < len(headers.rows):  # what is bad may have a topic that nothing else has
        headers = Headers(
            headers.rows[:count], headers.topic_positions[:count], headers.topic_lengths[:count], None
        )
        return good, _batch(buffer, headers)
    return good, _batch(buffer, headers, topics)


def _batch(buffer: Buffer, headers: Headers, topics: TopicTable | None = None) -> MessageBatch:
    if topics is None:
        topics = TopicTable(buffer, headers.topic_positions, headers.topic_lengths)
    index, names = topics.intern()
    headers.rows["topic_index"] = index
    return MessageBatch(memoryview(buffer), headers.rows, decode_topics(names))
