"""Is this still the broker the archive knows? The walk over marks (DESIGN.md, "Same broker?").

Every comparison is against the broker's own directory, never a held link: a link may be the old inode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Protocol

from tiered.codec.checksum import crc32c
from tiered.codec.record.frame import lacks_its_end, scan, verify
from tiered.codec.record.layout import FIXED, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from tiered.errors import NotFound, Refused
from tiered.model import PhysicalOffset, Progress
from tiered.source.base import Copies, Tail
from tiered.source.marks import WINDOW_BYTES, MarkVerdict, check_mark


class ComparedLog(Tail, Copies, Protocol):
    """The broker's own bytes, and where they begin and end."""


class Relation(Enum):
    """What broker and archive share."""

    FRESH = "fresh"  # the archive has nothing of any lineage
    SAME = "same"  # everything archived is still the broker's
    REWIND = "rewind"  # shared up to a point; the archive holds a tail the broker lost
    BEHIND = "behind"  # the broker deleted what was not archived yet: a physical gap
    NEW = "new"  # nothing shared, accepted as a new lineage


@dataclass(frozen=True, slots=True)
class BrokerComparison:
    """``offset``: where archiving goes on. ``matched``: the mark that proves the shared history, if one does."""

    relation: Relation
    offset: PhysicalOffset
    matched: Progress | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """An archived record of the lineage, with its original physical offset."""

    physical_offset: int
    data: memoryview


def rewritten(source: ComparedLog, gaps: Iterable[PhysicalOffset]) -> PhysicalOffset | None:
    """The first of these starts of recorded gaps where the broker has a whole record now.

    A broker that meets damage when it starts cuts its log there and writes on over it: what the archive has from behind the
    gap is then a lost tail, though its bytes may still lie in the file.
    """
    local_min = source.min_offset()
    for start in gaps:
        if local_min is None or start < local_min:
            continue
        try:
            head = source.copy_local(start, PhysicalOffset(start + MIN_RECORD_BYTES))
            size = _size_of_record_at(head, start)
            if size is None:
                continue
            record = source.copy_local(start, PhysicalOffset(start + size))
        except NotFound:
            continue
        frames = scan(record, base=start, max_record_bytes=len(record))
        if len(verify(record, frames, start)) == 1 and not lacks_its_end(record):
            return start
    return None


def _size_of_record_at(head: bytearray, start: PhysicalOffset) -> int | None:
    """The size of the record that begins with ``head``, if that has its own place in it: only then its size is worth a look."""
    size, magic, _, _, _, _, place, _, _ = FIXED.unpack_from(head)
    return size if size >= MIN_RECORD_BYTES and magic in (MAGIC_V1, MAGIC_V2) and place == start else None


def newest_match(source: ComparedLog, marks: Iterable[Progress]) -> tuple[Progress | None, bool]:
    """Walk marks back from the end: the newest that matches, and whether any mark was refuted on the way.

    Marks that sum from the same byte are judged in one pass over the bytes: behind the first that differs none can match.
    """
    refuted = False
    for _, group in groupby(marks, key=lambda mark: mark.crc_from):
        newest, *older = group
        verdict = check_mark(source, newest)
        if verdict is MarkVerdict.MATCH:
            return newest, refuted
        refuted = refuted or verdict is MarkVerdict.MISMATCH
        found, differs = _match_in_file(source, older)
        refuted = refuted or differs
        if found is not None:
            return found, refuted
    return None, refuted


def _match_in_file(source: ComparedLog, marks: list[Progress]) -> tuple[Progress | None, bool]:
    """The newest match among marks of one file (newest first, none at its end), in one pass; whether one was refuted."""
    best: Progress | None = None
    value = 0
    position: PhysicalOffset | None = None
    for mark in reversed(marks):
        if mark.physical_offset <= mark.crc_from:
            continue
        position = PhysicalOffset(mark.crc_from) if position is None else position
        try:
            while position < mark.physical_offset:
                stop = PhysicalOffset(min(mark.physical_offset, position + WINDOW_BYTES))
                value = crc32c(source.copy_local(position, stop), value)
                position = stop
        except NotFound:
            return best, False
        if value != mark.mark_crc:
            return best, True
        best = mark
    return best, False


