"""A tail over the commitlog files of a broker that runs beside us: appends, pre-allocates, rolls, truncates and deletes.

What may be handed out is decided in ``reading``; this is the port's front, and what is there besides records.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from tiered.clock import Clock
from tiered.codec.record.layout import store_times
from tiered.errors import NotFound
from tiered.model import PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source.base import BrokerMark, Chunk, ReadStatus, Wait, idle
from tiered.source.catalog import Catalog
from tiered.source.descriptors import Descriptors, read_into
from tiered.source.files import BrokerFiles, FileTable, LogFile
from tiered.source.hold import DiskUsage, HardLinkHold, LetGo, disk_percent
from tiered.source.layout import store_layout
from tiered.source.life import BrokerLife, LeftoverGuard
from tiered.source.limit import AskBroker, RecordLimit
from tiered.source.queues import QueueNumbering
from tiered.source.reading import Reading
from tiered.source.tail import LookBehind, NewestEnd, Written
from tiered.source.walk import Chain, RecordHead


class LocalCommitLog:
    """``CommitLogSource`` over ``store/commitlog/*``; see the port for what each verb promises.

    ``on_let_go`` is told every physical range that the hold gave up to its budget (from the thread that called ``hold``).
    ``ask_broker`` is asked, while a ``read`` waits, for the broker's ``maxMessageSize`` when a larger record is met.
    Every verb may be called from any thread: ``read`` and ``max_offset`` share what they learn, under one lock.
    """

    def __init__(
        self,
        source: Source,
        hold: Hold,
        clock: Clock,
        *,
        on_let_go: LetGo | None = None,
        disk_usage: DiskUsage = disk_percent,
        ask_broker: AskBroker = lambda: None,
    ) -> None:
        layout = store_layout(source, hold)
        self.layout = layout
        self._descriptors = Descriptors()
        links = HardLinkHold(layout.places, layout.broker_directories, hold, clock, on_let_go, disk_usage)
        self._catalog = Catalog(BrokerFiles(layout.commitlog_dirs, clock), links, self._descriptors)
        self._clock = clock
        limit = RecordLimit(source.max_record_bytes, ask_broker, clock)
        self._chain = Chain(self._descriptors, limit)
        self._life = BrokerLife(layout.store_dir)
        guard, written = LeftoverGuard(self._chain), Written(self._chain)
        behind = LookBehind(self._chain, self._life, written, clock)
        self._newest = NewestEnd(self._chain, self._life, guard, written, behind)
        self._reading = Reading(
            self._catalog,
            self._descriptors,
            self._chain,
            self._life,
            guard,
            written,
            self._newest.learn,
            source,
            clock,
        )
        self._numbering = QueueNumbering(layout.store_dir)
        self._waiting: Wait | None = None
        self._end = PhysicalOffset(0)
        self._mark = BrokerMark(None, None)
        self._walking = threading.Lock()

    # ------------------------------------------------------------------ reading

    def read(self, start: PhysicalOffset, *, max_bytes: int, max_records: int) -> Chunk:
        """Confirmed records from ``start`` on; see ``CommitLogSource.read``."""
        with self._walking:
            returns = self._catalog.returns
            try:
                chunk = self._reading.read(self._catalog.table(), start, max_bytes, max_records)
            except NotFound:
                # Deleted or replaced since the scan: the next look knows, and the hold may have it.
                chunk = self._read_anew(start, max_bytes, max_records)
            away = self._catalog.away
            if chunk.status is not ReadStatus.RECORDS and (away or self._catalog.returns != returns):
                # What is missing may come back: no gap is sure.
                chunk = idle(start, away.message if away else "back just now")
            self._note(chunk)
        return chunk

    def stored(self, place: PhysicalOffset) -> None:
        """See ``BrokerAnswers``."""
        self._reading.stored.told(place)

    def _note(self, chunk: Chunk) -> None:
        if chunk.status is not ReadStatus.IDLE or not chunk.reason:
            self._waiting = None
            return
        before = self._waiting
        same = before is not None and before.position == chunk.start
        since = before.since if before is not None and same else self._clock.monotonic()
        self._waiting = Wait(chunk.start, chunk.reason, since, chunk.problem)

    def _read_anew(self, start: PhysicalOffset, max_bytes: int, max_records: int) -> Chunk:
        try:
            return self._reading.read(self._catalog.table(force=True), start, max_bytes, max_records)
        except NotFound as gone:
            if self._catalog.away is None:
                raise
            return idle(start, gone.message)  # the hold went with the directory

    def readable_behind(self, start: PhysicalOffset) -> bool:
        """Whether what cannot be read at ``start`` is going to be given up, once patience is over, for what lies behind it."""
        with self._walking:
            return self._reading.readable_behind(self._catalog.table(), start)

    def missing_at(self, position: PhysicalOffset) -> int:
        """How many bytes the file that holds ``position`` lacks at its end: all files of a broker have one length."""
        file = self._catalog.table().at(position)
        return 0 if file is None else file.missing

    @property
    def waiting(self) -> Wait | None:
        """What the last ``read`` waits for; see ``CommitLogSource.waiting``."""
        return self._waiting

    @property
    def patience_seconds(self) -> float:
        """The longest that ``read`` waits at one place before it goes on, or has no more to give."""
        return self._reading.patience_seconds

    # ------------------------------------------------------------------ copies

    def copy(self, start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        """A private copy of [start, end) from the file that ``read`` reads; see ``CommitLogSource.copy``."""
        copy = _room(start, end)
        self.copy_into(start, end, memoryview(copy))
        return copy

    def copy_into(self, start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        """The same into memory of the caller's; see ``CommitLogSource.copy_into``."""
        try:
            self._copy(self._catalog.table(), start, end, target)
        except NotFound:
            self._copy(self._catalog.table(force=True), start, end, target)

    def copy_local(self, start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        """The same from the broker's own directory."""
        copy = _room(start, end)
        try:
            self._copy(self._catalog.own(), start, end, memoryview(copy))
        except NotFound:
            self._copy(self._catalog.own(force=True), start, end, memoryview(copy))
        return copy

    def _copy(self, table: FileTable, start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        file = table.at(start)
        if file is None or (end > file.end):
            raise NotFound(
                "these bytes of the commitlog are not there",
                start=start,
                end=end,
                found="no file" if file is None else f"a file that ends at {file.end}",
            )
        with self._descriptors.borrow(file) as descriptor:
            count = read_into(descriptor, target, start - file.base, file.path)
        if count < len(target):
            raise NotFound("the commitlog file is shorter than it was", path=file.path, start=start, end=end)

    # ------------------------------------------------------------------ what is there

    def file_start(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """First byte of the file that holds ``offset``."""
        file = self._catalog.table().at(offset)
        return None if file is None else file.base

    def min_offset(self) -> PhysicalOffset | None:
        """First byte of the broker's oldest own file."""
        own = self._catalog.own().files
        return own[0].base if own else None

    def max_offset(self) -> PhysicalOffset:
        """End of the last record the broker wrote, confirmed or not."""
        with self._walking:
            try:
                end = self._newest.find(self._catalog.table())
            except NotFound:
                try:
                    end = self._newest.find(self._catalog.table(force=True))
                except NotFound:
                    if self._catalog.away is None:
                        raise
                    end = self._end
            self._end = end if self._catalog.away is None else max(end, self._end)
            return self._end

    def files(self) -> tuple[LogFile, ...]:
        """Every file that ``read`` can read, held or the broker's own, oldest first."""
        return self._catalog.table().files

    def first_time(self, file: LogFile) -> int | None:
        """Store time in ms of a file's first record; ``None`` if there is none yet."""
        head: RecordHead = self._chain.head(file, file.base)
        return head.store_time_ms

    def find_time(self, file: LogFile, time_ms: int) -> PhysicalOffset | None:
        """The first record of one file stored at or after ``time_ms``."""
        for start, view, frames in self._chain.walk(file, file.base):
            late = store_times(view, frames.starts) >= time_ms
            if late.any():
                return PhysicalOffset(start + int(frames.starts[int(late.argmax())]))
        return None

    def broker_mark(self) -> BrokerMark:
        """Identity and change time of ``lock`` and ``abort``; as it was while a directory is away."""
        mark = self._life.mark()
        self._catalog.table()  # second: if the store went away before the mark was taken, this knows
        if self._catalog.away is None:
            self._mark = replace(mark, returns=self._catalog.returns)
        return self._mark

    def counts_inner(self, topic: str, queue_id: int) -> bool:
        """Whether the broker numbers this queue by the messages in a batch; see ``CommitLogSource.counts_inner``."""
        return self._numbering.counts_inner(topic, queue_id)

    @property
    def away(self) -> NotFound | None:
        """What is missing while a directory of the broker is away: the hold is read meanwhile, and nothing is compared."""
        return self._catalog.away

    # ------------------------------------------------------------------ the hold

    def hold(self) -> None:
        """Link what is not linked, enforce the budget."""
        self._catalog.hold()

    def release(self, up_to: PhysicalOffset) -> None:
        """Let go of files wholly below ``up_to``."""
        self._catalog.release(up_to)

    def disown(self) -> None:
        """Read no held file any more that is not the broker's own now; see ``CommitLogSource.disown``."""
        self._catalog.disown()

    def held_bytes(self) -> int:
        """Bytes that only the hold keeps alive."""
        return self._catalog.held_bytes()

    def held_files(self) -> tuple[LogFile, ...]:
        """Every link in the hold."""
        return self._catalog.held_files()

    def close(self) -> None:
        """Close every descriptor. Links stay: the next run finds them."""
        self._descriptors.close()
        self._life.close()


def _room(start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
    if start > end:
        raise ValueError(f"bad range [{start}, {end})")
    return bytearray(end - start)
