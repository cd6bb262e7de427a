"""From an extent of the source to a planned commit: copy once, validate the copy, decode, route, cut, plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import Area, ObjectKey, build
from tiered.archive.log.writer import CommitLog, PlannedCommit, Ticket
from tiered.archive.state.view import ArchiveState
from tiered.codec.checksum import crc32c
from tiered.codec.format.block import StoredBlocks, compress_pieces
from tiered.codec.format.edits import EditBatch
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import property_columns, verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.ragged import copy_ranges
from tiered.codec.types import Buffer
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Corrupt
from tiered.model import PhysicalOffset, Progress
from tiered.settings import MIB, Dispatch
from tiered.source.base import CommitLogSource
from tiered.write.buffer import Extent
from tiered.write.committer import PreparedFlush
from tiered.write.drafter import Draft, PlanSettings, draft
from tiered.write.planner import CompressMany, Plan, plan, progress_edit
from tiered.write.router import QueueEnds, Routed, route

TASKS_PER_THREAD = 2
"""Pieces a flush's blocks are compressed in, per thread: enough that a thread that started late does not hold up the flush."""

COPIES = 3
"""Private copies in turn: one is read and checked while the records of the one before are sorted by queue in the pool."""


class Changed(Exception):
    """The source's bytes are not what its boundaries promised: the broker rewrote them, or a record is damaged. Read again.

    ``suspect`` is where the first record that does not hold begins; ``None`` when nothing is known to be damaged.
    """

    def __init__(self, detail: str, suspect: PhysicalOffset | None = None) -> None:
        super().__init__(detail)
        self.suspect = suspect


@dataclass(slots=True)
class Mark:
    """The running CRC of the log: ``offset`` reached, ``crc`` since ``crc_from``."""

    offset: PhysicalOffset
    crc: int
    crc_from: PhysicalOffset


