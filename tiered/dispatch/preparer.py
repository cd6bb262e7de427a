"""From an extent of the source to a planned commit: copy once, validate the copy, decode, route, cut, plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tiered.archive.keys import Area, ObjectKey, build
from tiered.archive.log import CommitLog, Ticket
from tiered.archive.state import ArchiveState
from tiered.codec.block import compress
from tiered.codec.checksum import crc32c
from tiered.codec.columns import decode_headers, property_columns
from tiered.codec.edits import EditBatch
from tiered.codec.frame import Frames, Stop, verify
from tiered.crashpoint import CrashPoint, reach
from tiered.dispatch.buffer import Extent
from tiered.dispatch.committer import PreparedFlush
from tiered.dispatch.planner import (
    Compressed,
    CompressMany,
    Plan,
    PlanSettings,
    plan,
    progress_edit,
)
from tiered.dispatch.router import QueueEnds, Routed, route
from tiered.model import PhysicalOffset, Progress
from tiered.settings import Dispatch
from tiered.source.base import CommitLogSource


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


def pooled_compression(pool: ThreadPoolExecutor, threads: int, level: int) -> CompressMany:
    """Compress blocks in the pool, in a few tasks of about equal bytes rather than one each."""

    def one(raws: list[memoryview]) -> list[Compressed]:
        return [compress(raw, level=level) for raw in raws]

    def many(raws: list[memoryview]) -> list[Compressed]:
        if len(raws) < 2:
            return one(raws)
        edges = np.cumsum([len(r) for r in raws])
        parts = min(len(raws), threads * 4)
        cuts = np.searchsorted(edges, np.linspace(0, edges[-1], parts + 1)[1:-1]).tolist()
        bounds = [0, *cuts, len(raws)]
        tasks = [pool.submit(one, raws[a:b]) for a, b in pairwise(bounds) if b > a]
        return [item for task in tasks for item in task.result()]

    return many  # type: ignore[return-value]


class Preparer:
    """Turns extents into prepared flushes, against the planned fold. Used by one thread."""

    def __init__(
        self,
        source: CommitLogSource,
        log: CommitLog,
        settings: Dispatch,
        *,
        compress_many: CompressMany,
        excluded: Callable[[str], bool],
        lineage: int,
        mark: Mark,
    ) -> None:
        self._source = source
        self._log = log
        self._settings = settings
        self._compress = compress_many
        self._excluded = excluded
        self.lineage = lineage
        self.mark = mark

    def prepare(self, extent: Extent, same_broker: Callable[[], bool]) -> Iterator[PreparedFlush]:
        """Plan the extent as one commit, or as several when its edits would be too large. ``Changed``: read it again.

        ``same_broker`` is asked once the bytes are copied: a broker that restarted meanwhile may have rewritten them. Each
        flush must be submitted before the next is asked for: what is planned has its place in the log.
        """
        if not len(extent.starts):
            yield self._flush(extent, None, b"", self._log.ticket())
            return
        copy = self._source.copy(extent.start, extent.end)
        frames = Frames(extent.starts, extent.sizes, len(copy), Stop.END, None, "")
        checked = verify(copy, frames, extent.start)
        if len(checked.starts) != len(extent.starts):
            raise Changed(checked.detail, PhysicalOffset(extent.start + checked.end))
        if not same_broker():
            raise Changed("the broker was restarted")
        reach(CrashPoint.AFTER_COPY)
        yield from self._plan(extent, copy, frames)

    def _plan(self, extent: Extent, copy: bytearray, frames: Frames) -> Iterator[PreparedFlush]:
        batch = decode_headers(copy, frames)
        routed = route(batch, self._excluded)
        ticket = self._log.ticket()
        if not len(routed.order):
            yield self._flush(extent, None, copy, ticket)
            return
        if len(routed.topics) > self._max_queues() and len(extent.starts) > 1:
            first, second = _halves(extent)
            cut = first.end - first.start
            head = Frames(first.starts, first.sizes, cut, Stop.END, None, "")
            tail = Frames(second.starts, second.sizes, len(copy) - cut, Stop.END, None, "")
            yield from self._plan(first, copy[:cut], head)
            yield from self._plan(second, copy[cut:], tail)
            return
        planned = plan(
            batch,
            property_columns(batch),
            routed,
            queue_ends(self._log.planned(), routed, self.lineage),
            PlanSettings(
                self._log.reader.identity.archive_id,
                self.lineage,
                self._settings.block_bytes,
                self._settings.object_bytes,
                self._settings.inline_bytes,
            ),
            compress=self._compress,
            commit_id=ticket.commit_id,
            new_object=lambda: self._new_object(ticket.epoch),
        )
        yield self._flush(extent, planned, copy, ticket)

    def _max_queues(self) -> int:
        """Queues whose edits stay within ``max_edit_bytes``: a run takes at most about 100 bytes compressed."""
        return max(1, self._settings.max_edit_bytes // 100)

    def _new_object(self, epoch: int) -> tuple[str, bytes]:
        """Path under the broker's root and id of a data object that is about to be made."""
        name = uuid.uuid4().bytes
        return build(ObjectKey(Area.DATA, epoch, name)), name

    def _flush(
        self, extent: Extent, planned: Plan | None, copy: bytearray | bytes, ticket: Ticket
    ) -> PreparedFlush:
        mark = self._mark_after(extent, copy)
        edits: list[EditBatch] = list(planned.edits) if planned is not None else []
        edits.append(progress_edit(self.lineage, [(mark.offset, mark.crc, mark.crc_from)]))
        inline = (
            [p for o in planned.objects if not o.path for p in o.encoded.parts] if planned is not None else []
        )
        commit = self._log.plan(ticket, edits, inline)
        self.mark = mark
        reach(CrashPoint.AFTER_PLAN)
        return PreparedFlush(
            planned=commit,
            objects=planned.objects if planned is not None else (),
            next_offset=extent.next_offset,
            first_seen=extent.first_seen,
            messages=len(extent.starts),
            raw_bytes=extent.length,
            plan=planned,
        )

    def _mark_after(self, extent: Extent, copy: bytearray | bytes) -> Mark:
        """The mark at the end of this extent, or at the file's end with the blank record's header in it."""
        mark = self.mark
        if mark.offset != extent.start or self._source.file_start(extent.start) == extent.start:
            mark = Mark(extent.start, 0, extent.start)
        crc = crc32c(extent.blank_header, crc32c(copy, mark.crc))
        return Mark(extent.next_offset, crc, mark.crc_from)


def _halves(extent: Extent) -> tuple[Extent, Extent]:
    """The extent cut at a record near its middle; only the second half may end the file."""
    middle = len(extent.starts) // 2
    cut = PhysicalOffset(extent.start + int(extent.starts[middle]))
    first = Extent(
        extent.start, cut, cut, extent.starts[:middle], extent.sizes[:middle], b"", extent.first_seen, False
    )
    second = Extent(
        cut, extent.end, extent.next_offset, extent.starts[middle:] - extent.starts[middle], extent.sizes[middle:],
        extent.blank_header, extent.first_seen, extent.file_finished,
    )  # fmt: skip
    return first, second


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
