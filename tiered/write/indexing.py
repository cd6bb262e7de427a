"""What the way in tells the consume-queue index: columns of the drafts, and of the broker's log where no draft tells them.

The index is behind the drafts or beside them, never in their way: a draft is noted when it is submitted, and its columns are
taken in the index's own thread. What is not noted any more, since too much was, and what a crash took, is read again from the
broker's log, as long as it is there; where it is not, the index begins anew, and says so.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop, scan
from tiered.codec.record.properties import property_columns
from tiered.codec.types import Ints
from tiered.consumequeue.layout import IndexedRange, QueueRows, queue_key
from tiered.consumequeue.writer import ConsumeQueueWriter
from tiered.errors import Corrupt, NotFound
from tiered.metadata.base import RedoStore, StoreSize
from tiered.model import PhysicalOffset
from tiered.source.base import Copies, Life, LogFiles
from tiered.source.files import LogFile
from tiered.write.draft import Draft, DraftRecords
from tiered.write.router import Routed, RowOffsets, route, row_offsets

log = logging.getLogger("tiered.write")

_Found = TypeVar("_Found")
_MOST_NOTED = 4096
_PIECE_BYTES = 8 * 1024 * 1024


def _nothing_lost(lineage: int) -> Iterable[tuple[int, int]]:
    return ()


class IndexedLog(Copies, LogFiles, Life, Protocol):
    """A commitlog that is read again where no draft tells what is in it."""


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """Messages by queue, as ``ConsumeQueueWriter.add`` takes them."""

    queues: Sequence[bytes]
    starts: Ints
    rows: QueueRows


@dataclass(slots=True)
class _Noted:
    """A draft's place in the log, and its rows as soon as they are known; ``None``: it has none."""

    lineage: int
    start: PhysicalOffset
    end: PhysicalOffset
    messages: int
    known: bool = True
    rows: IndexedRows | None = None
    failed: bool = field(default=False)


def rows_by_queue(
    routed: Routed, offsets: RowOffsets, physical: Ints, size: Ints, tags_code: Ints, time: Ints
) -> IndexedRows:
    """Sorted columns of a flush without those of the off-queue, whose offsets the broker did not give."""
    rows = QueueRows(offsets.queue_offset, offsets.owned, physical, size, tags_code, time)
    topics, ids, starts = list(routed.topics), routed.queue_ids.tolist(), routed.group_start
    off = routed.off_queue
    if off is not None:
        low, high = starts[off : off + 2].tolist()
        rows = QueueRows.join([rows.take(slice(0, low)), rows.take(slice(high, None))])
        starts = np.delete(np.where(np.arange(len(starts)) > off, starts - (high - low), starts), off)
        del topics[off], ids[off]
    return IndexedRows(
        [queue_key(topic, queue) for topic, queue in zip(topics, ids, strict=True)], starts, rows
    )


def _of_draft(records: DraftRecords) -> IndexedRows:
    """Copies: what is gathered lies in memory that is used again."""
    made = records.gathered
    rows = made.rows
    return rows_by_queue(
        made.routed, made.offsets, rows["physical_offset"].astype("i8"), rows["size"].astype("i8"),
        rows["tags_code"].astype("i8"), rows["store_timestamp"].astype("i8"),
    )  # fmt: skip


