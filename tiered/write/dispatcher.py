"""The way in, as one step: look at the source, buffer references, flush when due. Back-pressure is not reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.log.writer import CommitLog
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import NotFound, Unavailable
from tiered.model import PhysicalOffset
from tiered.settings import Dispatch, Source
from tiered.source.base import BrokerMark, Chunk, CommitLogSource, ReadStatus
from tiered.write.buffer import UploadBuffer
from tiered.write.committer import Committer, PreparedFlush
from tiered.write.planner import gap_edit, progress_edit
from tiered.write.preparer import Changed, Mark, Preparer

READ_BYTES = 8 * 1024 * 1024
"""Most bytes asked of the source at once: keeps a step short while a backlog is caught up."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who hears what happens: counters and logs live above this floor."""

    gap: Callable[[PhysicalOffset, PhysicalOffset, str], None] = lambda start, end, reason: None
    prepared: Callable[[PreparedFlush], None] = lambda flush: None
    changed: Callable[[str], None] = lambda detail: None
    alive: Callable[[], None] = lambda: None
    """Called while a step waits for the store: it is waiting, not wedged."""


class Dispatcher:
    """Reads the source into the upload buffer and hands planned flushes to the committer. ``step`` is one unit of work."""

    def __init__(
        self,
        source: CommitLogSource,
        log: CommitLog,
        preparer: Preparer,
        committer: Committer,
        clock: Clock,
        settings: Dispatch,
        source_settings: Source,
        *,
        position: PhysicalOffset,
        broker_mark: BrokerMark,
        reconcile: Callable[[], tuple[PhysicalOffset, Mark]],
        healed: Callable[[], bool] = lambda: False,
        beat_seconds: float | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._source = source
        self._log = log
        self._preparer = preparer
        self._committer = committer
        self._clock = clock
        self._poll_seconds = source_settings.poll_interval_ms / 1000
        self._restart_seconds = source_settings.restart_check_ms / 1000
        self._reconcile = reconcile
        self._healed = healed
        self._beat_seconds = beat_seconds
        self._last_submit = clock.monotonic()
        self._hooks = hooks or Hooks()
        self.buffer = UploadBuffer(
            max_bytes=settings.group_commit_bytes,
            max_count=settings.group_commit_count,
            max_age_seconds=settings.group_commit_interval_ms / 1000,
        )
        self.position = position
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
        room = self._committer.room
        if self.buffer.due(now):
            if room or self._committer.wait_for_room(self._poll_seconds):
                self._flush()
            return 0.0
        self._beat()
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
        return self._poll_seconds if due_in is None else min(self._poll_seconds, due_in)

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
            if self._committer.wait_for_room(0.1):
                self._flush()
            elif self._clock.monotonic() >= deadline:
                return False
        while not self._committer.wait_idle(0.1):
            if self._clock.monotonic() >= deadline:
                return False
        return True

    def _flush(self) -> None:
        extent = self.buffer.take()
        done = extent.start
        try:
            for flush in self._preparer.prepare(extent, self._same_broker):
                self._await_room()
                self._submit(flush)
                done = flush.next_offset
        except (NotFound, Unavailable) as e:
            self.position = done  # nothing is lost: what was not planned is read again
            raise Unavailable(
                "the source could not give bytes that it had shown; reading them again", cause=e.message
            ) from e
        except Changed as e:
            self._hooks.changed(str(e))
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
        lineage = self._preparer.lineage
        edits = [
            gap_edit(lineage, chunk.start, chunk.next_offset, chunk.reason),
            progress_edit(lineage, [(chunk.next_offset, 0, chunk.next_offset)]),
        ]
        self._committer.wait_settled()
        planned = self._log.plan(self._log.ticket(), edits)
        self._preparer.mark = Mark(chunk.next_offset, 0, chunk.next_offset)
        self._submit(
            PreparedFlush(planned, (), chunk.next_offset, self._clock.monotonic(), messages=0, raw_bytes=0)
        )
        self._hooks.gap(chunk.start, chunk.next_offset, chunk.reason)
        self.position = chunk.next_offset

    def _await_room(self) -> None:
        while not self._committer.wait_for_room(1.0):
            self._hooks.alive()

    def _submit(self, flush: PreparedFlush) -> None:
        self._committer.submit(flush)
        self._last_submit = self._clock.monotonic()
        self._hooks.prepared(flush)

    def _beat(self) -> None:
        """With a standby watching, show that this writer lives: the same Progress again when nothing was committed for long."""
        now = self._clock.monotonic()
        if self._beat_seconds is None or now - self._last_submit < self._beat_seconds:
            return
        mark = self._preparer.mark
        edit = progress_edit(self._preparer.lineage, [(mark.offset, mark.crc, mark.crc_from)])
        self._committer.wait_settled()
        planned = self._log.plan(self._log.ticket(), [edit])
        self._submit(PreparedFlush(planned, (), mark.offset, now, messages=0, raw_bytes=0))

    def _watch_broker(self, now: float) -> None:
        """Compare broker and archive again whenever the broker was restarted: it may have lost its tail."""
        if now < self._next_broker_look:
            return
        self._next_broker_look = now + self._restart_seconds
        mark = self._source.broker_mark()
        if mark != self._broker or self._healed():
            self._drop_and_reconcile()

    def _same_broker(self) -> bool:
        """Asked after a flush was copied and before it is planned: bytes of two lives of the broker must never meet in one."""
        return self._source.broker_mark() == self._broker

    def _drop_and_reconcile(self) -> None:
        """Forget what is only buffered, let what is in flight become real, then ask where shared history ends.

        A comparison that fails is tried again before anything else is read.
        """
        self._must_reconcile = True
        self.buffer.clear()
        while not self._committer.wait_idle(1.0):
            self._hooks.alive()
        self._broker = self._source.broker_mark()
        self.position, self._preparer.mark = self._reconcile()
        self._must_reconcile = False
