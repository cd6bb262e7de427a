"""``apply``: what one commit does to the state.

Rules and meaning of every edit: DESIGN.md, "Edits". ``apply`` is pure: the same view and commit give the same
changes, and a commit that breaks a rule raises ``Corrupt`` (naming rule, commit, queue, expected, found) and changes
nothing. Nothing in here reads a clock, a setting or a listing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tiered.archive.fold import logedits
from tiered.archive.fold.agealiases import replace_aliases
from tiered.archive.fold.aliases import queue_aliases
from tiered.archive.fold.context import Fold
from tiered.archive.fold.cut import rewind, trim_queues
from tiered.archive.fold.forget import forget_queues
from tiered.archive.fold.replace import replace_runs
from tiered.archive.fold.runs import append_runs, check_created, gaps, losses, new_generations
from tiered.archive.fold.sinkmap import check_mapped, sink_map
from tiered.archive.fold.sinkprogress import sink_progress
from tiered.archive.state.keys import HEAD
from tiered.archive.state.layers import Changes, FoldDraft
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import RESERVED_KINDS, Commit, EditKind
from tiered.errors import Corrupt, Refused
from tiered.metadata.base import MetadataView

ZERO_ID = bytes(16)
"""Previous commit id of the first commit."""

_HANDLERS: Mapping[EditKind, Any] = {
    **logedits.HANDLERS,
    EditKind.APPEND_RUN: append_runs,
    EditKind.GAP: gaps,
    EditKind.LOSS: losses,
    EditKind.NEW_GENERATION: new_generations,
    EditKind.REWIND: rewind,
    EditKind.TRIM_QUEUE: trim_queues,
    EditKind.REPLACE_RUNS: replace_runs,
    EditKind.QUEUE_ALIAS: queue_aliases,
    EditKind.REPLACE_ALIASES: replace_aliases,
    EditKind.FORGET_QUEUES: forget_queues,
    EditKind.SINK_PROGRESS: sink_progress,
    EditKind.SINK_MAP: sink_map,
}


def apply(view: MetadataView, commit: Commit, scope: Scope = EVERYTHING) -> Changes:
    """What ``commit`` does to ``view``. ``Corrupt`` if it breaks a rule, ``Refused`` if this program is too
    old for it.

    With a ``scope`` only what concerns its queues, and the log itself, is looked at and changed: for readers of a few
    queues among many. Objects' references then mean nothing. Writers and ``verify`` fold everything.
    """
    head = ArchiveState(view).head()
    _refuse_reserved(commit)
    opening = next((b for b in commit.edits if b.kind is EditKind.OPEN_EPOCH), None)
    _check_chain(head, commit, opens=opening is not None)
    if opening is not None:
        opened = logedits.open_epoch(head, commit, opening)
        return Changes({HEAD: opened.pack()}, opened)
    assert head is not None  # _check_chain: the first commit opens an epoch
    reached = head.progress.get(head.lineage)
    moved = replace(head, seq=commit.seq, commit_id=commit.commit_id)
    fold = Fold(
        FoldDraft(view), commit, moved, settled=0 if reached is None else reached.physical_offset, scope=scope
    )
    for batch in commit.edits:
        _HANDLERS[batch.kind](fold, batch)
    _finish(fold)
    return fold.changes()


def _finish(fold: Fold) -> None:
    """Rules about the commit as a whole, and what is written once."""
    check_created(fold)
    check_mapped(fold)
    fold.settle_references()
    reached = fold.head.progress.get(fold.head.lineage)
    end = 0 if reached is None else reached.physical_offset
    rule = "a flush ends in a Progress at or above its runs"
    fold.check(end >= fold.appended_to, rule, expected=f"≥ {fold.appended_to}", found=end)
    fold.draft.put(HEAD, fold.head.pack())


def _refuse_reserved(commit: Commit) -> None:
    reserved = next(
        (b.kind for b in commit.edits if b.kind in RESERVED_KINDS or b.kind not in EditKind), None
    )
    if reserved is not None:
        raise Refused(
            "the archive holds an edit that this program does not know",
            hint="install a newer version of this program",
            commit=commit.seq,
            found=getattr(reserved, "name", reserved),
        )


def _check_chain(head: Head | None, commit: Commit, *, opens: bool) -> None:
    """A commit follows the head: number, previous id, archive, epoch, writer."""

    def check(ok: bool, rule: str, expected: object, found: object) -> None:
        if not ok:
            message = f"a commit breaks a rule of the archive: {rule}"
            raise Corrupt(message, rule=rule, commit=commit.seq, expected=expected, found=found)

    seq = 0 if head is None else head.seq + 1
    check(commit.seq == seq, "commits are numbered without a hole", seq, commit.seq)
    previous = ZERO_ID if head is None else head.commit_id
    rule = "a commit names the one before it"
    check(commit.previous_id == previous, rule, previous.hex(), commit.previous_id.hex())
    sized = len(commit.commit_id) == 16 and commit.commit_id != ZERO_ID
    check(sized, "a commit id is 16 bytes, not all zero", "16 bytes", commit.commit_id.hex())
    if head is None:
        check(opens, "the first commit opens an epoch", "OpenEpoch", "none")
        check(len(commit.archive_id) == 16, "an archive id is 16 bytes", 16, len(commit.archive_id))
        return
    rule = "a commit is of this archive"
    check(commit.archive_id == head.archive_id, rule, head.archive_id.hex(), commit.archive_id.hex())
    if not opens:
        check(commit.epoch == head.epoch, "a commit is of the epoch in force", head.epoch, commit.epoch)
        rule = "a commit is of the epoch's writer"
        check(commit.writer_id == head.writer_id, rule, head.writer_id.hex(), commit.writer_id.hex())