class IndexFeed:
    """Keeps an index up to what was submitted. ``submitted`` belongs to the dispatcher's thread, everything else to the
    index's own."""

    def __init__(
        self,
        store: RedoStore,
        source: IndexedLog,
        *,
        buffer_rows: int,
        max_record_bytes: int,
        excluded: Callable[[str], bool],
        lost: Callable[[int], Iterable[tuple[int, int]]] = _nothing_lost,
    ) -> None:
        """``buffer_rows``: most messages noted and not taken, and most taken and not written. ``lost``: physical ranges of a
        lineage that are recorded as gaps; asked where bytes cannot be read."""
        self._store = store
        self._source = source
        self._buffer_rows = buffer_rows
        self._max_record_bytes = max_record_bytes
        self._excluded = excluded
        self._lost = lost
        self._submitted = 0
        self.messages = 0
        """Taken since this was made."""
        self.begun_anew = 0
        """How often what was there was given up since."""
        self._writer = self._new_writer()
        self._lock = threading.Lock()
        self._noted: deque[_Noted] = deque()
        self._rows = 0
        self._piece = _PIECE_BYTES

    def _new_writer(self) -> ConsumeQueueWriter:
        try:
            return ConsumeQueueWriter(self._store, self._buffer_rows)
        except Corrupt as error:
            log.warning("the consume-queue index is damaged: it is made again", extra=error.fields)
            self._store.clear()
            return ConsumeQueueWriter(self._store, self._buffer_rows)

    @property
    def covered(self) -> IndexedRange | None:
        """What was taken; ``None`` before anything was. From any thread."""
        return self._writer.coverage

    @property
    def submitted_end(self) -> int:
        """Up to where the index should come: the end of what was submitted last. From any thread."""
        return self._submitted

    def size(self) -> StoreSize:
        """Of the store on disk, about."""
        return self._store.size()

    def opened(self, lineage: int, position: PhysicalOffset) -> None:
        """Where archiving goes on: up to there the log is read, if the index does not cover it, also when no draft comes."""
        with self._lock:
            self._submitted = int(position)
            self._noted.append(_Noted(lineage, position, position, 0))

    def submitted(self, draft: Draft) -> None:
        """A draft is on its way to a commit. Costs nothing but a note."""
        noted = _Noted(draft.lineage, draft.extent.start, draft.next_offset, draft.messages)
        if draft.records is not None:
            noted.known = False
        with self._lock:
            self._submitted = int(noted.end)
            self._noted.append(noted)
            self._rows += noted.messages
            while len(self._noted) > 1 and (self._rows > self._buffer_rows or len(self._noted) > _MOST_NOTED):
                self._rows -= self._noted.popleft().messages  # it is read from the log instead
        if draft.records is not None:
            draft.records.add_done_callback(lambda made: _take(noted, made))

    def step(self) -> bool:
        """One draft, or one piece of the log; false if there is nothing to do. After an error of the store the next one opens
        it again, and goes on from where that is. ``Unavailable``."""
        return self._unless_damaged(self._step, True)

    def reopen(self) -> None:
        """After ``Unavailable``: go on from what is in the store."""
        self._store.reopen()
        self._writer = self._new_writer()

    def flush(self) -> None:
        """Make what was taken durable."""
        self._unless_damaged(self._writer.flush, None)

    def forget(self, before_ms: int) -> int:
        """See ``ConsumeQueueWriter.forget``."""
        return self._unless_damaged(lambda: self._writer.forget(before_ms), 0)

    def _unless_damaged(self, use: Callable[[], _Found], otherwise: _Found) -> _Found:
        """A damaged index is emptied: the next draft begins it anew, from the oldest byte of the log."""
        try:
            return use()
        except Corrupt as error:
            log.warning("the consume-queue index is damaged: it is made again", extra=error.fields)
            self.begun_anew += 1
            self._store.clear()
            self._writer = self._new_writer()
            return otherwise

    def _step(self) -> bool:
        with self._lock:
            head = self._noted[0] if self._noted else None
        if head is None or not head.known:
            return False
        covered = self._writer.coverage
        if covered is None or covered.lineage != head.lineage:
            self._writer.begin(head.lineage, self._oldest(head.start))
            return True
        if head.start < covered.end:
            self._writer.cut(head.start)
            return True
        if covered.end < head.start:
            self._redo(covered.end, head)
            return True
        with self._lock:
            if self._noted and self._noted[0] is head:
                self._noted.popleft()
                self._rows -= head.messages
        if head.failed:
            return True  # its flush is made again, and noted again
        self._add(head.rows, head.end)
        return True

    def _add(self, found: IndexedRows | None, end: int) -> None:
        if found is None:
            self._writer.add((), _NO_STARTS, _NO_ROWS, end)
        else:
            self._writer.add(found.queues, found.starts, found.rows, end)
            self.messages += len(found.rows)

    # ------------------------------------------------------------------ what no draft tells

    def _oldest(self, start: PhysicalOffset) -> PhysicalOffset:
        """Where the log that leads to ``start`` without a break begins: a new index begins there."""
        first = start
        for file in reversed(self._source.files()):
            if file.base < first <= file.end:
                first = file.base
        return first

    def _redo(self, position: int, head: _Noted) -> None:
        """Take one piece of the log from ``position`` on, at most up to the draft that is noted."""
        try:
            file = next((f for f in self._source.files() if f.base <= position < f.end), None)
            if file is None:
                raise NotFound("the broker has deleted it")
            end = self._piece_of(file, position, head.start)
        except NotFound as error:
            end = self._behind_gap(position, head)
            if end is None:
                self._anew(position, head, error.message)
        if end is not None:
            self._writer.add((), _NO_STARTS, _NO_ROWS, end)

    def _piece_of(self, file: LogFile, position: int, until: int) -> int | None:
        """Add the records of a piece; where to go on when there were none. ``NotFound`` if it cannot be read."""
        stop = min(until, file.end, position + self._piece)
        copy = memoryview(self._source.copy(PhysicalOffset(position), PhysicalOffset(stop)))
        frames = scan(copy, base=position, max_record_bytes=self._max_record_bytes)
        end = position + frames.end
        if len(frames):
            self._add(self._rows_of(copy, frames, position), end)
            self._piece = _PIECE_BYTES
            return None if frames.stop is not Stop.BLANK else int(file.end)
        if frames.stop is Stop.PARTIAL and stop < min(until, file.end):
            self._piece *= 2
            return None
        if frames.stop is Stop.BLANK or position == file.end:
            return int(file.end)
        raise NotFound(frames.detail or f"no record is there: {frames.stop.value}")

    def _rows_of(self, copy: memoryview, frames: Frames, position: int) -> IndexedRows:
        checked, batch = verify_headers(copy, frames, position)
        if len(checked) != len(frames):
            raise NotFound(checked.detail)
        routed = route(batch, self._excluded)
        columns, order = property_columns(batch), routed.order
        headers = batch.headers[order]
        return rows_by_queue(
            routed, row_offsets(batch, columns, routed, self._source.counts_inner),
            headers["physical_offset"].astype("i8"), headers["size"].astype("i8"),
            columns.tags_code[order].astype("i8"), headers["store_timestamp"].astype("i8"),
        )  # fmt: skip

    def _behind_gap(self, position: int, head: _Noted) -> int | None:
        """Where the recorded gap ends that a position lies in: nobody has what was in it, so nothing is missing here."""
        for start, end in self._lost(head.lineage):
            if start <= position < end:
                return min(end, int(head.start))
        return None

    def _anew(self, position: int, head: _Noted, why: str) -> None:
        """Begin behind what is lacking: where the log that leads to the draft begins, or at the draft."""
        oldest = self._oldest(head.start)
        begin = oldest if oldest > position else head.start
        log.warning(
            "the consume-queue index begins anew: a part of the broker's log that it lacks cannot be read",
            extra={"position": position, "begins": begin, "found": why},
        )
        self.begun_anew += 1
        self._writer.begin(head.lineage, begin)


_NO_ROWS = QueueRows.none()
_NO_STARTS: Ints = _NO_ROWS.offset


def _take(noted: _Noted, made: Future[DraftRecords]) -> None:
    """In the pool that gathered them."""
    noted.failed = True
    try:
        if not made.cancelled() and made.exception() is None:
            noted.rows = _of_draft(made.result())
            noted.failed = False
    finally:
        noted.known = True
