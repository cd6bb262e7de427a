"""What the daemon says of itself: the lag that cannot lie, and the ``/status`` document.

Lag is the broker's local end minus the *proven* commit, both looked up at the moment of the question: no worker's own idea
of its progress takes part, so a stuck worker shows as growing lag (S11).
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from tiered.archive.log import CommitLog
from tiered.clock import Clock
from tiered.dispatch.committer import Committer, Proven
from tiered.dispatch.dispatcher import Dispatcher
from tiered.errors import NotFound, TieredError
from tiered.metrics import Metrics
from tiered.model import PhysicalOffset
from tiered.source.base import CommitLogSource

HEADER_BYTES = 80
RECOUNT_SECONDS = 1.0
SYS_FLAG_AT = 36
STORE_TIMESTAMP_AT = 56
"""Twelve bytes later when the born host is IPv6 (sysFlag 0x10)."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Bytes are exact. ``messages`` counts what was read and is not proven exactly, and estimates what is unread from the mean
    record size. ``seconds`` is the age of the oldest record that is not proven, ``None`` when it cannot be read."""

    bytes: int
    messages: int
    seconds: float | None


@dataclass(slots=True)
class Totals:
    """Counted since the process started."""

    messages: int = 0
    bytes: int = 0
    commits: int = 0
    last_commit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Archived:
    """A count of messages, and the commit and moment it was made at."""

    seq: int
    looked: float
    messages: int


class Reporter:
    """Answers for ``/status`` and the gauges. Safe from any thread."""

    def __init__(
        self,
        log: CommitLog,
        source: CommitLogSource,
        clock: Clock,
        *,
        cluster: str,
        broker: str,
        archive_url: str,
    ) -> None:
        self._log = log
        self._source = source
        self._clock = clock
        self._names = {"cluster": cluster, "broker": broker, "archive": archive_url}
        self._lock = threading.Lock()
        self.totals = Totals()
        self.dispatcher: Dispatcher | None = None
        self.committer: Committer | None = None
        self.start: PhysicalOffset | None = None
        self.weak: list[str] = []
        self._archived: Archived | None = None

    def proven(self, event: Proven) -> None:
        """Count one proven flush."""
        with self._lock:
            self.totals.messages += event.flush.messages
            self.totals.bytes += event.flush.raw_bytes
            self.totals.commits += 1
            self.totals.last_commit_ms = event.store_time_ms

    def archived_messages(self) -> int:
        """Messages readable in the archive, summed over all queues when the head has moved, at most once a second."""
        head = self._log.proven().head()
        if head is None:
            return 0
        now = self._clock.monotonic()
        with self._lock:
            kept = self._archived
            if kept is not None and (kept.seq == head.seq or now - kept.looked < RECOUNT_SECONDS):
                return kept.messages
        messages = sum(q.messages for q in self._log.proven().queues())
        with self._lock:
            self._archived = Archived(head.seq, self._clock.monotonic(), messages)
        return messages

    def set_gauges(self, metrics: Metrics) -> None:
        """Set the gauges that are looked up, not counted."""
        lag, position = self.lag(), self.position()
        metrics.lag(
            size=lag.bytes,
            messages=lag.messages,
            seconds=math.nan if lag.seconds is None else lag.seconds,
            local_end=self._source.max_offset(),
            proven=position or 0,
        )
        known, size = self._read_not_proven()
        metrics.buffer_messages.set(known)
        metrics.buffer_bytes.set(size)
        metrics.hold_bytes.set(self._source.held_bytes())

    def position(self) -> PhysicalOffset | None:
        """Physical offset below which everything is proven."""
        head = self._log.proven().head()
        if head is None or head.lineage not in head.progress:
            return self.start
        return PhysicalOffset(head.progress[head.lineage].physical_offset)

    def lag(self) -> Lag:
        """Local end minus proven commit."""
        position = self.position()
        if position is None:
            return Lag(0, 0, 0.0)
        behind = max(0, self._source.max_offset() - position)
        if not behind:
            return Lag(0, 0, 0.0)
        known, known_bytes = self._read_not_proven()
        unread = max(0, behind - known_bytes)
        mean = self._mean_record_bytes()
        return Lag(behind, known + math.ceil(unread / mean), self._age_seconds(position))

    def _read_not_proven(self) -> tuple[int, int]:
        count, size = 0, 0
        if self.dispatcher is not None:
            count, size = self.dispatcher.buffer.count, self.dispatcher.buffer.bytes
        if self.committer is not None:
            messages, raw = self.committer.pending()
            count, size = count + messages, size + raw
        return count, size

    def _mean_record_bytes(self) -> float:
        with self._lock:
            return self.totals.bytes / self.totals.messages if self.totals.messages else 1024.0

    def _age_seconds(self, position: PhysicalOffset) -> float | None:
        """Age of the record at ``position``, by its own store time; ``None`` when it cannot be read (now, or ever)."""
        try:
            header = self._source.copy(position, PhysicalOffset(position + HEADER_BYTES))
        except (NotFound, TieredError):
            return None
        flag = int.from_bytes(header[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
        at = STORE_TIMESTAMP_AT + (12 if flag & 0x10 else 0)
        store_ms = int.from_bytes(header[at : at + 8], "big") if at + 8 <= len(header) else 0
        return max(0.0, (self._clock.now_ms() - store_ms) / 1000) if store_ms else None

    def status(self) -> dict[str, object]:
        """The ``/status`` document."""
        head = self._log.proven().head()
        lag = self.lag()
        with self._lock:
            totals = self.totals
            counted = {
                "messages": totals.messages,
                "bytes": totals.bytes,
                "commits": totals.commits,
                "last_commit_ms": totals.last_commit_ms,
            }
        buffer = self.dispatcher.buffer if self.dispatcher is not None else None
        return {
            **self._names,
            "weak_store": self.weak,
            "archive_id": head.archive_id.hex() if head else None,
            "seq": head.seq if head else None,
            "epoch": head.epoch if head else None,
            "lineage": head.lineage if head else None,
            "writer_id": head.writer_id.hex() if head else None,
            "proven_offset": self.position(),
            "local_end": self._source.max_offset(),
            "dispatch_offset": self.dispatcher.position if self.dispatcher is not None else None,
            "messages": self.archived_messages(),
            "lag": {
                "bytes": lag.bytes,
                "messages": lag.messages,
                "seconds": None if lag.seconds is None else round(lag.seconds, 3),
            },
            "since_start": counted,
            "buffer": {"bytes": buffer.bytes if buffer else 0, "messages": buffer.count if buffer else 0},
            "in_flight_bytes": self.committer.pending()[1] if self.committer is not None else 0,
            "hold_bytes": self._source.held_bytes(),
        }
