"""From an extent of the source to a draft: copy once, validate the copy, decode, route, cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from tiered.archive.log.marks import Mark
from tiered.codec.checksum import crc32c
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.lite import NO_PLACES, lite_places
from tiered.codec.record.properties import PropertyEntries, property_columns
from tiered.codec.record.ragged import copy_ranges
from tiered.codec.types import Buffer
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Corrupt
from tiered.model import PhysicalOffset
from tiered.settings import MIB, Dispatch
from tiered.source.base import Copies, Life
from tiered.write.buffer import Extent
from tiered.write.compression import Compressing, Compression, SpareMemory
from tiered.write.draft import Draft, DraftRecords
from tiered.write.gathered import gather_flush
from tiered.write.router import Routed, route

COPIES = 3
"""Private copies in turn: one is read and checked while the records of the one before are sorted by queue in the pool."""

EDIT_BYTES = 32
"""What a queue's edits take at most, compressed: 24 to 28 bytes where every column is random, 4 to 8 in real logs."""
LEAST_EDIT_BYTES = 24
"""What is reckoned with at least: commits of more queues take more memory on their way, and spare nothing."""
MARGIN = 2
"""By how much edits may be larger than the last ones were."""


_SPACE, _COMMA = 0x20, 0x2C


class Changed(Exception):
    """The source's bytes are not what its boundaries promised: the broker rewrote them, or a record is damaged. Read again.

    ``suspect`` is where the first record that does not hold begins; ``None`` when nothing is known to be damaged.
    """

    def __init__(self, detail: str, suspect: PhysicalOffset | None = None) -> None:
        super().__init__(detail)
        self.suspect = suspect


class CopiedLog(Copies, Life, Protocol):
    """A commitlog whose records are copied and numbered as its broker does."""


