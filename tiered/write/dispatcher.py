"""The way in, as one step: look at the source, buffer references, flush when due. Back-pressure is not reading."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from tiered.archive.log.flush import Flush, Proven, Unsettled
from tiered.archive.log.line import CommitLine
from tiered.archive.log.marks import Mark, gap_edit
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import NotFound, Unavailable
from tiered.model import PhysicalOffset
from tiered.settings import Settings
from tiered.source.base import BrokerMark, Chunk, HeldFiles, Life, ReadStatus, Tail
from tiered.write.buffer import UploadBuffer
from tiered.write.draft import Draft
from tiered.write.events import Events
from tiered.write.preparer import Changed, Preparer

READ_BYTES = 8 * 1024 * 1024
"""Most bytes asked of the source at once: keeps a step short while a backlog is caught up."""


@dataclass(frozen=True, slots=True)
class DispatchPace:
    """When to look at the source and at the broker, and when a flush is due."""

    poll_seconds: float
    restart_check_seconds: float
    flush_bytes: int
    flush_count: int
    flush_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> DispatchPace:
        """As the settings say."""
        source, dispatch = settings.source, settings.dispatch
        return cls(
            poll_seconds=source.poll_interval_ms / 1000,
            restart_check_seconds=source.restart_check_ms / 1000,
            flush_bytes=dispatch.group_commit_bytes,
            flush_count=dispatch.group_commit_count,
            flush_seconds=dispatch.group_commit_interval_ms / 1000,
        )


def unheard(draft: Draft) -> None:
    """Nobody asks about drafts."""


class HeldTail(Tail, HeldFiles, Life, Protocol):
    """A commitlog that is read on while its files are held."""


class Comparison(Protocol):
    """The broker beside its archive, compared while the writer runs."""

    def reconcile(self) -> Mark:
        """Compare again after a restart of the broker, rewind if it lost its tail: where to go on. Nothing may be in flight."""
        ...

    def gap_was_rewritten(self) -> bool:
        """Whether the broker has written over bytes that were recorded as a gap."""
        ...


class Dispatcher:
    """Reads the source into the upload buffer and puts drafts in the line of commits. ``step`` is one unit of work."""

    def __init__(
        self,
        source: HeldTail,
        preparer: Preparer,
        line: CommitLine,
        clock: Clock,
        pace: DispatchPace,
        comparison: Comparison,
        events: Events,
        *,
        mark: Mark,
        broker_mark: BrokerMark,
        drafted: Callable[[Draft], None] = unheard,
    ) -> None:
        """``mark``: where to begin. ``broker_mark``: of the broker that was compared. ``drafted`` hears of each draft that was
        submitted."""
        self._source = source
        self._preparer = preparer
        self._line = line
        self._clock = clock
        self._pace = pace
        self._comparison = comparison
        self._events = events
        self._drafted = drafted
        self.buffer = UploadBuffer(
            max_bytes=pace.flush_bytes, max_count=pace.flush_count, max_age_seconds=pace.flush_seconds
        )
        self.position = mark.offset
        self._mark = mark  # at the end of what was submitted
        self._broker = broker_mark
        self._next_broker_look = 0.0
        self._must_reconcile = False
        self.caught_up = False
        self.waiting_for = ""
        self._suspect: PhysicalOffset | None = None

    def step(self) -> float:
        """One look. Returns the seconds that may pass before the next one (0: more is there)."""
        now = self._clock.monotonic()
        if self._must_reconcile:
            self._drop_and_reconcile()
        self._watch_broker(now)
        room = self._line.room
        if self.buffer.due(now):
            if room or self._line.wait_for_room(self._pace.poll_seconds):
                self._flush()
            return 0.0
        self._source.hold()
        reach(CrashPoint.AFTER_HOLD)
        chunk = self._read()
        self.caught_up = chunk.status is ReadStatus.IDLE
        self.waiting_for = chunk.reason if self.caught_up else ""
        if chunk.status is ReadStatus.RECORDS:
            self.buffer.add(chunk, self._clock.monotonic())
            self.position = chunk.next_offset
            reach(CrashPoint.AFTER_BUFFER)
            return 0.0
        if chunk.status is ReadStatus.GAP:
            self._physical_gap(chunk)
            return 0.0
        due_in = self.buffer.due_in(self._clock.monotonic())
        return self._pace.poll_seconds if due_in is None else min(self._pace.poll_seconds, due_in)

    def _read(self) -> Chunk:
        """Read on. A record that failed validation is approached alone: only then the source can say that it is damaged."""
        most_bytes, most_records = min(READ_BYTES, self.buffer.room_bytes), self.buffer.room_count
        if self._suspect is not None and self.position < self._suspect:
            most_bytes = min(most_bytes, self._suspect - self.position)
        elif self._suspect is not None and self.position == self._suspect:
            most_records = 1
        chunk = self._source.read(
            self.position, max_bytes=max(1, most_bytes), max_records=max(1, most_records)
        )
        if (
            self._suspect is not None
            and chunk.status is not ReadStatus.IDLE
            and chunk.next_offset > self._suspect
        ):
            self._suspect = None
        return chunk

    def drain(self, timeout_seconds: float) -> bool:
        """Flush what is buffered and wait until everything is proven; false if that takes longer."""
        deadline = self._clock.monotonic() + timeout_seconds
        while self.buffer:
            if self._line.wait_for_room(0.1):
                self._flush()
            elif self._clock.monotonic() >= deadline:
                return False
        while not self._line.wait_idle(0.1):
            if self._clock.monotonic() >= deadline:
                return False
        return True

    def _flush(self) -> None:
        extent = self.buffer.take()
        done = extent.start
        try:
            for draft in self._preparer.prepare(extent, self._mark, self._same_broker):
                self._await_room()
                self._submit(draft, draft.mark)
                self._drafted(draft)
                done = draft.next_offset
        except (NotFound, Unavailable) as e:
            self.position = done  # nothing is lost: what was not planned is read again
            raise Unavailable(
                "the source could not give bytes that it had shown; reading them again", cause=e.message
            ) from e
        except Changed as e:
            self._events.changed(str(e))
            self.buffer.read_again(extent.first_seen)
            self._suspect = e.suspect
            self._drop_and_reconcile()

    def _physical_gap(self, chunk: Chunk) -> None:
        """Commit everything before it, then the gap itself, so that it stands exactly where the bytes are missing."""
        while self.buffer:
            self._await_room()
            self._flush()
        self._await_room()
        if self.position != chunk.start or not self._same_broker():
            return  # what was read may be of another life of the broker: the next step compares
        lineage, mark = self._preparer.lineage, Mark.at(chunk.next_offset)
        gap = gap_edit(lineage, chunk.start, chunk.next_offset, chunk.reason)
        self._submit(Flush((gap, mark.progress(lineage)), mark.offset, self._clock.monotonic()), mark)
        self._events.gap(chunk.start, chunk.next_offset, chunk.reason)
        self.position = chunk.next_offset

    def _await_room(self) -> None:
        while not self._line.wait_for_room(1.0):
            self._events.alive()

    def _submit(self, flush: Unsettled, mark: Mark) -> None:
        self._line.submit(flush).add_done_callback(self._learn)
        self._mark = mark

    def _learn(self, done: Future[Proven | None]) -> None:
        """What the edits of a flush took, for the size of those that come. In the committer's thread."""
        proven = None if done.cancelled() or done.exception() is not None else done.result()
        if proven is not None and proven.flush.dispatch_offsets is not None:
            queues = len(proven.flush.dispatch_offsets.topics)
            self._preparer.learn(queues, proven.commit.footer.edits_length)

    def _watch_broker(self, now: float) -> None:
        """Compare broker and archive again whenever the broker was restarted: it may have lost its tail."""
        if now < self._next_broker_look:
            return
        self._next_broker_look = now + self._pace.restart_check_seconds
        mark = self._source.broker_mark()
        if mark != self._broker or self._comparison.gap_was_rewritten():
            self._drop_and_reconcile()

    def _same_broker(self) -> bool:
        """Asked after a flush was copied and before it is planned: bytes of two lives of the broker must never meet in one."""
        return self._source.broker_mark() == self._broker

    def _drop_and_reconcile(self) -> None:
        """Forget what is only buffered, let what is in flight become real, then ask where shared history ends.

        A comparison that fails is tried again before anything else is read.
        """
        self._must_reconcile = True
        self.buffer.drop()
        while not self._line.wait_idle(1.0):
            self._events.alive()
        self._broker = self._source.broker_mark()
        self._mark = self._comparison.reconcile()
        self.position = self._mark.offset
        self._must_reconcile = False
