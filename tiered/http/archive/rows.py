"""JSON of messages, topics and queues, in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from tiered.archive.state.listing import TopicState
from tiered.archive.state.sinklisting import ListedSink
from tiered.archive.state.values import QueueState
from tiered.codec.record.layout import SYS_COMPRESSED
from tiered.codec.record.message import Message, body_fields, decode_message, message_fields


def fields_with_body(queue_offset: int, message: Message) -> dict[str, object]:
    """Every field of a message; the body in base64 as stored, and as text where it is UTF-8. Times in ms since 1970."""
    compressed = {"compressed": bool(message.sys_flag & SYS_COMPRESSED)}
    body = body_fields(message.body, always_base64=True)
    return message_fields(queue_offset, message) | compressed | body


def listed(
    beginning: str, rows: Iterable[dict[str, object]], end: str, *, at_once: int = 64
) -> Iterator[bytes]:
    """A JSON list in pieces of ``at_once`` rows."""
    piece, divider = [beginning], ""
    for number, row in enumerate(rows, 1):
        piece += (divider, json.dumps(row, ensure_ascii=False))
        divider = ","
        if number % at_once == 0:
            yield "".join(piece).encode("utf-8", "replace")
            piece = []
    yield "".join((*piece, end)).encode("utf-8", "replace")


def message_line(queue_offset: int, record: memoryview) -> bytes:
    """A stored record as one JSON object. ``Corrupt`` if it is not one."""
    fields = fields_with_body(queue_offset, decode_message(record))
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


class PageOfRows:
    """At most ``count`` of ``rows``; afterwards ``end`` says where the next page begins: behind the last one's ``key``."""

    def __init__(self, rows: Iterator[dict[str, object]], count: int | None, key: str) -> None:
        self._rows = rows
        self._count = count
        self._key = key
        self._last: object = None

    def __iter__(self) -> Iterator[dict[str, object]]:
        for row in islice(self._rows, self._count):
            self._last = row[self._key]
            yield row

    def end(self) -> bytes:
        """The end of the object that holds the list; with a member ``next``, to be given as ``after``, if there is more."""
        if self._count is None or next(self._rows, None) is None:
            return b"}\n"
        return f',"next":{json.dumps(self._last, ensure_ascii=False)}}}\n'.encode("utf-8", "replace")


def topic_fields(topic: TopicState) -> dict[str, object]:
    """What the queues of a topic hold together."""
    return {
        "topic": topic.topic,
        "queues": topic.queues,
        "messages": topic.messages,
        "bytes": topic.bytes,
        "oldest": topic.min_store_time,
        "newest": topic.max_store_time,
    }


def queue_fields(queue: QueueState) -> dict[str, object]:
    """The numbers of one queue."""
    return {
        "queue_id": queue.queue.queue_id,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "messages": queue.messages,
        "bytes": queue.bytes,
        "generation": queue.generation,
        "oldest": queue.min_store_time,
        "newest": queue.max_store_time,
    }


def sink_fields(listed: ListedSink) -> dict[str, object]:
    """How far a sink is by the archive's word."""
    state = listed.state
    return {
        "sink": state.name,
        "revision": state.revision,
        "lineage": state.lineage,
        "physical_offset": state.physical,
        "commit": state.commit_seq,
        "queues": listed.queues,
        "left": listed.left,
    }


def quoted(value: str) -> str:
    """A JSON string."""
    return json.dumps(value, ensure_ascii=False)