@dataclass(slots=True)
class _Copy:
    """Memory for one private copy, and the drafts that still look at it."""

    memory: memoryview
    drafts: list[Future[DraftRecords]] = field(default_factory=list)

    def free(self, length: int, keep_bytes: int) -> memoryview:
        """Room for ``length`` bytes, once no draft looks at what was there. More than ``keep_bytes`` is not kept for it."""
        for drafted in self.drafts:
            drafted.exception()  # the thread that settles its flush gets the error
        self.drafts.clear()
        if len(self.memory) < length or len(self.memory) > max(keep_bytes, length + length // 4):
            self.memory = np.empty(length + length // 4, np.uint8).data  # untouched, it costs nothing
        return self.memory[:length]


@dataclass(frozen=True, slots=True)
class _Part:
    """An extent, or a piece of one: its records, decoded, and its bytes."""

    extent: Extent
    batch: MessageBatch
    copy: memoryview


class Preparer:
    """Turns extents into drafts. Used by one thread; records are sorted and compressed in the pool while the next extent is
    read, and planned on top of the fold when the line of commits has come to them (``Draft.settle``).
    """

    def __init__(
        self,
        source: CopiedLog,
        settings: Dispatch,
        *,
        compression: Compression,
        excluded: Callable[[str], bool],
        lineage: int,
    ) -> None:
        self._source = source
        self._settings = settings
        self._compression = compression
        self._excluded = excluded
        self._copies = [_Copy(memoryview(b"")) for _ in range(COPIES)]
        self._keep_bytes = (
            2 * settings.group_commit_bytes
        )  # one record may be larger: its memory is given back
        self._spare = SpareMemory(self._keep_bytes)
        self._edit_bytes = float(EDIT_BYTES)
        self.lineage = lineage

    def learn(self, queues: int, edits_length: int) -> None:
        """A flush of so many queues had edits of so many bytes, stored: those of the next are estimated by it. Any thread.

        Where queues are many a flush that is cut for its edits costs twice: queues of both pieces have a run in each, and each
        piece looks up blocks of queues all over the fold."""
        if queues:
            self._edit_bytes = min(EDIT_BYTES, max(LEAST_EDIT_BYTES, MARGIN * edits_length / queues))

    def prepare(self, extent: Extent, mark: Mark, same_broker: Callable[[], bool]) -> Iterator[Draft]:
        """Make the extent one draft, or several when its edits would be too large. ``Changed``: read it again.

        ``mark``: the running mark where the extent begins. ``same_broker`` is asked once the bytes are copied: a broker that
        restarted meanwhile may have rewritten them. Drafts follow each other in the log as they come.
        """
        if not len(extent.starts):
            yield Draft(extent, self.lineage, self._mark_after(mark, extent, b""))
            return
        copy = self._read(extent)
        frames = Frames(extent.starts, extent.sizes, len(copy), Stop.END, None, "")
        checked, batch = verify_headers(copy, frames, extent.start)
        if len(checked.starts) != len(extent.starts):
            raise Changed(checked.detail, PhysicalOffset(extent.start + checked.end))
        if not same_broker():
            raise Changed("the broker was restarted")
        reach(CrashPoint.AFTER_COPY)
        for part, routed in self._parts(_Part(extent, batch, copy)):
            mark = self._mark_after(mark, part.extent, part.copy)
            yield self._draft(part, routed, mark)

    def _read(self, extent: Extent) -> memoryview:
        """The one private copy, in memory that a later flush uses again: nothing may look at it once its flush is drafted."""
        self._copies.append(self._copies.pop(0))
        copy = self._copies[0].free(extent.length, self._keep_bytes)
        self._source.copy_into(extent.start, extent.end, copy)
        return copy

    def _parts(self, part: _Part) -> Iterator[tuple[_Part, Routed]]:
        """The part, or pieces of it, each as large as one commit may be."""
        routed = route(part.batch, self._excluded)
        row = len(part.extent.starts) if not len(routed.order) else self._end_of_one(part, routed)
        if row >= len(part.extent.starts):
            yield part, routed
            return
        for piece in _cut(part, row):
            yield from self._parts(piece)

    def _end_of_one(self, part: _Part, routed: Routed) -> int:
        """How many of its records, from the first, one commit may hold; each count is bounded again in what is cut off."""
        rows, queues = len(part.extent.starts), len(routed.topics)
        taken, most = self._edits_of(routed), self._settings.max_edit_bytes
        if taken > most and queues > 1:
            within = max(1, int(queues * most / taken))
            most_rows = int(np.partition(routed.order[routed.group_start[:-1]], within)[within])
            return min(most_rows, math.ceil(rows / math.ceil(taken / most)))
        too_many = self._too_many(part, _SPACE, self._settings.max_flush_keys) or (
            self._settings.lite_queues and self._too_many(part, _COMMA, 2 * self._max_aliases())
        )
        return rows // 2 if too_many and rows > 1 else rows

    def _edits_of(self, routed: Routed) -> float:
        """What the edits of these queues take, about, compressed, with the names of their topics."""
        return self._edit_bytes * len(routed.topics) + sum(map(len, set(routed.topics)))

    def _draft(self, part: _Part, routed: Routed, mark: Mark) -> Draft:
        if not len(routed.order):
            return Draft(part.extent, self.lineage, mark)
        records = self._compression.start(partial(self._gather, part.batch, routed))
        self._copies[0].drafts.append(records)
        return Draft(part.extent, self.lineage, mark, len(routed.order), records)

    def _gather(self, records: MessageBatch, routed: Routed) -> DraftRecords:
        """What a flush is before the fold is asked, and the start of its compression."""
        entries, memory = PropertyEntries.parse(records), self._spare.take()
        columns = property_columns(records, entries)
        places = lite_places(records, entries) if self._settings.lite_queues else NO_PLACES
        made = gather_flush(
            records, columns, routed, self._settings, self._source.counts_inner, memory, places
        )
        tasks = self._compression.begin(made.gathered, made.edges)
        return DraftRecords(made, Compressing(tasks, made.memory, self._spare))

    def _max_aliases(self) -> int:
        """Places in lite queues whose edits stay within ``max_edit_bytes``: one takes at most about 16 bytes compressed."""
        return max(1, self._settings.max_edit_bytes // 16)

    def _too_many(self, part: _Part, divider: int, most: int) -> bool:
        """Whether the entries of lists in the messages' properties, two a message more than their dividers, are above the
        bound: keys, divided by spaces, and places in lite queues, by commas in two lists. Told without parsing: by the room
        for entries, by all dividers of the extent, by those in the properties alone, as soon as one is small enough."""
        headers = part.batch.headers
        rows, room = len(headers), int(headers["properties_length"].sum(dtype=np.int64))
        if room // 2 <= most or 2 * rows + _count(part.copy, divider) <= most:
            return False
        starts, lengths = headers["properties_position"], headers["properties_length"].astype(np.int64)
        ends = np.cumsum(lengths)
        areas = bytearray(room)
        copy_ranges(part.batch.buffer, starts, lengths, areas, ends - lengths)
        return 2 * rows + _count(memoryview(areas), divider) > most

    def _mark_after(self, mark: Mark, extent: Extent, copy: Buffer) -> Mark:
        """The mark at the end of this extent, or at the file's end with the blank record's header in it."""
        if mark.offset != extent.start:
            raise Corrupt(
                "a flush does not begin where the one before it ended",
                expected=mark.offset,
                found=extent.start,
            )
        if self._source.file_start(extent.start) == extent.start:
            mark = Mark.at(extent.start)
        crc = crc32c(extent.blank_header, crc32c(copy, mark.crc))
        return Mark(extent.next_offset, crc, mark.crc_from)


def _count(data: memoryview, byte: int) -> int:
    """How often a byte occurs in a buffer."""
    parts = (data[first : first + MIB] for first in range(0, len(data), MIB))
    return sum(int(np.count_nonzero(np.frombuffer(part, np.uint8) == byte)) for part in parts)


def _cut(part: _Part, row: int) -> tuple[_Part, _Part]:
    """The part before a record, and from it on; only the second may end the file."""
    extent, rows = part.extent, part.batch.headers
    at = int(extent.starts[row])
    cut = PhysicalOffset(extent.start + at)
    first = Extent(
        extent.start, cut, cut, extent.starts[:row], extent.sizes[:row], b"", extent.first_seen, False
    )
    second = Extent(
        cut, extent.end, extent.next_offset, extent.starts[row:] - at, extent.sizes[row:],
        extent.blank_header, extent.first_seen, extent.file_finished,
    )  # fmt: skip
    buffer, topics = part.batch.buffer, part.batch.topics  # rows keep their positions in the whole copy
    return (
        _Part(first, MessageBatch(buffer, rows[:row], topics), part.copy[:at]),
        _Part(second, MessageBatch(buffer, rows[row:], topics), part.copy[at:]),
    )
