"""A flush that the log lost, made again from the broker's commitlog: as the daemon archived it, in the same place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from tiered.archive.log.flush import Flush
from tiered.archive.log.marks import Mark
from tiered.archive.log.planned import Place
from tiered.archive.state.view import ArchiveState
from tiered.codec.checksum import crc32c
from tiered.codec.format.edits import Commit, EditKind
from tiered.codec.record.frame import Stop, scan
from tiered.codec.record.layout import BLANK_HEADER_BYTES
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, NotFound
from tiered.model import PhysicalOffset
from tiered.settings import Dispatch
from tiered.source.base import Copies, Life, LogFiles
from tiered.source.files import LogFile
from tiered.write.buffer import Extent
from tiered.write.compression import Compression
from tiered.write.preparer import Changed, Preparer


class WholeLog(Copies, LogFiles, Life, Protocol):
    """The bytes of a commitlog, its files, and how its broker numbers."""


@dataclass(frozen=True, slots=True)
class ArchivedTo:
    """Where records of a commit ended, ``several``: those of the last of several commits in a row. ``by_runs``: where its last
    record did, so that what fills the file behind it was archived with it."""

    end: int
    several: bool = False
    by_runs: bool = False


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """``source``: the broker's files, or the held links of those that it deleted. ``dispatch``: how flushes are made;
    ``excluded``: topics that are not archived."""

    source: WholeLog
    dispatch: Dispatch
    max_record_bytes: int
    excluded: Callable[[str], bool]

    def flush(
        self,
        base: ArchiveState,
        place: Place,
        reach: ArchivedTo,
        following: Iterable[Commit],
        *,
        inline: bool,
    ) -> Flush | None:
        """What the commit at ``place`` archived on top of ``base``. ``None`` unless all of it is there, and running sums of the
        log, before or behind it, say that this commitlog is the one that was archived.

        ``inline``: messages may travel inside it."""
        head = base.head()
        if head is None:
            return None
        reached = head.progress.get(head.lineage)
        mark = Mark.at(PhysicalOffset(0)) if reached is None else Mark.of(reached)
        dispatch = self.dispatch if inline else replace(self.dispatch, inline_bytes=0)
        level = dispatch.compression_level if dispatch.compression == "zstd" else 0
        try:
            extent = self._extent(mark.offset, reach)
            if extent is None:
                return None
            with ThreadPoolExecutor(1, "repair") as pool:
                preparer = Preparer(
                    self.source, dispatch, excluded=self.excluded, lineage=head.lineage,
                    compression=Compression(pool, 1, level, dispatch.dictionary_bytes),
                )  # fmt: skip
                drafts = list(preparer.prepare(extent, mark, lambda: True))
                if len(drafts) != 1 or not self._was_archived(mark, drafts[0].mark, head.lineage, following):
                    return None
                return drafts[0].settle(place, base)
        except (NotFound, Corrupt, Changed):
            return None

    def _extent(self, start: PhysicalOffset, reach: ArchivedTo) -> Extent | None:
        """The records up to ``reach``; of several commits as many as one takes. ``None`` if they are not all there."""
        file, end, several = self._file_of(start), reach.end, reach.several
        if file is None or start >= end:
            return None
        stop = min(end + BLANK_HEADER_BYTES * reach.by_runs, file.base + file.stored)
        most = self.dispatch.group_commit_bytes if several else None
        if most is not None:
            stop = min(stop, start + most + self.max_record_bytes)
        data = self.source.copy(start, PhysicalOffset(stop))
        frames = scan(data, base=start, max_record_bytes=self.max_record_bytes, max_bytes=most)
        at = PhysicalOffset(start + frames.end)
        blank, following = b"", at
        if frames.stop is Stop.BLANK:
            blank, following = bytes(data[frames.end : frames.end + BLANK_HEADER_BYTES]), file.end
        if end not in (at, following) and (not several or not len(frames) or following > end):
            return None
        return Extent(start, at, following, frames.starts, frames.sizes, blank, 0.0, following == file.end)

    def _file_of(self, offset: PhysicalOffset) -> LogFile | None:
        base = self.source.file_start(offset)
        return next((file for file in self.source.files() if file.base == base), None)

    def _was_archived(self, before: Mark, after: Mark, lineage: int, following: Iterable[Commit]) -> bool:
        """Whether the bytes before and behind the flush have the sums that commits say, as far as they are there; false where
        neither can be compared. A sum begins anew with each file, and a repair leaves none: so both sides are looked at."""
        marks, cut = _marks(following, lineage)
        if cut is not None and cut < after.offset:
            return False  # what lies there now was written in the place of what was archived
        found = [self._sum_is(before.crc_from, 0, before.offset, before.crc)]
        told = next((mark for mark in marks if mark.offset >= after.offset), None)
        if told is not None and told.crc_from == after.crc_from:
            same = told == after if told.offset == after.offset else None
            found.append(
                self._sum_is(after.offset, after.crc, told.offset, told.crc) if same is None else same
            )
        elif told is not None and told.crc_from == after.offset:
            found.append(self._sum_is(after.offset, 0, told.offset, told.crc))
        return True in found and False not in found

    def _sum_is(self, start: PhysicalOffset, crc: int, end: PhysicalOffset, expected: int) -> bool | None:
        """Whether the bytes from ``start`` on have this sum; ``None`` if they are none, or not there."""
        file = self._file_of(start)
        if start == end or file is None:
            return None
        try:
            data: Buffer = self.source.copy(start, PhysicalOffset(min(end, file.end)))
        except NotFound:
            return None
        if end == file.end:  # with the blank record's header alone of what fills the file
            frames = scan(data, base=start, max_record_bytes=self.max_record_bytes)
            data = memoryview(data)[: frames.end + (BLANK_HEADER_BYTES if frames.stop is Stop.BLANK else 0)]
        return crc32c(data, crc) == expected


def _marks(commits: Iterable[Commit], lineage: int) -> tuple[list[Mark], int | None]:
    """The marks that commits leave of bytes that were not cut later, up to the first of another lineage; and the lowest place
    where the log was cut."""
    marks: list[Mark] = []
    lowest: int | None = None
    for edit in (edit for commit in commits for edit in commit.edits):
        if edit.kind is EditKind.OPEN_EPOCH and int(edit.ints("lineage")[0]) != lineage:
            break
        if edit.kind is EditKind.REWIND:
            cut = int(edit.ints("physical_offset").min())
            marks = [mark for mark in marks if mark.offset <= cut]
            lowest = cut if lowest is None else min(lowest, cut)
        if edit.kind is EditKind.PROGRESS:
            columns = (edit.ints(name).tolist() for name in ("physical_offset", "mark_crc", "crc_from"))
            rows = zip(*columns, strict=True)
            marks += [Mark(PhysicalOffset(at), crc, PhysicalOffset(since)) for at, crc, since in rows]
    return marks, lowest
