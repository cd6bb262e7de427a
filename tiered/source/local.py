"""A tail over the commitlog files of a broker that runs beside us: appends, pre-allocates, rolls, truncates and deletes.

Trust, in order: a record must be whole and lie where it says; all but the last are confirmed by the next one's header; the last
by what follows it or by staying unchanged, and it must pass every check itself. Bodies before the last are checked later, on
the private copy; ``read`` with ``max_records=1`` at a record that failed there answers with that record's own verdict.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from enum import Enum

import numpy as np

from tiered.clock import Clock
from tiered.codec.frame import Frames
from tiered.errors import NotFound
from tiered.model import PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source.base import BrokerMark, Chunk, ReadStatus, gap, idle
from tiered.source.catalog import Catalog
from tiered.source.chain import HEAD_BYTES, Chain, Head, HeadKind, RecordWindow, store_times, verified
from tiered.source.files import BrokerFiles, Descriptors, FileTable, LogFile, read_into
from tiered.source.hold import DiskUsage, HardLinkHold, LetGo, disk_percent
from tiered.source.layout import store_layout
from tiered.source.life import BrokerLife, LeftoverGuard
from tiered.source.search import next_readable
from tiered.source.tail import NewestEnd, Patience, Pending, cut_short

_NONE = np.empty(0, np.int64)
_BLANK_HEADER_BYTES = 8

OLD_BYTES_PATIENCE = 10
"""A last record must stay unchanged this many times longer when old bytes lie behind it: its own end may then be
old bytes, too, and a broker stopped in the middle of it would show nothing else."""


class _Behind(Enum):
    """What lies behind a record."""

    CONFIRMS = "confirms"  # can only be there if the record is complete
    NOTHING = "nothing"
    OLD_BYTES = "old bytes"


class LocalCommitLog:
    """``CommitLogSource`` over ``store/commitlog/*``; see the port for what each verb promises.

    ``on_let_go`` is told every physical range that the hold gave up to its budget (from the thread that called ``hold``).
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
    ) -> None:
        layout = store_layout(source, hold)
        self.layout = layout
        self._max_record_bytes = source.max_record_bytes
        self._descriptors = Descriptors()
        links = HardLinkHold(layout.places, layout.broker_directories, hold, clock, on_let_go, disk_usage)
        self._catalog = Catalog(BrokerFiles(layout.commitlog_dirs, clock), links, self._descriptors)
        self._chain = Chain(self._descriptors, source.max_record_bytes)
        self._window = RecordWindow(self._descriptors, source.max_record_bytes)
        self._life = BrokerLife(layout.store_dir)
        self._guard = LeftoverGuard(self._chain)
        self._newest = NewestEnd(self._chain, self._life, self._guard)
        self._pending = Pending(clock, source.confirm_reread_ms)
        self._patience = Patience(clock, source.corrupt_wait_ms)
        self._last: tuple[tuple[int, int], int, int] | None = None
        self._end = PhysicalOffset(0)
        self._mark = BrokerMark(None, None)
        self._walking = threading.Lock()

    # ------------------------------------------------------------------ reading

    def read(self, start: PhysicalOffset, *, max_bytes: int, max_records: int) -> Chunk:
        """Confirmed records from ``start`` on; see ``CommitLogSource.read``."""
        with self._walking:
            returns = self._catalog.returns
            try:
                chunk = self._read(self._catalog.table(), start, max_bytes, max_records)
            except NotFound:
                # Deleted or replaced since the scan: the next look knows, and the hold may have it.
                chunk = self._read_anew(start, max_bytes, max_records)
        away = self._catalog.away
        if chunk.status is ReadStatus.RECORDS or (away is None and self._catalog.returns == returns):
            return chunk
        return idle(
            start, away.message if away else "back just now"
        )  # what is missing may come back: no gap is sure

    def _read_anew(self, start: PhysicalOffset, max_bytes: int, max_records: int) -> Chunk:
        try:
            return self._read(self._catalog.table(force=True), start, max_bytes, max_records)
        except NotFound as gone:
            if self._catalog.away is None:
                raise
            return idle(start, gone.message)  # the hold went with the directory

    def _read(self, table: FileTable, start: PhysicalOffset, max_bytes: int, max_records: int) -> Chunk:
        file = table.at(start)
        if file is None:
            return self._outside(start)
        if self._chain.head(file, start).kind is HeadKind.ZERO and not self._next_written(table, file):
            return idle(start)
        view, frames = self._window.records(file, start, max_bytes, max_records)
        if len(frames) == 0:
            return self._no_record(table, file, start, frames)
        ends = frames.starts + frames.sizes
        count = max(1, min(max_records, int(np.searchsorted(ends, max_bytes, side="right"))))
        moved_on = self._next_written(table, file)
        count, followed = self._believable(file, start, view, frames, count, moved_on=moved_on)
        if count == 0:
            return idle(start, "records of a former run of the broker lie here; waiting for it to write")
        if not followed and not self._last_counts(table, file, start, view, frames, count):
            count -= 1
        if count == 0:
            return idle(start, "the last record is not confirmed yet")
        good = verified(view, frames, count, start)
        if len(good) == 0:
            return self._unreadable(table, file, start, good.detail)
        return self._chunk(file, start, view, good, moved_on=moved_on)

    def _believable(
        self, file: LogFile, start: int, view: memoryview, frames: Frames, count: int, *, moved_on: bool
    ) -> tuple[int, bool]:
        """How many of ``count`` records are not leftovers of a former life, and whether the next one confirms the last."""
        more = count < len(frames)
        if moved_on:
            return count, more
        life_start_ms = self._life.start_ms()
        if life_start_ms is None:
            return count, more
        times = store_times(view, frames.starts)
        if self._last is not None and self._last[:2] == (file.identity, start):
            previous: int | None = self._last[2]
        else:
            previous = self._chain.time_before(file, start) if times[0] < life_start_ms else None
        seam = self._guard.seam(times, previous, life_start_ms)
        if seam is None or seam > count:
            return count, more
        if self._guard.believes(file, start + int(frames.starts[seam])):
            return count, more
        return seam, False

    def _last_counts(
        self, table: FileTable, file: LogFile, start: int, view: memoryview, frames: Frames, count: int
    ) -> bool:
        """Whether the last of ``count`` records is confirmed by what lies behind it, or by staying unchanged."""
        first = int(frames.starts[count - 1])
        data = view[first : first + int(frames.sizes[count - 1])]
        last_time = int(store_times(data, np.zeros(1, np.int64))[0])
        behind = self._behind(table, file, start + first + len(data), last_time)
        if behind is _Behind.CONFIRMS:
            return True
        times = OLD_BYTES_PATIENCE if behind is _Behind.OLD_BYTES else 1
        return self._pending.unchanged((file.identity, start + first), data, times=times) and not cut_short(
            data
        )

    def _behind(self, table: FileTable, file: LogFile, end: int, last_time: int) -> _Behind:
        """What the bytes at ``end`` say about the record before them, which was stored at ``last_time``."""
        if end >= file.end:
            following = table.at(file.end)
            valid = following is not None and self._chain.head(following, file.end).kind is HeadKind.RECORD
            return _Behind.CONFIRMS if valid else _Behind.NOTHING
        head = self._chain.head(file, end)
        if head.kind is HeadKind.RECORD:
            life_start_ms = self._life.start_ms()
            seam = life_start_ms is not None and last_time >= life_start_ms > (head.store_time_ms or 0)
            old = seam and not self._next_written(table, file)
            return _Behind.OLD_BYTES if old else _Behind.CONFIRMS
        if head.kind is HeadKind.BLANK:
            return _Behind.CONFIRMS
        return _Behind.NOTHING if head.kind is HeadKind.ZERO else _Behind.OLD_BYTES

    def _chunk(
        self, file: LogFile, start: PhysicalOffset, view: memoryview, good: Frames, *, moved_on: bool
    ) -> Chunk:
        end = PhysicalOffset(start + good.end)
        last_time = int(store_times(view, good.starts[-1:])[0])
        self._last = (file.identity, end, last_time)
        self._newest.learn(file, end, last_time)
        following, blank = end, b""
        if moved_on and end < file.end:
            head = self._chain.head(file, end)
            if head.kind is HeadKind.BLANK:
                following, blank = file.end, head.raw[:_BLANK_HEADER_BYTES]
        return Chunk(ReadStatus.RECORDS, start, end, following, good.starts, good.sizes, blank)

    def _no_record(self, table: FileTable, file: LogFile, start: PhysicalOffset, frames: Frames) -> Chunk:
        """No whole record begins at ``start``: the tail, the end of the file, or unreadable bytes."""
        head = self._chain.head(file, start)
        if head.kind is HeadKind.BLANK:
            if not self._next_written(table, file):
                return idle(start, "the file is closed; the next one is not written yet")
            blank = head.raw[:_BLANK_HEADER_BYTES]
            return Chunk(ReadStatus.RECORDS, start, start, file.end, _NONE, _NONE, blank)
        if head.kind is HeadKind.ZERO:
            if not self._next_written(table, file):
                return idle(start)
            return self._unreadable(table, file, start, "never written, but the broker wrote the next file")
        return self._unreadable(
            table, file, start, frames.detail or f"no record and no blank that fills the file at {start}"
        )

    def _unreadable(self, table: FileTable, file: LogFile, start: PhysicalOffset, detail: str) -> Chunk:
        """Wait, and once that was long enough give up the bytes up to the next place that can be trusted."""
        moved_on = self._next_written(table, file)
        head = self._chain.peek(file, start, HEAD_BYTES)
        if not self._patience.over((file.identity, start), head, cheap=moved_on):
            return idle(start, f"unreadable: {detail}")
        if self._chain.whole(file, start):
            return idle(start, "written completely just now")
        found = self._next_place(table, file, start)
        if found is None:
            return idle(start, f"unreadable: {detail}")
        return gap(start, found, f"corrupt: {detail}")

    def _next_place(self, table: FileTable, file: LogFile, start: int) -> PhysicalOffset | None:
        """The next place behind unreadable bytes that can be trusted; ``None`` while there is none."""
        moved_on = self._next_written(table, file)
        written_in_ms = None if moved_on else self._life.start_ms()
        found = next_readable(self._chain, file, start, written_in_ms=written_in_ms, blank_counts=moved_on)
        if found is None and moved_on:
            following = table.after(file.base)
            found = following.base if following is not None else None
        return found

    def readable_behind(self, start: PhysicalOffset) -> bool:
        """Whether unreadable bytes at ``start`` are going to be given up, once patience is over, for what lies behind them."""
        with self._walking:
            table = self._catalog.table()
            file = table.at(start)
            return file is not None and self._next_place(table, file, start) is not None

    def _outside(self, start: PhysicalOffset) -> Chunk:
        """No file holds ``start``: not written yet, or deleted."""
        table = self._catalog.table(force=True)
        size = max((f.length for f in table.files), default=0)
        growing = next((f for f in self._catalog.growing if f.base <= start < f.base + max(size, 1)), None)
        if table.at(start) is not None or growing is not None:
            return idle(start, "the file is being created")
        following = table.after(start)
        if following is None:
            return idle(
                start, "the broker has no file for this position yet" if len(table) else "the store is empty"
            )
        return gap(start, following.base, "deleted before it could be archived")

    def _next_written(self, table: FileTable, file: LogFile) -> bool:
        """Whether the broker went on to a later file. A pre-allocated one is still all zeros."""
        following = table.after(file.base)
        return following is not None and self._chain.head(following, following.base).kind is not HeadKind.ZERO

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
        head: Head = self._chain.head(file, file.base)
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
