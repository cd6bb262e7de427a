"""A commit's edits from a later fold: every run, object, gap and mark in it says which commit it came with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tiered.archive.fold.logedits import DICTIONARIES
from tiered.archive.log.marks import Mark, gap_edit, progress_edit
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.forgotten import FORGOTTEN_QUEUES
from tiered.archive.state.keys import MARK, lineage_key
from tiered.archive.state.layout import MARK_STRUCT
from tiered.archive.state.sinks import SINK_MAPS, SINKS
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.aliases import LITE_QUEUES
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.errors import Corrupt
from tiered.model import PhysicalOffset
from tiered.opening.rewind import rewind_edit
from tiered.repair.aliases import alias_edits
from tiered.repair.forgotten import forget_edits
from tiered.repair.runs import append_edits, objects_edit, runs_of_fold
from tiered.version import FORMAT_VERSION

Marks = list[tuple[int, int, int]]
MOST_MARKS = 4
"""A flush leaves one mark, two at a file's end."""
UNKNOWN_HOST = "unknown: commit repaired"


def derive(
    base: ArchiveState, later: ArchiveState, seq: int, following: Sequence[Commit], objects: ObjectReader
) -> Iterator[list[EditBatch]]:
    """What commit ``seq`` may have held, by two folds around it. The caller folds each to find which leads to ``later``."""
    head, after = base.head(), later.head()
    assert after is not None
    if after.epoch_seq == seq:
        yield [open_edit(after)]
        return
    opened = opened_silently(head, seq, following)
    if opened is not None:
        yield [opened]
        if following[0].seq == seq + 1:
            return
    if head is None:
        return
    forgotten = forget_edits(base, later, following)
    if forgotten:
        yield forgotten
    marks, cut = _marks(base, later, head.lineage, following)
    if marks and cut:
        offset, crc, crc_from = marks[0]
        mark = Mark(PhysicalOffset(offset), crc, PhysicalOffset(crc_from))
        with contextlib.suppress(Corrupt):
            rewound = rewind_edit(base, objects, head.lineage, PhysicalOffset(offset), mark)
            yield [rewound, progress_edit(head.lineage, marks[:1])]
    found = sorted((o for o in later.objects() if o.ref.commit_seq == seq), key=lambda o: o.ref.index)
    runs = runs_of_fold(later, seq)
    gaps = [g for g in later.gaps() if g.commit_seq == seq]
    physical = [g for g in later.phys_gaps(head.lineage) if g.commit_seq == seq]
    edits = [objects_edit(found)] if found else []
    edits += append_edits(base, runs, gaps)
    edits += alias_edits(later, seq)
    edits += [gap_edit(head.lineage, g.start, g.end, g.reason) for g in physical]
    last = _last(head)
    kept = [] if cut or marks is None else marks
    for count in range(
        min(len(kept), MOST_MARKS), 0, -1
    ):  # those at the end may be of later commits whose own were cut
        yield [*edits, progress_edit(head.lineage, kept[:count])]
    yield [*edits, progress_edit(head.lineage, [last])]
    # A later rewind may have cut its mark away: then the place alone counts, and no fold keeps what is written here for it.
    ends = [run.numbers["physical_end"] for run in runs] + [g.end for g in physical]
    yield [*edits, progress_edit(head.lineage, [(max(ends, default=last[0]), 0, last[2])])]


def open_edit(head: Head) -> EditBatch:
    """The ``OpenEpoch`` that a fold's head came from."""
    return batch(
        EditKind.OPEN_EPOCH,
        epoch=head.epoch,
        writer_id=head.writer_id,
        host=head.host,
        store_time_ms=head.epoch_store_time_ms,
        lineage=head.lineage,
        source_kind=head.source_kind,
        role=head.role,
        broker_epoch=head.broker_epoch,
        min_reader=head.min_reader,
        min_writer=head.min_writer,
        required_features=Rows([list(head.required_features)]),
    )


def opened_silently(head: Head | None, seq: int, following: Sequence[Commit]) -> EditBatch | None:
    """The ``OpenEpoch`` that was in a commit because the next one that can be read is of another epoch and does not open it."""
    if not following:
        return None
    after = following[0]
    opens = any(edit.kind is EditKind.OPEN_EPOCH for edit in after.edits)
    epoch, before = after.epoch - 1 if opens else after.epoch, 0 if head is None else head.epoch
    if epoch == before:
        return None
    if after.seq != seq + 1:  # it or another damaged one between
        epoch = before + 1
    lineages = (
        int(edit.ints("lineage")[0])
        for commit in following
        for edit in commit.edits
        if edit.kind in (EditKind.PROGRESS, EditKind.REWIND, EditKind.OPEN_EPOCH) and len(edit)
    )
    return batch(
        EditKind.OPEN_EPOCH,
        epoch=epoch,
        writer_id=after.writer_id,
        host=UNKNOWN_HOST,
        store_time_ms=0,
        lineage=next(lineages, 1 if head is None else head.lineage),
        source_kind="commitlog",
        role="master",
        broker_epoch=None,
        min_reader=FORMAT_VERSION,
        min_writer=FORMAT_VERSION,
        required_features=Rows([_features(head, following)]),
    )


def _features(head: Head | None, following: Sequence[Commit]) -> list[str]:
    """What an epoch must have required."""
    kinds = {edit.kind for commit in following for edit in commit.edits}
    had = () if head is None else head.required_features
    needed = [
        feature
        for feature, kind in (
            (LITE_QUEUES, EditKind.QUEUE_ALIAS),
            (FORGOTTEN_QUEUES, EditKind.FORGET_QUEUES),
            (SINKS, EditKind.SINK_PROGRESS),
            (SINK_MAPS, EditKind.SINK_MAP),
        )
        if kind in kinds or feature in had
    ]
    return [*needed, DICTIONARIES] if DICTIONARIES in had else needed


def _last(head: Head) -> tuple[int, int, int]:
    reached = head.progress.get(head.lineage)
    return (0, 0, 0) if reached is None else (reached.physical_offset, reached.mark_crc, reached.crc_from)


def _marks(
    base: ArchiveState, later: ArchiveState, lineage: int, following: Sequence[Commit]
) -> tuple[Marks | None, bool]:
    """The marks that the commit between two folds added, and whether it cut some before; ``None`` if later ones hide them."""
    before, after = base.mark_index(lineage), later.mark_index(lineage)
    kept = before.next_mark
    while kept > max(before.first_mark, after.first_mark) and _mark(base, lineage, kept - 1) != _mark(
        later, lineage, kept - 1
    ):
        kept -= 1
    ours: Marks = []
    ends = next(
        (
            row
            for commit in following
            for edit in commit.edits
            if edit.kind is EditKind.PROGRESS
            for row in _rows(edit)
        ),
        None,
    )
    for ordinal in range(kept, after.next_mark):
        mark = _mark(later, lineage, ordinal)
        if mark is None:
            return None, False
        if mark == ends:
            break
        ours.append(mark)
    return ours, kept < before.next_mark


def _rows(edit: EditBatch) -> Marks:
    return list(
        zip(
            edit.ints("physical_offset").tolist(), edit.ints("mark_crc").tolist(), edit.ints("crc_from").tolist(),
            strict=True,
        )
    )  # fmt: skip


def _mark(state: ArchiveState, lineage: int, ordinal: int) -> tuple[int, int, int] | None:
    value = state.view.get_many((lineage_key(MARK, lineage, ordinal),))[0]
    if value is None:
        return None
    offset, crc, crc_from = MARK_STRUCT.unpack(value)
    return offset, crc, crc_from