def last_identical(
    source: ComparedLog, matched: PhysicalOffset, archived: Iterator[ArchivedRecord]
) -> tuple[PhysicalOffset, bool]:
    """End of the last archived record, from ``matched`` on, whose bytes the broker still has; and whether it has all.

    ``archived``: ascending by physical offset, none below ``matched``.
    """
    end = matched
    for record in archived:
        start = PhysicalOffset(record.physical_offset)
        stop = PhysicalOffset(start + len(record.data))
        try:
            local = source.copy_local(start, stop)
        except NotFound:
            return end, False
        if local != record.data:
            return end, False
        end = stop
    return end, True


def compare(
    source: ComparedLog,
    progress: Progress | None,
    marks: Iterable[Progress],
    archived_from: Callable[[PhysicalOffset], Iterator[ArchivedRecord]],
    *,
    last_archived_ms: Callable[[], int | None],
    first_local_ms: Callable[[], int | None],
    accept_new_lineage: bool,
) -> BrokerComparison:
    """Decide what broker and archive share. ``Refused`` when nothing proves that it is the same broker."""
    if progress is None:
        return BrokerComparison(Relation.FRESH, PhysicalOffset(0))
    matched, refuted = newest_match(source, marks)
    if matched is not None:
        return _shared(source, progress, matched, archived_from, refuted=refuted)
    local_min = source.min_offset()
    position = PhysicalOffset(progress.physical_offset)
    if local_min is not None and local_min < position:
        found = _by_first_record(source, progress, local_min, archived_from, refuted=refuted)
        if found is not None:
            return found
    nothing = last_archived_ms() is None
    if nothing and not refuted and local_min is not None and local_min <= position:
        local_end = source.max_offset()
        if position <= local_end:
            return BrokerComparison(Relation.SAME, position, reason="no record was archived yet")
        return BrokerComparison(
            Relation.REWIND, local_end, reason="no record was archived yet, and the broker lost its tail"
        )
    if not refuted and local_min is not None and local_min >= position:
        first_ms = first_local_ms()
        if nothing or first_ms is None or first_ms >= (last_archived_ms() or 0):
            relation = Relation.BEHIND if local_min > position else Relation.SAME
            return BrokerComparison(
                relation,
                position,
                reason="every archived byte is gone from the broker: nothing could be compared",
            )
    if accept_new_lineage:
        return BrokerComparison(
            Relation.NEW, PhysicalOffset(0), reason="accepted as a new lineage by setting"
        )
    raise Refused(
        "this broker's commitlog shares nothing with the archive: a reinstalled or different broker",
        hint="is another daemon alive on this archive, beside the broker that it is of? Then source.store_dir or archive.url is"
        " wrong here; if this broker was reinstalled, --new-lineage goes on in the same archive",
        archived_up_to=position,
        local_minimum="empty" if local_min is None else local_min,
    )


def _by_first_record(
    source: ComparedLog,
    progress: Progress,
    local_min: PhysicalOffset,
    archived_from: Callable[[PhysicalOffset], Iterator[ArchivedRecord]],
    *,
    refuted: bool,
) -> BrokerComparison | None:
    """Without a matching mark: an archived record identical to the local one at the first archived local position proves shared
    history too (the only mark with local bytes may lie behind the truncation). ``None``: it is not identical."""
    first = next(archived_from(local_min), None)
    if first is None:
        return None
    start = PhysicalOffset(first.physical_offset)
    end, complete = last_identical(source, start, archived_from(start))
    if end == start:
        return None
    if complete and not refuted:
        return BrokerComparison(Relation.SAME, PhysicalOffset(progress.physical_offset))
    return BrokerComparison(Relation.REWIND, end, reason="the broker lost its tail and wrote another one")


def _shared(
    source: ComparedLog,
    progress: Progress,
    matched: Progress,
    archived_from: Callable[[PhysicalOffset], Iterator[ArchivedRecord]],
    *,
    refuted: bool,
) -> BrokerComparison:
    """History is shared up to a mark; compare record by record behind it."""
    position = PhysicalOffset(progress.physical_offset)
    shared = PhysicalOffset(matched.physical_offset)
    if shared == position:
        return BrokerComparison(Relation.SAME, position, matched)
    end, complete = last_identical(source, shared, archived_from(shared))
    if complete and not refuted:
        return BrokerComparison(Relation.SAME, position, matched)
    return BrokerComparison(Relation.REWIND, end, matched, "the broker lost its tail and wrote another one")
