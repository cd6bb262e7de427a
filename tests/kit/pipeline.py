"""What a broker sends, and what an archive must hold afterwards: crafted messages, and a dict-of-lists oracle.

``Crafted`` writes any message into the commitlog of ``BrokerLog``; ``Oracle`` keeps the queues the slow and obvious way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.kit.brokerlog import BLANK, BrokerLog
from tiered.codec.record.frame import scan
from tiered.codec.record.message import Message, encode_message
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue, PhysicalOffset
from tiered.write.buffer import Extent

PREPARED = 0x4
ROLLBACK = 0xC
INNER_BATCH = 0x80
TRANSACTION = 0xC

START_MS = 1_700_000_000_000


@dataclass
class Row:
    """One archived record: its generation, first queue offset, bytes, and the message."""

    generation: int
    queue_offset: int
    owned: int
    raw: bytes
    message: Message


@dataclass
class OracleQueue:
    """A queue as a list."""

    rows: list[Row] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    generation: int = 0
    end: int = 0

    def take(self, offset: int, owned: int, raw: bytes, message: Message) -> None:
        if not self.generation or offset < self.end:
            self.generation += 1
        elif offset > self.end:
            self.gaps.append((self.generation, self.end, offset))
        self.rows.append(Row(self.generation, offset, owned, raw, message))
        self.end = offset + owned

    def current(self) -> list[Row]:
        """Rows of the newest generation."""
        return [row for row in self.rows if row.generation == self.generation]


class Oracle:
    """``{queue: list of rows}``, fed record by record in log order."""

    def __init__(self, excluded: Callable[[str], bool] = lambda topic: False) -> None:
        self._excluded = excluded
        self.queues: dict[MessageQueue, OracleQueue] = {}

    def take(self, message: Message, raw: bytes) -> None:
        """One record of the log."""
        if self._excluded(message.topic):
            return
        off = message.sys_flag & TRANSACTION in (PREPARED, ROLLBACK)
        name = MessageQueue(OFF_QUEUE_TOPIC, 0) if off else MessageQueue(message.topic, message.queue_id)
        queue = self.queues.setdefault(name, OracleQueue())
        inner = int(message.properties.get("INNER_NUM", "1")) if message.sys_flag & INNER_BATCH else 1
        if off:
            queue.take(queue.end, 1, raw, message)
        else:
            queue.take(message.queue_offset, inner, raw, message)


@dataclass
class Crafted(BrokerLog):
    """A broker that numbers each queue on, unless told otherwise; ``sent`` is every record in log order."""

    sent: list[tuple[Message, bytes]] = field(default_factory=list)
    following: dict[tuple[str, int], int] = field(default_factory=dict)
    batch_queues: bool = True
    """Whether the broker numbers a queue by the messages in inner batches, as those of 4.x do not."""

    def send(
        self, topic: str = "Orders", queue_id: int = 0, body: bytes = b"body", **fields: object
    ) -> Message:
        """Append a message; ``queue_offset`` is the queue's next unless given. Returns it as stored."""
        key = (topic, queue_id)
        flag = int(str(fields.get("sys_flag", 0)))
        off = flag & TRANSACTION in (PREPARED, ROLLBACK)
        offset = int(str(fields.pop("queue_offset", 0 if off else self.following.get(key, 0))))
        message = Message(
            topic, queue_id, offset, self.position, body,
            **{"store_timestamp": self.time_ms, "born_timestamp": self.time_ms - 1, **fields},
        )  # fmt: skip
        raw = encode_message(message)
        if len(raw) + 8 > self.file_bytes - self.position % self.file_bytes:
            self.roll()
            message = replace(message, physical_offset=self.position)
            raw = encode_message(message)
        self.write(self.position, raw)
        self.records[self.position] = raw
        self.sent.append((message, raw))
        self.position += len(raw)
        if not off:
            inner = int(message.properties.get("INNER_NUM", "1")) if flag & INNER_BATCH else 1
            if inner > 1 and self.batch_queues:
                (self.store / "batchconsumequeue" / topic / str(queue_id)).mkdir(parents=True, exist_ok=True)
            self.following[key] = offset + (inner if self.batch_queues else 1)
        return message

    def roll(self) -> None:
        """End the file with a blank record."""
        left = self.file_bytes - self.position % self.file_bytes
        self.write(self.position, left.to_bytes(4, "big") + BLANK.to_bytes(4, "big"))
        self.position += left

    def crash(self, offset: int) -> None:
        """Lose everything from ``offset`` on; queue offsets go back with it."""
        self.cut(offset)
        self.sent = [(m, raw) for m, raw in self.sent if m.physical_offset < offset]
        self.following = {}
        for message, _ in self.sent:
            self.following[message.topic, message.queue_id] = message.queue_offset + 1

    def oracle(self, excluded: Callable[[str], bool] = lambda topic: False) -> Oracle:
        """What an archive of everything sent must hold."""
        made = Oracle(excluded)
        for message, raw in self.sent:
            made.take(message, raw)
        return made


class Bytes:
    """Enough of a source for a ``Preparer``: one endless commitlog file in memory."""

    def __init__(self) -> None:
        self.data = bytearray()

    def copy_into(self, start: int, end: int, target: memoryview) -> None:
        target[:] = self.data[start:end]

    def file_start(self, offset: int) -> PhysicalOffset:
        return PhysicalOffset(0)

    def counts_inner(self, topic: str, queue_id: int) -> bool:
        return True

    def append(self, raws: list[bytes]) -> Extent:
        """Take records in and return the extent they make."""
        start = len(self.data)
        self.data += b"".join(raws)
        frames = scan(self.data[start:], base=start, max_record_bytes=1 << 20)
        assert len(frames) == len(raws)
        end = PhysicalOffset(len(self.data))
        return Extent(PhysicalOffset(start), end, end, frames.starts, frames.sizes, b"", 0.0, False)


def sizes(
    *,
    block_bytes: int = 4096,
    object_bytes: int = 65536,
    inline_bytes: int = 0,
    max_edit_bytes: int = 1 << 20,
    max_flush_keys: int = 1_000_000,
    dictionary_bytes: int = 0,
) -> SimpleNamespace:
    """Dispatch settings below the bounds that operators get, so that small tests cut much."""
    return SimpleNamespace(
        block_bytes=block_bytes,
        object_bytes=object_bytes,
        inline_bytes=inline_bytes,
        max_edit_bytes=max_edit_bytes,
        dictionary_bytes=dictionary_bytes,
        lite_queues=False,
        max_flush_keys=max_flush_keys,
        group_commit_bytes=4096,
    )


def ascending(start: int, count: int) -> np.ndarray:
    """``start, start + 1, …``."""
    return np.arange(start, start + count, dtype=np.int64)


def files_of(directory: Path) -> Iterator[Path]:
    """Every file below a directory."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file())
