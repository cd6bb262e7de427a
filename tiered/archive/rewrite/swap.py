"""The ``ReplaceRuns`` that puts rewritten runs in their sources' place, once it is known which of these are still there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.log.flush import DataObject, Flush, Priority
from tiered.archive.log.writer import Place
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.writing import Target
from tiered.archive.state.layout import OPEN
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import SCHEMA, Col, EditBatch, EditKind, Rows, batch
from tiered.codec.types import Bools

_TARGET_INTS = tuple(n for n, how in SCHEMA[EditKind.APPEND_RUN] if how is Col.INT)


@dataclass(frozen=True, slots=True)
class Swap:
    """A job whose object is put, on its way to a commit. ``runs``: the object's table of runs, one for each target.

    At its place in the log every source is looked up again (DESIGN.md, "Merge and seal", M4): a queue with one that a trim, a
    rewind or whatever else touched is left out, and keeps its runs as they are.
    """

    job: Job
    made: DataObject
    level: int
    runs: npt.NDArray[np.void]
    targets: Sequence[Target]
    now: float

    @property
    def messages(self) -> int:
        """None that were not archived before."""
        return 0

    @property
    def raw_bytes(self) -> int:
        """None of the commitlog."""
        return 0

    @property
    def priority(self) -> Priority:
        """Behind what is archived."""
        return Priority.SEALING

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what is unchanged; ``None`` if nothing is, or if the object is of another epoch than the place."""
        kept = self._unchanged(fold)
        if not kept.any() or not self.made.path.startswith(f"data/{place.epoch:010d}-"):
            return None
        edits = (self._object_edit(), self._replace_edit(kept))
        return Flush(edits, None, self.now, objects=(self.made,), priority=self.priority)

    def _unchanged(self, fold: ArchiveState) -> Bools:
        """Which targets: those of queues all of whose sources are as they were."""
        found = fold.view.get_many(self.job.keys)
        changed = np.fromiter(
            map(bytes.__ne__, self.job.values, (v or b"" for v in found)), np.bool_, len(found)
        )
        kept = np.ones(len(self.targets), np.bool_)
        queues = {self.targets[i].queue for i in np.unique(self.job.stretch[changed]).tolist()}
        if queues:
            kept[[i for i, target in enumerate(self.targets) if target.queue in queues]] = False
        return kept

    def _object_edit(self) -> EditBatch:
        encoded = self.made.encoded
        return batch(
            EditKind.ADD_OBJECT, key=self.made.path, object_id=self.made.object_id, level=self.level,
            length=encoded.length, sections=Rows([{int(n): list(s) for n, s in encoded.sections.items()}]),
        )  # fmt: skip

    def _replace_edit(self, kept: Bools) -> EditBatch:
        runs = self.job.runs[kept[self.job.stretch]]
        closed = [None if by == OPEN else by for by in runs["closed_by"].tolist()]
        sources = {name: runs[name].tolist() for name in ("commit_seq", "index", "start", "end")}
        rows = np.flatnonzero(kept).tolist()
        columns = {name: self.runs[name][kept].tolist() for name in _TARGET_INTS if name != "object"}
        return batch(
            EditKind.REPLACE_RUNS,
            sources={**sources, "closed_by": closed},
            targets={
                **columns,
                "topic": [self.targets[i].queue.topic for i in rows],
                "object": [0] * len(rows),
                "closed_by": [self.targets[i].closed_by for i in rows],
            },
        )
