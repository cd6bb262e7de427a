"""A log of key-value messages in memory, as a feed gives it: for tests of redo."""

from __future__ import annotations

import hashlib

import numpy as np

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.message import Message, encode_message
from tiered.feed.base import FeedBatch, FeedPosition
from tiered.keyvalue import ALWAYS, Condition
from tiered.model import PhysicalOffset
from tiered.view.operation import DELETE, NO_VALUE, PUT, properties_of

PREFIX = "KV_"
HOST = "127.0.0.1:10911"


class KeyValueLog:
    """Messages as a broker would store them; offsets of each queue ascend by themselves. ``now_ms``: the broker's clock."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.ends: list[int] = [0]
        self.next: dict[tuple[str, int], int] = {}
        self.now_ms = 1_000

    def write(
        self,
        namespace: str,
        key: bytes,
        value: bytes | None,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
        *,
        unique_key: str = "ID",
    ) -> int:
        """A put, or a deletion with ``None``; its version."""
        kind = DELETE if value is None else PUT
        properties = properties_of(kind, key, unique_key, condition, ttl_ms, empty=value == b"")
        return self.message(PREFIX + namespace, value or NO_VALUE, properties)

    def message(
        self, topic: str, body: bytes, properties: dict[str, str], *, queue_id: int = 0, sys_flag: int = 0
    ) -> int:
        """Any message; its queue offset."""
        offset = self.next.get((topic, queue_id), 0)
        self.next[topic, queue_id] = offset + 1
        made = Message(
            topic=topic, queue_id=queue_id, queue_offset=offset, physical_offset=self.ends[-1], body=body,
            properties=properties, sys_flag=sys_flag, store_timestamp=self.now_ms, store_host=HOST, born_host=HOST,
        )  # fmt: skip
        self.records.append(encode_message(made))
        self.ends.append(self.ends[-1] + len(self.records[-1]))
        return offset

    def batch(self, first: int = 0, end: int | None = None, *, archived: bool = False) -> FeedBatch:
        """Messages [first, end) as one batch of the live log, or as the archive gives them."""
        end = len(self.records) if end is None else end
        data = b"".join(self.records[first:end])
        position = FeedPosition(None if archived else PhysicalOffset(self.ends[end]))
        return FeedBatch(_decoded(data, self.records[first:end]), position)


def _decoded(data: bytes, records: list[bytes]) -> MessageBatch:
    sizes = np.array([len(record) for record in records], np.int64)
    starts = np.cumsum(sizes) - sizes
    good, messages = verify_headers(data, Frames(starts, sizes, len(data), Stop.END), None)
    assert len(good) == len(records)
    return messages


def digest(value: bytes) -> bytes:
    """What a condition on a value asks for."""
    return hashlib.sha256(value).digest()