class PooledCompression:
    """Drafting and compression in a pool: compression in a few tasks of about equal bytes rather than one per block."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int, level: int) -> None:
        self._pool = pool
        self._tasks = threads * TASKS_PER_THREAD
        self._level = level

    def start(self, work: Callable[[], Drafted]) -> Future[Drafted]:
        """Have a draft made in the pool."""
        return self._pool.submit(work)

    def begin(self, raw: memoryview, edges: npt.NDArray[np.int64]) -> Callable[[], StoredBlocks]:
        """Start on ``raw[edges[i]:edges[i + 1]]``, and return what waits for the result."""
        parts = min(len(edges) - 1, self._tasks)
        cuts = np.searchsorted(edges, np.linspace(0, edges[-1], parts + 1)[1:-1])
        bounds = sorted({0, *cuts.tolist(), len(edges) - 1})
        tasks = [
            self._pool.submit(compress_pieces, raw, edges[a : b + 1], level=self._level)
            for a, b in pairwise(bounds)
        ]
        return lambda: StoredBlocks.joined([task.result() for task in tasks])


class CompressionInPlace:
    """Drafting and compression where they are asked for, by a function that takes all blocks."""

    def __init__(self, compress_many: CompressMany) -> None:
        self._compress = compress_many

    def start(self, work: Callable[[], Drafted]) -> Future[Drafted]:
        """Make a draft now."""
        done: Future[Drafted] = Future()
        done.set_result(work())
        return done

    def begin(self, raw: memoryview, edges: npt.NDArray[np.int64]) -> Callable[[], StoredBlocks]:
        """Compress when asked for the result. A block that was not worth it still lies in the gathered bytes, whose memory is
        about to be used again: it is copied."""

        def compressed() -> StoredBlocks:
            raws = [raw[a:b] for a, b in pairwise(edges.tolist())]
            return StoredBlocks.of(
                [(bytes(stored), codec, crc) for stored, codec, crc in self._compress(raws)]
            )

        return compressed


@dataclass(slots=True)
class _Copy:
    """Memory for one private copy, and the drafts that still look at it."""

    memory: memoryview
    drafts: list[Future[Drafted]] = field(default_factory=list)

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
    """An extent, or half of one: its records, decoded, and its bytes."""

    extent: Extent
    batch: MessageBatch
    copy: memoryview


@dataclass(slots=True)
class Drafted:
    """A draft whose blocks are being compressed."""

    draft: Draft
    compressed: Callable[[], StoredBlocks]
    stored: StoredBlocks | None = None


class Preparer:
    """Turns extents into flushes. Used by one thread; what is left to do against the planned fold is done when the committer's
    line asks for it (``PreparedFlush.settle``), so that the next extent is prepared while blocks are compressed.
    """

    def __init__(
        self,
        source: CommitLogSource,
        log: CommitLog,
        settings: Dispatch,
        *,
        compression: PooledCompression | CompressionInPlace,
        excluded: Callable[[str], bool],
        lineage: int,
        mark: Mark,
    ) -> None:
        self._source = source
        self._log = log
        self._settings = settings
        self._compression = compression
        self._excluded = excluded
        self._copies = [_Copy(memoryview(b"")) for _ in range(COPIES)]
        self._spare: list[memoryview] = []
        self._keep_bytes = (
            2 * settings.group_commit_bytes
        )  # one record may be larger: its memory is given back
        self.lineage = lineage
        self.mark = mark

    def prepare(self, extent: Extent, same_broker: Callable[[], bool]) -> Iterator[PreparedFlush]:
        """Make the extent one commit, or several when its edits would be too large. ``Changed``: read it again.

        ``same_broker`` is asked once the bytes are copied: a broker that restarted meanwhile may have rewritten them. Each
        flush must be submitted before the next is asked for: what is prepared has its place in the log.
        """
        if not len(extent.starts):
            yield self._flush(extent, None, b"")
            return
        copy = self._read(extent)
        frames = Frames(extent.starts, extent.sizes, len(copy), Stop.END, None, "")
        checked, batch = verify_headers(copy, frames, extent.start)
        if len(checked.starts) != len(extent.starts):
            raise Changed(checked.detail, PhysicalOffset(extent.start + checked.end))
        if not same_broker():
            raise Changed("the broker was restarted")
        reach(CrashPoint.AFTER_COPY)
        yield from self._prepare(_Part(extent, batch, copy))

    def _read(self, extent: Extent) -> memoryview:
        """The one private copy, in memory that a later flush uses again: nothing may look at it once its flush is drafted."""
        self._copies.append(self._copies.pop(0))
        copy = self._copies[0].free(extent.length, self._keep_bytes)
        self._source.copy_into(extent.start, extent.end, copy)
        return copy

    def _prepare(self, part: _Part) -> Iterator[PreparedFlush]:
        routed = route(part.batch, self._excluded)
        if not len(routed.order):
            yield self._flush(part.extent, None, part.copy)
            return
        too_many = len(routed.topics) > self._max_queues() or self._too_many_keys(part)
        if too_many and len(part.extent.starts) > 1:
            for half in _halves(part):
                yield from self._prepare(half)
            return
        drafted = self._compression.start(partial(self._draft, part.batch, routed))
        self._copies[0].drafts.append(drafted)
        yield self._flush(part.extent, partial(self._finish, drafted), part.copy, len(routed.order))

    def _draft(self, records: MessageBatch, routed: Routed) -> Drafted:
        """What a flush is before the fold is asked, and the start of its compression."""
        memory = self._spare.pop() if self._spare else memoryview(b"")
        columns, settings = property_columns(records), self._plan_settings()
        made = draft(records, columns, routed, settings, self._source.counts_inner, memory)
        return Drafted(made, self._compression.begin(made.gathered, made.edges))

    def _finish(self, drafting: Future[Drafted], ticket: Ticket) -> Plan:
        """Wait for the compressed blocks and plan. It may be called again after an error."""
        drafted = drafting.result()
        made = drafted.draft
        if drafted.stored is None:
            drafted.stored = drafted.compressed()
            if len(made.memory) <= self._keep_bytes:
                self._spare.append(made.memory)
        return plan(
            made,
            drafted.stored,
            queue_ends(self._log.planned(), made.routed, self.lineage),
            self._plan_settings(),
            commit_id=ticket.commit_id,
            new_object=lambda: self._new_object(ticket.epoch),
        )

    def _plan_settings(self) -> PlanSettings:
        return PlanSettings(
            self._log.reader.identity.archive_id,
            self.lineage,
            self._settings.block_bytes,
            self._settings.object_bytes,
            self._settings.inline_bytes,
        )

    def _max_queues(self) -> int:
        """Queues whose edits stay within ``max_edit_bytes``: a run takes at most about 100 bytes compressed."""
        return max(1, self._settings.max_edit_bytes // 100)

    def _too_many_keys(self, part: _Part) -> bool:
        """Whether the messages' keys, one more than the spaces between them, are above the bound. Told without parsing: by the
        room for keys, by all spaces of the extent, by those in the properties alone, as soon as one of them is small enough."""
        most, headers = self._settings.max_flush_keys, part.batch.headers
        rows, room = len(headers), int(headers["properties_length"].sum(dtype=np.int64))
        if room // 2 <= most or 2 * rows + _spaces(part.copy) <= most:
            return False
        starts, lengths = headers["properties_position"], headers["properties_length"].astype(np.int64)
        ends = np.cumsum(lengths)
        areas = bytearray(room)
        copy_ranges(part.batch.buffer, starts, lengths, areas, ends - lengths)
        return 2 * rows + _spaces(memoryview(areas)) > most

    def _new_object(self, epoch: int) -> tuple[str, bytes]:
        """Path under the broker's root and id of a data object that is about to be made."""
        name = uuid.uuid4().bytes
        return build(ObjectKey(Area.DATA, epoch, name)), name

    def _flush(
        self,
        extent: Extent,
        finish: Callable[[Ticket], Plan] | None,
        copy: Buffer,
        messages: int = 0,
    ) -> PreparedFlush:
        mark = self.mark = self._mark_after(extent, copy)
        progress = progress_edit(self.lineage, [(mark.offset, mark.crc, mark.crc_from)])

        def settle() -> tuple[PlannedCommit, Plan | None]:
            ticket = self._log.ticket()
            made = finish(ticket) if finish is not None else None
            edits: list[EditBatch] = [*made.edits, progress] if made is not None else [progress]
            objects = made.objects if made is not None else ()
            inline = [part for o in objects if not o.path for part in o.encoded.parts]
            commit = self._log.plan(ticket, edits, inline)
            reach(CrashPoint.AFTER_PLAN)
            return commit, made

        return PreparedFlush(
            settle,
            (),
            next_offset=extent.next_offset,
            first_seen=extent.first_seen,
            messages=messages,
            raw_bytes=extent.length,
        )

    def _mark_after(self, extent: Extent, copy: Buffer) -> Mark:
        """The mark at the end of this extent, or at the file's end with the blank record's header in it."""
        mark = self.mark
        if mark.offset != extent.start:
            raise Corrupt(
                "a flush does not begin where the one before it ended",
                expected=mark.offset,
                found=extent.start,
            )
        if self._source.file_start(extent.start) == extent.start:
            mark = Mark(extent.start, 0, extent.start)
        crc = crc32c(extent.blank_header, crc32c(copy, mark.crc))
        return Mark(extent.next_offset, crc, mark.crc_from)


