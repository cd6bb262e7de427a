"""A commit's edits from the objects it left and from the commits behind it: for want of any later fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tiered.archive.objects import ObjectReader
from tiered.archive.state import ArchiveState
from tiered.archive.strays import Stray
from tiered.codec.edits import Commit, EditBatch, EditKind
from tiered.dispatch.planner import progress_edit
from tiered.dispatch.preparer import Mark
from tiered.dispatch.reconcile import rewind_edit
from tiered.model import PhysicalOffset
from tiered.repair.derive import opened_silently
from tiered.repair.runs import append_edits, runs_of_stray, strays_edit


def infer(
    base: ArchiveState, seq: int, strays: Sequence[Stray], following: Sequence[Commit], objects: ObjectReader
) -> Iterator[list[EditBatch]]:
    """What a commit must have held for the next ones to fit. ``strays``: the objects that may be its own, inline data first.

    Marks are not known: the ``Progress`` made here has one over no byte, which is no evidence to any comparison.
    """
    head = base.head()
    opened = opened_silently(head, seq, following)
    if opened is not None:
        yield [opened]
    if head is None or (opened is not None and following[0].seq == seq + 1):
        return
    reached = head.progress.get(head.lineage)
    proven = 0 if reached is None else reached.physical_offset
    next_start = _first_physical(following)
    if next_start is not None and next_start < proven:
        offset = PhysicalOffset(next_start)
        rewound = rewind_edit(base, objects, head.lineage, offset, Mark(offset, 0, offset))
        yield [rewound, progress_edit(head.lineage, [(offset, 0, offset)])]
    ours = sorted(
        (
            s
            for s in strays
            if s.physical_start >= proven and (next_start is None or s.physical_end <= next_start)
        ),
        key=lambda s: s.physical_start,
    )
    runs = [run for number, stray in enumerate(ours) for run in runs_of_stray(stray, number)]
    end = max((s.physical_end for s in ours), default=proven)
    edits = [strays_edit(ours)] if ours else []
    edits += append_edits(base, runs, ())
    if reached is not None and end == proven:
        edits.append(progress_edit(head.lineage, [(proven, reached.mark_crc, reached.crc_from)]))
    else:
        edits.append(progress_edit(head.lineage, [(end, 0, end)]))
    yield edits


def _first_physical(following: Sequence[Commit]) -> int | None:
    """The lowest physical offset that the commits behind append, up to the next that goes back or opens an epoch."""
    starts: list[int] = []
    for commit in following:
        kinds = {edit.kind for edit in commit.edits}
        if kinds & {EditKind.OPEN_EPOCH, EditKind.REWIND}:
            break
        for edit in commit.edits:
            if edit.kind is EditKind.APPEND_RUN and len(edit):
                starts.append(int(edit.ints("physical_start").min()))
    return min(starts, default=None)
