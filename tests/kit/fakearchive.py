"""A ``MessageStore`` made of dicts, for what gateways answer: it can lag, have holes, be slow, be away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tiered.archive.read.lookup import KeyLookup
from tiered.archive.state.values import QueueState
from tiered.codec.record.message import Message, decode_message, encode_message
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.storagelevels import StorageLevel
from tiered.model import (
    BoundaryType,
    GetMessageResult,
    GetMessageStatus,
    MessageQueue,
    PhysicalOffset,
    Progress,
    QueueOffset,
    Records,
)

FIRST_TIME = 1_700_000_000_000
"""Store time of queue offset 0; each following message is ``STEP_MS`` younger."""
STEP_MS = 10
RECORD_ROOM = 1000
"""Distance of physical offsets in a crafted queue."""


def time_of(offset: float) -> int:
    """Store time, in ms, of the record at an offset; of a moment between two records for a broken one."""
    return int(FIRST_TIME + offset * STEP_MS)


@dataclass
class FakeQueue:
    """Records by queue offset, the first readable one, the end, and holes [start, end)."""

    records: dict[int, bytes]
    low: int
    high: int
    holes: list[tuple[int, int]] = field(default_factory=list)


def record(topic: str, queue_id: int, offset: int, *, body: bytes | None = None, **properties: str) -> bytes:
    """The stored record of one message; its physical offset is ``offset * RECORD_ROOM``."""
    return encode_message(
        Message(
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=offset * RECORD_ROOM,
            body=f"{topic}/{queue_id}/{offset}".encode() if body is None else body,
            properties={"UNIQ_KEY": f"U{topic}{queue_id}-{offset}", **properties},
            store_timestamp=time_of(offset),
        )
    )


class FakeArchive:
    """See the module. ``error`` is raised by every read; with ``hangs`` pulls never end, without
    ``at_hand`` none is answered at once; ``asked`` lists the reads."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], FakeQueue] = {}
        self.levels: dict[str, StorageLevel] = {}
        self.reached: int | None = 1 << 40
        self.error: Exception | None = None
        self.hangs = False
        self.at_hand = True
        self.examine = 4096
        self.asked: list[tuple[Any, ...]] = []
        self.positions: dict[tuple[ReaderId, str, int], int] = {}
        self.living: set[ReaderId] = set()
        self.looks: list[Future[bool]] = []

    def fill(
        self,
        topic: str,
        queue_id: int,
        low: int,
        high: int,
        *,
        holes: Sequence[tuple[int, int]] = (),
        properties: Mapping[int, Mapping[str, str]] | None = None,
        body: bytes | None = None,
    ) -> None:
        """Archive [``low``, ``high``) of a queue, without ``holes``."""
        lost = {offset for start, end in holes for offset in range(start, end)}
        self.queues[topic, queue_id] = FakeQueue(
            {
                offset: record(topic, queue_id, offset, body=body, **(properties or {}).get(offset, {}))
                for offset in range(low, high)
                if offset not in lost
            },
            low,
            high,
            list(holes),
        )

    def known(self, queue: MessageQueue) -> QueueState | None:
        """Bounds of a queue in generation 1."""
        found = self.queues.get((queue.topic, queue.queue_id))
        if found is None:
            return None
        return QueueState(queue, 1, 1, 1, found.low, found.high, 0, 0, None, None, 0, 0, 0)

    def progress(self) -> Progress | None:
        """Of lineage 1."""
        return None if self.reached is None else Progress(1, self.reached, 0, 0)

    def physical_floor(self, queue: MessageQueue, offset: int) -> PhysicalOffset | None:
        """Not known."""
        return None

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
        """The store's own table, over dicts."""
        self.asked.append(("get", pull))
        future: Future[GetMessageResult] = Future()
        if self.hangs:
            return future
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self._get(pull))
        return future

    def get_message_at_once(self, pull: Pull) -> GetMessageResult | None:
        """All that ``get_message_async`` would find, unless ``at_hand`` is false."""
        if self.hangs or self.error is not None or pull.row_filter is not None or not self.at_hand:
            return None
        found = self._get(pull)
        if found.status is not GetMessageStatus.FOUND:
            return None
        self.asked.append(("get", pull))
        return found

    def _get(self, pull: Pull) -> GetMessageResult:
        offset, max_bytes, row_filter = pull.offset, pull.max_bytes, pull.row_filter
        queue = self.queues.get((pull.topic, pull.queue_id))
        if queue is None:
            return _result(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0)
        low, high = queue.low, queue.high
        if offset < low:
            return _result(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return _result(GetMessageStatus.OFFSET_OVERFLOW_ONE, high, low, high)
        if offset > high:
            return _result(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        found: list[bytes] = []
        offsets: list[int] = []
        for start, end in queue.holes:
            if start <= offset < end:
                return _result(GetMessageStatus.OFFSET_FOUND_NULL, end, low, high)
        at, size, examined = offset, 0, 0
        while at < high and at in queue.records and len(found) < pull.max_count and examined < self.examine:
            data = queue.records[at]
            examined += 1
            if row_filter is None or row_filter.accepts(memoryview(data)):
                if found and size + len(data) > max_bytes:
                    break
                found.append(data)
                offsets.append(at)
                size += len(data)
            at += 1
        status = GetMessageStatus.FOUND if found else GetMessageStatus.NO_MATCHED_MESSAGE
        return GetMessageResult(
            status,
            QueueOffset(at),
            QueueOffset(low),
            QueueOffset(high),
            Records.of([memoryview(data) for data in found]),
            tuple(map(QueueOffset, offsets)),
        )

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None:
        """Remembered in ``positions``."""
        self.positions[reader, topic, queue_id] = offset

    def alive(self, reader: ReaderId) -> None:
        """Remembered in ``living``."""
        self.living.add(reader)

    def forget(self, reader: ReaderId) -> None:
        """No longer in ``living``."""
        self.living.discard(reader)

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """First readable offset."""
        queue = self._queue("min", topic, queue_id)
        return None if queue is None else QueueOffset(queue.low)

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """End."""
        queue = self._queue("max", topic, queue_id)
        return None if queue is None else QueueOffset(queue.high)

    def earliest_message_time(self, topic: str, queue_id: int) -> int | None:
        """Store time of the first record."""
        queue = self._queue("earliest", topic, queue_id)
        return None if queue is None or queue.low >= queue.high else time_of(queue.low)

    def message_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of one record."""
        queue = self._queue("time", topic, queue_id)
        return None if queue is None or offset not in queue.records else time_of(offset)

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> QueueOffset | None:
        """First offset stored at or after ``time_ms``; the end when all are older."""
        assert boundary is BoundaryType.LOWER
        queue = self._queue("by_time", topic, queue_id)
        if queue is None:
            return None
        later = (o for o in range(queue.low, queue.high) if time_of(o) >= time_ms)
        return QueueOffset(next(later, queue.high))

    def query_message(self, lookup: KeyLookup) -> list[memoryview]:
        """The newest records with the key, in order."""
        self._queue("query", lookup.topic, 0)
        assert lookup.max_count is not None
        assert lookup.begin_ms is not None
        assert lookup.end_ms is not None
        found = []
        for (name, _), queue in self.queues.items():
            for data in queue.records.values():
                message = decode_message(data)
                keys = (message.unique_key,) if lookup.unique else message.keys
                inside = lookup.begin_ms <= message.store_timestamp <= lookup.end_ms
                if name == lookup.topic and lookup.key in keys and inside:
                    found.append(memoryview(data))
        return [] if lookup.is_empty else found[-lookup.max_count :]

    def view_message(self, physical_offset: int) -> memoryview | None:
        """The record at a physical offset."""
        self._queue("view", "", 0)
        for queue in self.queues.values():
            found = queue.records.get(physical_offset // RECORD_ROOM)
            if found is not None and physical_offset % RECORD_ROOM == 0:
                return memoryview(found)
        return None

    def follow(self) -> bool:
        """Nothing new."""
        self.asked.append(("follow",))
        return False

    def follow_if_older(self) -> Future[bool]:
        """``looks``, one after the other; then what is known is new enough."""
        if self.looks:
            return self.looks.pop(0)
        fresh: Future[bool] = Future()
        fresh.set_result(False)
        return fresh

    def storage_level(self, topic: str) -> StorageLevel:
        """``levels``, by pattern; else ``NOT_IN_DISK``."""
        for pattern, level in self.levels.items():
            if fnmatchcase(topic, pattern):
                return level
        return StorageLevel.NOT_IN_DISK

    def _queue(self, what: str, topic: str, queue_id: int) -> FakeQueue | None:
        self.asked.append((what, topic, queue_id))
        if self.error is not None:
            raise self.error
        return self.queues.get((topic, queue_id))


def _result(status: GetMessageStatus, following: int, low: int, high: int) -> GetMessageResult:
    return GetMessageResult(status, QueueOffset(following), QueueOffset(low), QueueOffset(high))
