"""Look-ups in the consume-queue index: a few seeks to a chunk's head, then a bisection in its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiered.codec.types import Ints
from tiered.consumequeue.layout import (
    COLUMNS,
    HEAD,
    HEAD_DTYPE,
    TAIL,
    TAIL_DTYPE,
    IndexedRange,
    QueueRows,
    chunk_key,
    decode_columns,
    first_of,
    queue_key,
)
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataView


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """Queue offsets [first, end) that the index has of a queue; some between them may own no message."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _Found:
    """A chunk by its head."""

    first: int
    end: int
    rows: int
    max_time: int
    running_max: int


class ConsumeQueueIndex:
    """Reads an index; of a store that is written to, each answer is of some moment during the call."""

    def __init__(self, view: MetadataView) -> None:
        self._view = view

    def coverage(self) -> IndexedRange | None:
        """What it covers; ``None`` for an empty one."""
        applied = self._view.applied()
        return None if applied is None else IndexedRange.decode(applied)

    def span(self, topic: str, queue_id: int) -> QueueSpan | None:
        """Minimum and maximum of a queue; ``None`` for one that is not here."""
        value = self._view.get_many([TAIL + queue_key(topic, queue_id)])[0]
        if value is None:
            return None
        tail = np.frombuffer(value, TAIL_DTYPE)[0]
        return QueueSpan(int(tail["first"]), int(tail["head"]["end"]))

    def rows(self, topic: str, queue_id: int, first: int, end: int) -> Iterator[QueueRows]:
        """Messages that own queue offsets in [first, end), a chunk at a time. Where nothing is, nothing comes."""
        queue = queue_key(topic, queue_id)
        at = self._at_or_before(queue, first)
        for found in self._from(queue, first if at is None else at.first):
            if found.first >= end:
                return
            rows = self._columns(queue, found)
            low = int(np.searchsorted(rows.offset + rows.owned, first, side="right"))
            high = int(np.searchsorted(rows.offset, end))
            if low < high:
                yield rows.take(slice(low, high))

    def offset_by_time(self, topic: str, queue_id: int, store_time_ms: int) -> int | None:
        """The smallest queue offset here that was stored at or after a time; ``None`` if none was.

        Store times within a queue may go back; the largest so far never does. So the chunk is found by bisection: the first one
        up to whose end the largest so far is late enough. Only where its own messages are not, since those that were have been
        forgotten, the search goes on behind it.
        """
        queue = queue_key(topic, queue_id)
        span = self.span(topic, queue_id)
        if span is None:
            return None
        low, high = (
            span.first,
            span.end,
        )  # no chunk that begins below low is late enough, all from high on are
        while low < high:
            middle = (low + high) // 2
            found = self._at_or_before(queue, middle)
            if found is None or found.first < low:
                low = middle + 1  # none begins from low to here
            elif found.running_max >= store_time_ms:
                high = found.first
            else:
                low = found.end
        for found in self._from(queue, low):
            if found.max_time < store_time_ms:
                continue
            rows = self._columns(queue, found)
            late: Ints = np.flatnonzero(rows.time >= store_time_ms)
            return int(rows.offset[late[0]])
        return None

    def _at_or_before(self, queue: bytes, offset: int) -> _Found | None:
        prefix = HEAD + queue
        for key, value in self._view.iterate(
            prefix, start=chunk_key(HEAD, queue, max(0, offset)), reverse=True
        ):
            return _found(key, value)
        return None

    def _from(self, queue: bytes, first: int) -> Iterator[_Found]:
        for key, value in self._view.iterate(HEAD + queue, start=chunk_key(HEAD, queue, max(0, first))):
            yield _found(key, value)

    def _columns(self, queue: bytes, found: _Found) -> QueueRows:
        value = self._view.get_many([chunk_key(COLUMNS, queue, found.first)])[0]
        if value is None:
            raise Corrupt(
                "a chunk of the consume-queue index is missing", queue=queue.hex(), first=found.first
            )
        return decode_columns(value, found.first, found.rows)


def _found(key: bytes, value: bytes) -> _Found:
    head = np.frombuffer(value, HEAD_DTYPE)[0]
    return _Found(
        first_of(key), int(head["end"]), int(head["rows"]), int(head["max_time"]), int(head["running_max"])
    )
