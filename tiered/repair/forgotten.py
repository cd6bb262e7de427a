"""The queues that a commit forgot, from the folds on both sides of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiered.archive.state.forgotten import written_last
from tiered.archive.state.keys import GENERATION, QUEUE, U4, prefixed, queue_key, queue_of
from tiered.archive.state.layout import unpack_queue
from tiered.archive.state.tallies import records
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditBatch, EditKind, batch
from tiered.model import MessageQueue


def forget_edits(base: ArchiveState, later: ArchiveState, following: Sequence[Commit]) -> list[EditBatch]:
    """The ``ForgetQueues`` between two folds that none of the commits ``following`` says, if it says how many queues there
    were; walks over all queues of ``base``."""
    before, after = base.head(), later.head()
    named = {
        queue_key(MessageQueue(topic, queue_id))
        for commit in following
        for edit in commit.edits
        if edit.kind is EditKind.FORGET_QUEUES
        for topic, queue_id in zip(edit.columns["topic"], edit.ints("queue_id").tolist(), strict=True)
    }
    count = 0 if before is None or after is None else after.forgotten.queues - before.forgotten.queues
    if count <= len(named):
        return []
    gone = [key for key in _gone(base, later) if key not in named]
    if len(gone) != count - len(named):
        return []
    _, generation, lineage, end = written_last(base.view, gone)
    queues = list(map(queue_of, gone))
    return [
        batch(
            EditKind.FORGET_QUEUES, topic=[queue.topic for queue in queues], queue_id=[queue.queue_id for queue in queues],
            generation=generation, lineage=lineage, physical_end=end,
        )
    ]  # fmt: skip


def _gone(base: ArchiveState, later: ArchiveState) -> list[bytes]:
    """Queues of ``base`` without a run that ``later`` does not know, or knows by other generations alone; ascending."""
    found: list[bytes] = []
    for chunk, table in records(base.view, QUEUE):
        keys = [chunk[row][0][1:] for row in np.flatnonzero(table["runs"] == 0).tolist()]
        for key, value in zip(keys, later.view.get_many(prefixed(QUEUE, keys)), strict=True):
            highest = unpack_queue(base.view.get_many((QUEUE + key,))[0] or b"").highest_generation
            if value is None or not _has_generation(later, key, value, highest):
                found.append(key)
    return found


def _has_generation(state: ArchiveState, queue: bytes, value: bytes, number: int) -> bool:
    now = unpack_queue(value)
    earlier = state.view.get_many((GENERATION + queue + U4.pack(number),))[0]
    return now.generation == number or earlier is not None or now.highest_generation == number
