"""Which commits have appended the messages of a merged run: its object keeps the commit of each."""

from __future__ import annotations

import numpy as np
from cachetools import LRUCache

from tiered.archive.state.values import RunState
from tiered.codec.types import Ints
from tiered.model import RunId
from tiered_spark.snapshot import ArchivePlace, Snapshot

_kept: LRUCache[tuple[ArchivePlace, RunId], tuple[Ints, Ints]] = LRUCache(10_000)


def appended_by(snapshot: Snapshot, run: RunState) -> tuple[Ints, Ints]:
    """Commits, ascending, and how many of the run's queue offsets each has appended. Fetched once, a column of the object."""
    name = (snapshot.place, run.id)
    found = _kept.get(name)
    if found is None:
        item = snapshot.object(run.object)
        names = ("commit_seq",) if run.dense else ("commit_seq", "queue_offsets")
        columns = snapshot.view.objects.columns(item, names, run.first_row, run.rows)
        commits, mine = np.unique(columns["commit_seq"], return_inverse=True)
        owned = np.bincount(mine, columns.get("queue_offsets"), len(commits))
        found = _kept[name] = commits.astype(np.int64), owned.astype(np.int64)
    return found
