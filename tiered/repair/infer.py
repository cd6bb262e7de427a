"""A commit's edits from the objects it left and from the commits behind it: for want of any later fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tiered.archive.log.marks import Mark, gap_edit, progress_edit
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.strays import Stray
from tiered.archive.state.values import LOST
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditBatch, EditKind
from tiered.model import PhysicalOffset
from tiered.opening.rewind import rewind_edit
from tiered.repair.behind import Behind, look_behind
from tiered.repair.derive import opened_silently
from tiered.repair.runs import Appended, append_edits, lossy_edits, runs_of_stray, strays_edit


def infer(
    base: ArchiveState, seq: int, strays: Sequence[Stray], following: Sequence[Commit], objects: ObjectReader
) -> Iterator[list[EditBatch]]:
    """What a commit must have held for the next ones to fit. ``strays``: the objects that may be its own, inline data first.

    Marks are not known: the ``Progress`` made here has one over no byte, which is no evidence to any comparison. A commit that
    moved the log on and left no object is none of these: ``lose``.
    """
    head = base.head()
    opened = opened_silently(head, seq, following)
    if opened is not None:
        yield [opened]
    if head is None or (opened is not None and following[0].seq == seq + 1):
        return
    reached = head.progress.get(head.lineage)
    proven = 0 if reached is None else reached.physical_offset
    reach = look_behind(following, head.lineage).reach
    if reach is not None and reach < proven:
        offset = PhysicalOffset(reach)
        rewound = rewind_edit(base, objects, head.lineage, offset, Mark.at(offset))
        yield [rewound, progress_edit(head.lineage, [(offset, 0, offset)])]
    ours = _between(strays, proven, reach)
    end = max((s.physical_end for s in ours), default=proven)
    if not ours and reached is not None and reach is not None and reach > proven:
        return
    edits = [strays_edit(ours)] if ours else []
    edits += append_edits(base, _runs(ours), ())
    if reached is not None and end == proven:
        edits.append(progress_edit(head.lineage, [(proven, reached.mark_crc, reached.crc_from)]))
    else:
        edits.append(progress_edit(head.lineage, [(end, 0, end)]))
    yield edits


def unsure(commit: Commit, base: ArchiveState, following: Sequence[Commit]) -> str:
    """What to say of a commit that stands for one of which nothing tells whether messages were in it; else nothing."""
    head = base.head()
    if head is None or head.lineage not in head.progress:
        return ""
    behind = look_behind(following, head.lineage)
    if behind.reach is not None or any(edit.kind is not EditKind.PROGRESS for edit in commit.edits):
        return ""
    said = "whether it held messages is unknown; if it did, "
    if behind.rewound is not None:
        return said + "they were of a tail that the broker lost as well"
    return said + "the daemon archives anew what the broker still has, and records the rest as a gap"


def lose(base: ArchiveState, strays: Sequence[Stray], behind: Behind) -> list[EditBatch] | None:
    """What stands for a flush whose records are gone, at least some of them: a gap in the log and in each queue that went on
    elsewhere, so that everything behind is as it was. ``None`` where no commit tells how far the log was.
    """
    head = base.head()
    if head is None:
        return None
    reached = head.progress.get(head.lineage)
    proven = 0 if reached is None else reached.physical_offset
    end = behind.reach
    if end is None and behind.rewound is not None:  # beyond it, or nothing would have been cut
        end = max(proven, behind.rewound + 1)
    if end is None or end < proven:
        return None
    ours = _between(strays, proven, end)
    edits = [strays_edit(ours)] if ours else []
    edits += lossy_edits(base, _runs(ours), behind.stands, end)
    if end > proven:
        edits.append(gap_edit(head.lineage, proven, end, LOST))
    return [*edits, progress_edit(head.lineage, [(end, 0, end)])]


def _between(strays: Sequence[Stray], proven: int, end: int | None) -> list[Stray]:
    """Those with records of this part of the log and of no other, in its order."""
    inside = (s for s in strays if s.physical_start >= proven and (end is None or s.physical_end <= end))
    return sorted(inside, key=lambda s: s.physical_start)


def _runs(strays: Sequence[Stray]) -> list[Appended]:
    return [run for number, stray in enumerate(strays) for run in runs_of_stray(stray, number)]
