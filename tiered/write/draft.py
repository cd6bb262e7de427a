"""A flush before its turn in the line: what the records tell is made, or being made; what the fold adds is not asked yet."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from tiered.archive.log.flush import Flush, Priority
from tiered.archive.log.marks import Mark
from tiered.archive.log.planned import Place
from tiered.archive.state.view import ArchiveState
from tiered.model import PhysicalOffset
from tiered.write.aliases import lite_ends
from tiered.write.buffer import Extent
from tiered.write.compression import Compressing
from tiered.write.gathered import GatheredFlush
from tiered.write.planner import plan
from tiered.write.router import queue_ends


@dataclass(frozen=True, slots=True)
class DraftRecords:
    """The records of a draft, gathered by queue, and their blocks, which are being compressed."""

    gathered: GatheredFlush
    blocks: Compressing


@dataclass(frozen=True, slots=True)
class Draft:
    """One extent, on its way to a commit. ``mark``: the running mark at its end. ``messages``: those of its records that are
    archived. ``records``: ``None`` when none of its records is archived."""

    extent: Extent
    lineage: int
    mark: Mark
    messages: int = 0
    records: Future[DraftRecords] | None = None

    @property
    def priority(self) -> Priority:
        return Priority.ARCHIVE

    @property
    def next_offset(self) -> PhysicalOffset:
        """What is below it is archived once this is proven."""
        return self.extent.next_offset

    @property
    def raw_bytes(self) -> int:
        """Its part of the commitlog, excluded records too."""
        return self.extent.length

    def settle(self, place: Place, fold: ArchiveState) -> Flush:
        """Wait for the compressed blocks; plan objects and edits on top of ``fold``. It may be asked again after an error."""
        progress = self.mark.progress(self.lineage)
        if self.records is None:
            return Flush((progress,), self.next_offset, self.extent.first_seen, raw_bytes=self.raw_bytes)
        records = self.records.result()
        made, stored = records.gathered, records.blocks.result()
        lite = None if made.aliases is None else lite_ends(fold, made.aliases, self.lineage)
        ends = queue_ends(fold, made.routed, self.lineage)
        planned = plan(made, stored, ends, self.lineage, place, lite)
        return Flush(
            (*planned.edits, progress),
            self.next_offset,
            self.extent.first_seen,
            self.messages,
            self.raw_bytes,
            planned.objects,
            planned.dispatch_offsets,
            planned.archived,
        )
