"""The live log as far as it is archived: what a broker that loses its tail cannot take back any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tiered.errors import NotFound
from tiered.feed.live import FollowedLog
from tiered.model import PhysicalOffset
from tiered.source.base import BrokerMark, Chunk, ReadStatus, Wait, idle


class ProvenLog:
    """``log`` up to where ``proven`` says that it is archived. One thread."""

    def __init__(self, log: FollowedLog, proven: Callable[[], int]) -> None:
        self._log = log
        self._proven = proven

    def read(self, start: PhysicalOffset, *, max_bytes: int, max_records: int) -> Chunk:
        """See ``Tail``."""
        limit = self._proven()
        if start >= limit:
            return idle(start)
        found = self._log.read(start, max_bytes=min(max_bytes, limit - start), max_records=max_records)
        if found.status is not ReadStatus.RECORDS or found.next_offset <= limit:
            return found
        kept = found.starts + found.sizes <= limit - found.start
        end = PhysicalOffset(min(limit, found.end))
        return replace(
            found,
            end=end,
            next_offset=end,
            starts=found.starts[kept],
            sizes=found.sizes[kept],
            blank_header=b"",
        )

    def min_offset(self) -> PhysicalOffset | None:
        """See ``Tail``."""
        return self._log.min_offset()

    def max_offset(self) -> PhysicalOffset:
        """The log's own end: what is behind it counts as lag."""
        return self._log.max_offset()

    @property
    def waiting(self) -> Wait | None:
        """See ``Tail``."""
        return self._log.waiting

    def stored(self, place: PhysicalOffset) -> None:
        """See ``BrokerAnswers``."""
        self._log.stored(place)

    def copy(self, start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        """See ``Copies``."""
        return self._log.copy(start, end)

    def copy_into(self, start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        """See ``Copies``."""
        self._log.copy_into(start, end, target)

    def copy_local(self, start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        """See ``Copies``."""
        return self._log.copy_local(start, end)

    def file_start(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """See ``Copies``."""
        return self._log.file_start(offset)

    def broker_mark(self) -> BrokerMark:
        """See ``Life``."""
        return self._log.broker_mark()

    def counts_inner(self, topic: str, queue_id: int) -> bool:
        """See ``Life``."""
        return self._log.counts_inner(topic, queue_id)

    @property
    def away(self) -> NotFound | None:
        """See ``Life``."""
        return self._log.away
