"""What waits for maintenance, and what lies in each object, counted in one walk over the runs of a fold: for who asks how
things stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiered.archive.rewrite.mergeplan import Bounds, FreshSums, GrowingSums, Window
from tiered.archive.rewrite.plan import NOTHING, KnownObjects
from tiered.archive.rewrite.sealplan import Sealable, SealBounds, SealSums, unsealed
from tiered.archive.rewrite.walkedruns import walked_runs
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.metadata.base import MetadataView


class Waiting:
    """``windows``, ``sealable`` and the objects of a fold of which pieces are added, each once, queues whole in each.

    A fold of some queues does not count references to objects, and keeps inline data that the whole fold has forgotten. Here
    runs are counted instead.
    """

    def __init__(self, state: ArchiveState, merging: Bounds, sealing: SealBounds, now_ms: int) -> None:
        self._objects = KnownObjects.of(state, NOTHING)
        self._fresh, self._growing = FreshSums(self._objects, merging), GrowingSums(self._objects, merging)
        self._due = SealSums(sealing, now_ms)
        self._runs = np.zeros(len(self._objects.states), np.int64)
        head = state.head()
        self._floor = 0 if head is None else head.floor

    def add(self, piece: MetadataView) -> None:
        """All runs of a piece."""
        for some in walked_runs(piece, self._objects):
            self._runs += np.bincount(some.at, minlength=len(self._runs))
            self._fresh.add(some)
            self._growing.add(some)
            rows = np.flatnonzero(unsealed(self._objects, some.at))
            self._due.add([some.keys[i] for i in rows.tolist()], some.runs[rows])

    def merging(self) -> list[Window]:
        """Of all pieces; nothing is added behind it."""
        growing = self._growing.window()
        return [*self._fresh.windows(), *([] if growing is None else [growing])]

    def sealing(self) -> list[Sealable]:
        """Of all pieces."""
        return self._due.sealable()

    def objects(self) -> list[ObjectState]:
        """Of all pieces, as the whole fold has them: ``references`` are the runs that lie in each."""
        counted = zip(self._objects.states, self._runs.tolist(), strict=True)
        return [
            replace(item, references=runs)
            for item, runs in counted
            if runs or item.path or item.ref.commit_seq >= self._floor
        ]
