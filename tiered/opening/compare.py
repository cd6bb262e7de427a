"""A broker's files beside the fold of its archive: the one comparison, made by the daemon before it claims an epoch and while
it runs, and by ``tiered doctor``. Nothing is changed by it."""

from __future__ import annotations

from typing import Protocol

from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import LOST, Head
from tiered.archive.state.view import ArchiveState
from tiered.model import PhysicalOffset
from tiered.opening.lineage import BrokerComparison, ComparedLog, Relation, compare, rewritten
from tiered.opening.rewind import archived_from
from tiered.source.base import LogFiles
from tiered.source.marks import MarkVerdict, check_mark


class DatedLog(ComparedLog, LogFiles, Protocol):
    """The broker's own bytes, and the times of its files."""


def compare_with_archive(
    source: DatedLog,
    state: ArchiveState,
    head: Head | None,
    objects: ObjectReader,
    *,
    accept_new_lineage: bool,
) -> BrokerComparison:
    """What broker and archive share, also when the broker has written over a gap. ``Refused``: it is not the same broker."""
    lineage = head.lineage if head is not None else 0
    progress = head.progress.get(lineage) if head is not None else None
    outcome = compare(
        source,
        progress,
        state.marks(lineage),
        lambda offset: archived_from(state, objects, lineage, offset),
        last_archived_ms=lambda: max(
            (q.max_store_time or 0 for q in state.queues() if q.lineage == lineage), default=None
        ),
        first_local_ms=lambda: first_local_ms(source),
        accept_new_lineage=accept_new_lineage,
    )
    healed = rewritten_gap(source, state, lineage)
    known = outcome.relation in (Relation.SAME, Relation.REWIND)
    if healed is None or healed >= outcome.offset or not known:
        return outcome
    matched = outcome.matched
    if matched is not None and matched.physical_offset > healed:
        matched = None
    return BrokerComparison(
        Relation.REWIND, healed, matched, "the broker cut its log at damage and writes on over it"
    )


def has_all(source: DatedLog, end: Head, seen: Head) -> bool:
    """Whether the broker or its hold has every byte from where ``end`` stands to where ``seen`` does, in one lineage, and not
    others in their place: the broker lost its tail, too, and wrote on."""
    lineage = seen.lineage
    if end.lineage != lineage or lineage not in end.progress or lineage not in seen.progress:
        return False
    first, last = (head.progress[lineage].physical_offset for head in (end, seen))
    reached = first
    for file in source.files():
        if file.base <= reached < file.end:
            reached = file.end - file.missing
    if min(reached, source.max_offset()) < max(first, last):
        return False
    return check_mark(source, seen.progress[lineage]) is not MarkVerdict.MISMATCH


def rewritten_gap(source: ComparedLog, state: ArchiveState, lineage: int) -> PhysicalOffset | None:
    """Where the broker has written over bytes of this lineage that were recorded as a gap.

    What the archive lost by itself is none of these: the broker's records there are the ones that were archived once.
    """
    starts = (PhysicalOffset(gap.start) for gap in state.phys_gaps(lineage) if gap.reason != LOST)
    return rewritten(source, starts)


def first_local_ms(source: DatedLog) -> int | None:
    """Store time of the first record of the broker's oldest file."""
    oldest = source.min_offset()
    for file in source.files():
        if file.base == oldest:
            return source.first_time(file)
    return None