def _spaces(data: memoryview) -> int:
    """Spaces in a buffer."""
    parts = (data[first : first + MIB] for first in range(0, len(data), MIB))
    return sum(int(np.count_nonzero(np.frombuffer(part, np.uint8) == 0x20)) for part in parts)


def _halves(part: _Part) -> tuple[_Part, _Part]:
    """The part cut at a record near its middle; only the second half may end the file."""
    extent, rows = part.extent, part.batch.headers
    middle = len(extent.starts) // 2
    at = int(extent.starts[middle])
    cut = PhysicalOffset(extent.start + at)
    first = Extent(
        extent.start, cut, cut, extent.starts[:middle], extent.sizes[:middle], b"", extent.first_seen, False
    )
    second = Extent(
        cut, extent.end, extent.next_offset, extent.starts[middle:] - at, extent.sizes[middle:],
        extent.blank_header, extent.first_seen, extent.file_finished,
    )  # fmt: skip
    buffer, topics = part.batch.buffer, part.batch.topics  # rows keep their positions in the whole copy
    return (
        _Part(first, MessageBatch(buffer, rows[:middle], topics), part.copy[:at]),
        _Part(second, MessageBatch(buffer, rows[middle:], topics), part.copy[at:]),
    )


def queue_ends(state: ArchiveState, routed: Routed, lineage: int) -> QueueEnds:
    """What the planned fold knows of the queues of a flush."""
    table, present = state.queue_table(routed.topics, routed.queue_ids)
    same = present & (table["lineage"] == lineage) & (table["generation"] > 0)
    return QueueEnds(
        present=same,
        generation=table["generation"].astype(np.int64),
        max_offset=table["max_offset"].astype(np.int64),
        flat_end=table["flat_end"].astype(np.int64),
        highest_generation=np.where(present, table["highest_generation"], 0).astype(np.int64),
    )


def mark_of(progress: Progress) -> Mark:
    """The running CRC as a ``Progress`` left it."""
    return Mark(
        PhysicalOffset(progress.physical_offset), progress.mark_crc, PhysicalOffset(progress.crc_from)
    )
