"""What the daemon says of itself: the lag that cannot lie, and the ``/status`` document.

Lag is the broker's local end minus the *proven* commit, both looked up at the moment of the question: no worker's own idea
of its progress takes part, so a stuck worker shows as growing lag (S11). What is looked up lies on disks, which may hang;
a ``DaemonView`` is what one look found, and documents and gauges are made of it.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections import deque
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Protocol

from tiered.archive.log.flush import Proven
from tiered.archive.log.line import CommitLine
from tiered.archive.log.writer import CommitLog
from tiered.archive.state.tallies import message_count
from tiered.archive.state.values import Head
from tiered.clock import Clock
from tiered.codec.record.layout import HEAD_BYTES, store_time_of
from tiered.daemon.stillness import Stillness
from tiered.errors import NotFound, TieredError
from tiered.metrics import Metrics
from tiered.model import PhysicalOffset
from tiered.source.base import Copies, HeldFiles, Tail
from tiered.write.dispatcher import Dispatcher

RECOUNT_SECONDS = 1.0
RECOUNT_REST = 50.0
"""A walk over all queues is followed by a rest of so many times as long: a million queues take half a second."""
KEPT_COMMITS = 4096


@dataclass(frozen=True, slots=True)
class Lag:
    """Bytes are exact. ``messages`` counts what was read and is not proven exactly, and estimates what is unread from the mean
    record size. ``seconds`` is the larger of the age of the oldest record that is not proven, where it can be read, and the
    time for which the proven offset has not moved: a clock that was set back cannot hide lag, unreadable bytes neither."""

    bytes: int
    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DaemonView:
    """What one look at the log, the fold and the workers found. ``lag``: ``None`` while nothing is known of the archive."""

    local_end: PhysicalOffset
    still_seconds: float
    held_bytes: int
    lag: Lag | None = None
    proven: PhysicalOffset | None = None
    head: Head | None = None
    dispatch_offset: PhysicalOffset | None = None
    buffered: tuple[int, int] = (0, 0)
    in_flight: tuple[int, int] = (0, 0)

    @property
    def read_not_proven(self) -> tuple[int, int]:
        """Messages and bytes in the buffer and in flushes under way."""
        return self.buffered[0] + self.in_flight[0], self.buffered[1] + self.in_flight[1]

    @property
    def seconds(self) -> float:
        """The lag in seconds; never less than the time for which nothing moved."""
        return self.still_seconds if self.lag is None else max(self.still_seconds, self.lag.seconds)

    def lag_document(self) -> dict[str, object]:
        """The part of ``/status`` that tells the lag."""
        lag = self.lag
        return {
            "bytes": None if lag is None else lag.bytes,
            "messages": None if lag is None else lag.messages,
            "seconds": round(self.seconds, 3),
        }


class ReportedLog(Tail, Copies, HeldFiles, Protocol):
    """What the lag is measured by."""


def first_look(source: ReportedLog, stillness: Stillness) -> DaemonView:
    """What can be said before the archive is open: nothing is known to be proven, and no number may look like "no lag"."""
    end = source.max_offset()
    stillness.saw(end, None)
    return DaemonView(end, stillness.seconds(), source.held_bytes())


def set_gauges(metrics: Metrics, view: DaemonView) -> None:
    """Set the gauges that are looked up, not counted."""
    lag = view.lag
    metrics.lag(
        size=math.nan if lag is None else lag.bytes,
        messages=math.nan if lag is None else lag.messages,
        seconds=view.seconds,
        local_end=view.local_end,
        proven=view.proven or 0,
    )
    messages, size = view.read_not_proven
    metrics.buffer_messages.set(messages)
    metrics.buffer_bytes.set(size)
    metrics.hold_bytes.set(view.held_bytes)


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """What was archived since the process started."""

    messages: int = 0
    bytes: int = 0
    commits: int = 0
    last_commit_ms: int | None = None


class ProcessTotals:
    """Counts what is proven. Safe from any thread."""

    def __init__(self) -> None:
        self.counted = ProcessCounts()
        self._lock = threading.Lock()
        self._reached: deque[tuple[int, int]] = deque(((-1, 0),), KEPT_COMMITS)  # messages up to each commit

    def count(self, event: Proven) -> None:
        """One proven flush; called by one thread."""
        before, flush = self.counted, event.flush
        self.counted = ProcessCounts(
            before.messages + flush.messages,
            before.bytes + flush.raw_bytes,
            before.commits + 1,
            event.store_time_ms,
        )
        with self._lock:
            self._reached.append((event.commit.commit.seq, self.counted.messages))

    def behind(self, seq: int) -> int | None:
        """Messages that this process proved by commits behind number ``seq``; ``None`` if it was too many commits ago."""
        with self._lock:
            reached = list(self._reached)
        place = bisect_right(reached, seq, key=itemgetter(0))
        return reached[-1][1] - reached[place - 1][1] if place else None


@dataclass(frozen=True, slots=True)
class Names:
    """What the archive is called. ``weak_store``: what its store does not promise."""

    cluster: str
    broker: str
    archive: str
    weak_store: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workers:
    """Those who read and commit, once the archive is open."""

    dispatcher: Dispatcher
    line: CommitLine


@dataclass(frozen=True, slots=True)
class MessageCount:
    """A count of messages, the commit that it was made at, and by the monotonic clock when the next one may be made."""

    seq: int
    next_walk: float
    messages: int


class Reporter:
    """Answers for ``/status`` and the gauges. Safe from any thread."""

    def __init__(
        self,
        log: CommitLog,
        source: ReportedLog,
        clock: Clock,
        names: Names,
        totals: ProcessTotals,
        stillness: Stillness | None = None,
    ) -> None:
        self._log = log
        self._source = source
        self._clock = clock
        self._stillness = stillness or Stillness(clock, math.inf)
        self._names = names
        self._totals = totals
        self._workers: Workers | None = None
        self._lock = threading.Lock()
        self._archived: MessageCount | None = None

    def set_workers(self, workers: Workers) -> None:
        """The archive is open: from now on the workers are looked at, too."""
        self._workers = workers

    def archived_messages(self) -> int:
        """Messages readable in the archive: summed over all queues now and then, and what this process proved since. What was
        trimmed or rewound meanwhile is seen at the next walk, a second later or, of very many queues, after a rest."""
        head = self._log.proven().head()
        if head is None:
            return 0
        begun = self._clock.monotonic()
        with self._lock:
            kept = self._archived
        since = None if kept is None else self._totals.behind(kept.seq)
        if kept is not None and since is not None and (kept.seq == head.seq or begun < kept.next_walk):
            return kept.messages + since
        fold = self._log.frozen()
        head, messages = fold.head(), message_count(fold.view)
        assert head is not None
        ended = self._clock.monotonic()
        rest = max(RECOUNT_SECONDS, RECOUNT_REST * (ended - begun))
        with self._lock:
            self._archived = MessageCount(head.seq, ended + rest, messages)
        return messages

    def position(self) -> PhysicalOffset | None:
        """Physical offset below which everything is proven; ``None`` before the first position of a lineage is."""
        return _proven_up_to(self._log.proven().head())

    def look(self) -> DaemonView:
        """One look at everything; what it needs is read from files and from the local fold."""
        buffered, in_flight, dispatch_offset = (0, 0), (0, 0), None
        if self._workers is not None:
            dispatcher = self._workers.dispatcher
            buffered, dispatch_offset = (
                (dispatcher.buffer.count, dispatcher.buffer.bytes),
                dispatcher.position,
            )
            in_flight = self._workers.line.pending()
        head = self._log.proven().head()
        proven = _proven_up_to(head)
        end = self._source.max_offset()
        below = proven if proven is not None else self._source.min_offset() or PhysicalOffset(0)
        self._stillness.saw(end, proven)
        return DaemonView(
            local_end=end,
            still_seconds=self._stillness.seconds(),
            held_bytes=self._source.held_bytes(),
            lag=self._lag(below, end, buffered[0] + in_flight[0], buffered[1] + in_flight[1]),
            proven=proven,
            head=head,
            dispatch_offset=dispatch_offset,
            buffered=buffered,
            in_flight=in_flight,
        )

    def lag(self) -> Lag:
        """Local end minus proven commit."""
        lag = self.look().lag
        assert lag is not None
        return lag

    def _lag(self, proven: PhysicalOffset, end: PhysicalOffset, known: int, known_bytes: int) -> Lag:
        behind = max(0, end - proven)
        if not behind:
            return Lag(0, 0, 0.0)
        unread = math.ceil(max(0, behind - known_bytes) / self._mean_record_bytes())
        age = self._age_seconds(proven) or 0.0
        return Lag(behind, known + unread, max(age, self._stillness.seconds()))

    def _mean_record_bytes(self) -> float:
        counted = self._totals.counted
        return counted.bytes / counted.messages if counted.messages else 1024.0

    def _age_seconds(self, position: PhysicalOffset) -> float | None:
        """Age of the record at ``position``, by its own store time; ``None`` when it cannot be read (now, or ever)."""
        try:
            header = self._source.copy(position, PhysicalOffset(position + HEAD_BYTES))
        except (NotFound, TieredError):
            return None
        store_ms = store_time_of(header)
        if store_ms is None or store_ms <= 0:  # damaged bytes may say anything
            return None
        return max(0.0, (self._clock.now_ms() - store_ms) / 1000)

    def status(self, view: DaemonView | None = None, *, count: bool = True) -> dict[str, object]:
        """The ``/status`` document, of ``view`` or of a look of its own. ``count``: walk over all queues for the number of
        messages, which reads the local state; else it is the number last counted."""
        view = view or self.look()
        kept = self._archived
        messages = self.archived_messages() if count else kept.messages if kept else None
        head = view.head
        return {
            "cluster": self._names.cluster,
            "broker": self._names.broker,
            "archive": self._names.archive,
            "weak_store": list(self._names.weak_store),
            "local_state_made_again": self._log.store.cleared,
            "archive_id": head.archive_id.hex() if head else None,
            "seq": head.seq if head else None,
            "epoch": head.epoch if head else None,
            "lineage": head.lineage if head else None,
            "writer_id": head.writer_id.hex() if head else None,
            "proven_offset": view.proven,
            "local_end": view.local_end,
            "dispatch_offset": view.dispatch_offset,
            "messages": messages,
            "lag": view.lag_document(),
            "since_start": asdict(self._totals.counted),
            "buffer": {"bytes": view.buffered[1], "messages": view.buffered[0]},
            "in_flight_bytes": view.in_flight[1],
            "hold_bytes": view.held_bytes,
        }


def _proven_up_to(head: Head | None) -> PhysicalOffset | None:
    """Physical offset up to which the lineage of a head is proven."""
    if head is None or head.lineage not in head.progress:
        return None
    return PhysicalOffset(head.progress[head.lineage].physical_offset)
