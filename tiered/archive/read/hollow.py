"""Hollow commits: something stands for them, and the messages that travelled inside them are gone with their own keys. The fold
counts these messages as any others; no reader can have them until a copy or the broker's commitlog gives them back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tiered.archive.checkpoint.pieces import all_pieces
from tiered.archive.keys import RepairKey, parse
from tiered.archive.log.reader import LogReader
from tiered.archive.read.view import View
from tiered.archive.state.keys import CLOSED, RUN, queue_of, split_closed_key, split_run_key, topic_key
from tiered.archive.state.layout import RUN_RECORD_DTYPE
from tiered.archive.state.tallies import records
from tiered.archive.state.values import GapState, run_state
from tiered.archive.state.view import ArchiveState
from tiered.errors import NotFound
from tiered.model import ObjectRef

HOLLOW = "the commit was lost; its positions were mended, its messages were not"
"""Reason of what lies in hollow commits."""


def lost_inside(archive: View, topic: str | None = None, *, closed: bool = False) -> Iterator[GapState]:
    """Queue offsets, of a topic or of all, that lie in hollow commits, by queue; ``closed``: closed parts, too, behind all
    others. One listing, and a request for each commit that something stands for; a walk over the runs if one is hollow."""
    hollow = _hollow(archive.log, archive.state)
    if not hollow:
        return
    seqs = np.array(sorted({ref.commit_seq for ref in hollow}), np.int64)
    views = [archive.state.view] if topic is not None else list(all_pieces(archive.state.view))
    for kind, split in ((RUN, split_run_key), (CLOSED, split_closed_key))[: 1 + closed]:
        prefix = kind if topic is None else kind + topic_key(topic)
        for view in views:
            for chunk, found in records(view, prefix, RUN_RECORD_DTYPE):
                for at in np.flatnonzero(np.isin(found["commit_seq"], seqs)).tolist():
                    key, value = chunk[at]
                    queue, generation = split(key)
                    run = run_state(queue_of(queue), generation, value)
                    if run.object in hollow:
                        seq = run.object.commit_seq
                        yield GapState(run.queue, generation, run.start, run.end, HOLLOW, seq)


def _hollow(log: LogReader, state: ArchiveState) -> set[ObjectRef]:
    """Data inside commits that their own keys do not have any more. Whether runs lie in it is not asked: a fold of some queues
    does not know."""
    named = (parse(str(log.keys.path(stored.key))) for stored in log.provider.list(log.keys.repair_prefix()))
    found = set[ObjectRef]()
    for seq in sorted({made.seq for made in named if isinstance(made, RepairKey)}):
        inside = [item for item in state.objects_of(seq) if not item.path]
        there = _length(log, seq) if inside else 0
        found.update(item.ref for item in inside if item.length > there)
    return found


def _length(log: LogReader, seq: int) -> int:
    try:
        return log.provider.head(log.keys.commit(seq)).length
    except NotFound:
        return 0
