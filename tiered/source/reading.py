"""What may be handed out at a place of the log, what is waited for, and what is given up.

Trust, in order: a record must be whole and lie where it says; all but the last are confirmed by the next one's header; the last
by what follows it, by the broker's answer to who sent it (where that is told) or by staying unchanged, and it must pass every
check itself. Bodies before the last are checked later, on the private copy; ``read`` with ``max_records=1`` at a record that
failed there answers with that record's own verdict.

Nothing is waited for without end: whatever cannot be read and has something behind it that counts is given up as a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from tiered.clock import Clock
from tiered.codec.record.frame import Frames, lacks_its_end
from tiered.codec.record.layout import HEAD_BYTES, store_times
from tiered.model import PhysicalOffset
from tiered.settings import Source
from tiered.source.base import Chunk, ReadStatus, gap, idle
from tiered.source.catalog import Catalog
from tiered.source.descriptors import Descriptors
from tiered.source.files import FileTable, LogFile, changed_ms
from tiered.source.life import BrokerLife, LeftoverGuard
from tiered.source.tail import (
    LOOKS,
    Completeness,
    LookBehind,
    Patience,
    StoredPlaces,
    UnconfirmedRecord,
    Written,
)
from tiered.source.walk import Chain, HeadKind, RecordHead, RecordWindow, sound_records

_NONE = np.empty(0, np.int64)
_BLANK_HEADER_BYTES = 8
_NO_FILE = (0, 0)

OLD_BYTES_PATIENCE = 10
"""A last record must stay unchanged this many times longer when old bytes lie behind it: its own end may then be
old bytes, too, and a broker stopped in the middle of it would show nothing else."""


class _Last(Enum):
    """What the last of some records is."""

    COUNTS = "counts"
    SETTLING = "settling"  # nothing confirms it yet
    TORN = "torn"  # nothing did, and its end is missing


class _Behind(Enum):
    """What lies behind a record."""

    CONFIRMS = "confirms"  # can only be there if the record is complete
    NOTHING = "nothing"
    OLD_BYTES = "old bytes"


class Reading:
    """Finds what ``read`` answers. Its owner serialises calls. ``learn`` is told the end of what was read."""

    def __init__(
        self,
        catalog: Catalog,
        descriptors: Descriptors,
        chain: Chain,
        life: BrokerLife,
        guard: LeftoverGuard,
        written: Written,
        learn: Callable[[LogFile, int, int], None],
        source: Source,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._chain = chain
        self._life = life
        self._guard = guard
        self._written = written
        self._learn = learn
        self._window = RecordWindow(descriptors, chain.limit)
        self.stored = StoredPlaces()
        self._pending = UnconfirmedRecord(clock, source.confirm_reread_ms)
        self._patience = Patience(clock, source.corrupt_wait_ms)
        self._complete = Completeness(chain, clock)
        self._behind_here = LookBehind(chain, life, written, clock)
        self._clock = clock
        self._wait_ms = source.corrupt_wait_ms
        self._last: tuple[tuple[int, int], int, int] | None = None
        waits_ms = source.corrupt_wait_ms + OLD_BYTES_PATIENCE * source.confirm_reread_ms
        self.patience_seconds = waits_ms / 1000 + 2 * LOOKS.most_seconds

    def read(self, table: FileTable, start: PhysicalOffset, max_bytes: int, max_records: int) -> Chunk:
        """See ``CommitLogSource.read``. ``NotFound`` if a file went since the look at the directories."""
        place = self.stored.look()
        found = self._read(table, start, max_bytes, max_records)
        file = table.at(start)
        if place >= start and found.status is ReadStatus.IDLE and file is not None and place < file.end:
            self.stored.doubt()
        return found

    def _read(self, table: FileTable, start: PhysicalOffset, max_bytes: int, max_records: int) -> Chunk:
        file = table.at(start)
        if file is None:
            return self._outside(start)
        moved_on = self._written.beyond(table, file)
        if self._chain.head(file, start).kind is HeadKind.ZERO and not moved_on:
            return self._at_end(table, file, start)
        view, frames = self._window.records(file, start, max_bytes, max_records)
        if len(frames) == 0:
            return self._no_record(table, file, start, frames, moved_on=moved_on)
        ends = frames.starts + frames.sizes
        count = max(1, min(max_records, int(np.searchsorted(ends, max_bytes, side="right"))))
        count, followed = self._believable(file, start, view, frames, count, moved_on=moved_on)
        if count == 0:
            return idle(start, "records of a former run of the broker lie here; waiting for it to write")
        last = _Last.COUNTS if followed else self._judge_last(table, file, start, view, frames, count)
        count -= last is not _Last.COUNTS
        if count == 0 and last is _Last.TORN:
            return self._unreadable(
                table, file, start, "topic or properties of the record end in zeros", torn=True
            )
        if count == 0:
            return idle(start, "the last record is not confirmed yet")
        good = sound_records(view, frames, count, start)
        if len(good) == 0:
            return self._unreadable(table, file, start, good.detail)
        return self._chunk(file, start, view, good, moved_on=moved_on)

    def readable_behind(self, table: FileTable, start: PhysicalOffset) -> bool:
        """Whether ``start`` is going to be given up for what lies behind it; looked up at a bounded pace."""
        file = table.at(start)
        if file is None:
            return table.after(start) is not None
        return self._behind_here.look(table, file, start, settle=False) is not None

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

    def _judge_last(
        self, table: FileTable, file: LogFile, start: int, view: memoryview, frames: Frames, count: int
    ) -> _Last:
        """Whether the last of ``count`` records is confirmed by what lies behind it, by its broker, or by staying unchanged."""
        first = int(frames.starts[count - 1])
        data = view[first : first + int(frames.sizes[count - 1])]
        last_time = int(store_times(data, np.zeros(1, np.int64))[0])
        behind = self._behind(table, file, start + first + len(data), last_time)
        if behind is _Behind.CONFIRMS:
            return _Last.COUNTS
        if behind is _Behind.NOTHING and self.stored.vouched(start + first) and not lacks_its_end(data):
            return _Last.COUNTS
        times = OLD_BYTES_PATIENCE if behind is _Behind.OLD_BYTES else 1
        if not self._pending.unchanged((file.identity, start + first), data, times=times):
            return _Last.SETTLING
        return _Last.TORN if lacks_its_end(data) else _Last.COUNTS

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
            old = seam and not self._written.beyond(table, file)
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
        self._learn(file, end, last_time)
        following, blank = end, b""
        if moved_on and end < file.end:
            head = self._chain.head(file, end)
            if head.kind is HeadKind.BLANK:
                following, blank = file.end, head.raw[:_BLANK_HEADER_BYTES]
        return Chunk(ReadStatus.RECORDS, start, end, following, good.starts, good.sizes, blank)

    def _no_record(
        self, table: FileTable, file: LogFile, start: PhysicalOffset, frames: Frames, *, moved_on: bool
    ) -> Chunk:
        """No whole record begins at ``start``: the tail, the end of the file, or unreadable bytes."""
        head = self._chain.head(file, start)
        if head.size > self._chain.limit.bytes:
            return self._too_large(table, file, start, head)
        if head.kind is HeadKind.BLANK:
            if not moved_on:
                return self._at_end(table, file, start, "the file is closed; the next one is not written yet")
            blank = head.raw[:_BLANK_HEADER_BYTES]
            return Chunk(ReadStatus.RECORDS, start, start, file.end, _NONE, _NONE, blank)
        if head.kind is HeadKind.ZERO:
            if not moved_on:
                return self._at_end(table, file, start)
            missing = start >= file.base + file.stored
            what = f"the file lacks its last {file.missing} bytes" if missing else "never written"
            return self._unreadable(table, file, start, f"{what}, but the broker wrote the next file")
        return self._unreadable(
            table, file, start, frames.detail or f"no record and no blank that fills the file at {start}"
        )

    def _too_large(self, table: FileTable, file: LogFile, start: PhysicalOffset, head: RecordHead) -> Chunk:
        """A record above the limit: no damage if it is whole, and for the broker or an operator to allow."""
        if not self._complete.known(file, start, head):
            detail = f"record of {head.size} bytes, more than source.max_record_bytes, and not whole"
            return self._unreadable(table, file, start, detail)
        if self._chain.limit.allows(head.size):
            return idle(start, "the broker accepts larger records than source.max_record_bytes says")
        problem = self._chain.limit.exceeded(start, head.size, file.path)
        return idle(start, problem.message, problem)

    def _at_end(self, table: FileTable, file: LogFile, start: PhysicalOffset, reason: str = "") -> Chunk:
        """The log's end, as far as its head tells: zeros, or a file that is closed. A hole looks the same."""
        if self._behind_here.look(table, file, start, settle=True) is None:
            cut = file.missing and start >= file.base + file.stored
            return idle(start, f"unreadable: the file lacks its last {file.missing} bytes" if cut else reason)
        if self._written.beyond(table, file):
            return idle(start, "unreadable: the next file begins with zeros, but is written")
        return self._unreadable(table, file, start, "zeros, but the broker wrote behind them")

    def _unreadable(
        self, table: FileTable, file: LogFile, start: PhysicalOffset, detail: str, *, torn: bool = False
    ) -> Chunk:
        """Wait, and once that was long enough give up the bytes up to the next place that can be trusted. Nothing is waited for
        where the broker went past them long ago.

        ``torn``: a record that passes every check is part of them.
        """
        moved_on = self._written.beyond(table, file)
        head = self._chain.peek(file, start, HEAD_BYTES)
        over = self._patience.over((file.identity, start), head, cheap=moved_on)
        if not over and not self._passed(table, file, start, moved_on=moved_on):
            return idle(start, f"unreadable: {detail}")
        if not torn and self._chain.whole(file, start):
            return idle(start, "written completely just now")
        found = self._behind_here.find(table, file, start)
        if moved_on and (found is None or found > file.end):
            found = file.end
        if found is None or found > file.end:
            return idle(start, f"unreadable: {detail}")
        return gap(start, found, f"corrupt: {detail}")

    def _passed(self, table: FileTable, file: LogFile, start: PhysicalOffset, *, moved_on: bool) -> bool:
        """Whether what lies behind ``start`` in its own file counts, and shows that the broker left the place long ago.

        It writes a later file; or it runs, and stored what lies there before as long as would be waited; or nobody has written
        the file for so long: of a broker that does not run what lies there may be of a life before the last one.
        """
        found = self._behind_here.look(table, file, start, settle=False)
        if found is None or found >= file.end:
            return False
        running = self._life.start_ms() is not None
        left_ms = self._chain.head(file, found).store_time_ms if running else changed_ms(file)
        return moved_on or self._clock.now_ms() - (left_ms or 0) >= self._wait_ms

    def _outside(self, start: PhysicalOffset) -> Chunk:
        """No file holds ``start``: not written yet, deleted, or lost."""
        table = self._catalog.table(force=True)
        size = max(1, self._catalog.file_bytes)
        growing = next((f for f in self._catalog.growing if f.base <= start < f.base + size), None)
        if table.at(start) is not None or growing is not None:
            return idle(start, "the file is being created")
        following = table.after(start)
        if following is None:
            return idle(
                start, "the broker has no file for this position yet" if len(table) else "the store is empty"
            )
        oldest = self._catalog.oldest_own
        if oldest is None or oldest.base > start:
            return gap(start, following.base, "deleted before it could be archived")
        if not self._patience.over((_NO_FILE, start), b"", cheap=True):
            return idle(start, "unreadable: the commitlog file is missing")
        return gap(start, following.base, "corrupt: the commitlog file is missing")
