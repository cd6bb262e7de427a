"""The ``ReplaceRuns`` that puts rewritten runs in their sources' place, once it is known which of these are still there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import ObjectKey, parse
from tiered.archive.log.flush import DataObject, Flush
from tiered.archive.log.maintenance import WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.writing import Target, place_of
from tiered.archive.state.layout import OPEN
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import SCHEMA, Col, EditBatch, EditKind, Rows, batch
from tiered.model import MessageQueue

TARGET_COLUMNS = tuple(n for n, how in SCHEMA[EditKind.APPEND_RUN] if how is Col.INT and n != "object")
"""Of a run that takes the place of others: what its object's table of runs says of it."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """An object that is put, and what it holds. ``runs``: its table of runs, with the columns of ``AppendRun``; one for each
    target."""

    data: DataObject
    level: int
    runs: npt.NDArray[np.void]
    targets: Sequence[Target]


@dataclass(frozen=True, slots=True)
class Swap(WithoutMessages):
    """A job whose objects are put, on its way to a commit.

    At its place in the log every source is looked up again (DESIGN.md, "Merge and seal", M4): a queue with one that a trim, a
    rewind or whatever else touched is left out, and keeps its runs as they are.
    """

    job: Job
    made: Sequence[Replacement]
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what is unchanged; ``None`` if nothing is, or if an object is of another epoch than the place."""
        changed = self._changed_queues(fold)
        targets = [
            (number, row, target)
            for number, made in enumerate(self.made)
            for row, target in enumerate(made.targets)
            if target.queue not in changed
        ]
        if not targets or any(_epoch(made.data) != place.epoch for made in self.made):
            return None
        edits = (*map(_object_edit, self.made), self._replace_edit(targets, changed))
        return Flush(
            edits, None, self.now, objects=tuple(made.data for made in self.made), priority=self.priority
        )

    def _changed_queues(self, fold: ArchiveState) -> set[MessageQueue]:
        """Those with a source that is not as it was."""
        found = fold.view.get_many(self.job.keys)
        pairs = zip(self.job.keys, self.job.values, found, strict=True)
        return {place_of(key)[0] for key, before, now in pairs if now != before}

    def _replace_edit(
        self, targets: Sequence[tuple[int, int, Target]], changed: set[MessageQueue]
    ) -> EditBatch:
        runs = self.job.runs
        if changed:
            runs = runs[[place_of(key)[0] not in changed for key in self.job.keys]]
        closed = [None if by == OPEN else by for by in runs["closed_by"].tolist()]
        sources = {name: runs[name].tolist() for name in ("commit_seq", "index", "start", "end")}
        tables = [{name: made.runs[name].tolist() for name in TARGET_COLUMNS} for made in self.made]
        columns = {name: [tables[number][name][row] for number, row, _ in targets] for name in TARGET_COLUMNS}
        return batch(
            EditKind.REPLACE_RUNS,
            sources={**sources, "closed_by": closed},
            targets={
                **columns,
                "topic": [target.queue.topic for _, _, target in targets],
                "object": [number for number, _, _ in targets],
                "closed_by": [target.closed_by for _, _, target in targets],
            },
        )


def _epoch(data: DataObject) -> int | None:
    made = parse(data.path)
    return made.epoch if isinstance(made, ObjectKey) else None


def _object_edit(made: Replacement) -> EditBatch:
    data, encoded = made.data, made.data.encoded
    return batch(
        EditKind.ADD_OBJECT, key=data.path, object_id=data.object_id, level=made.level, length=encoded.length,
        sections=Rows([{int(n): list(s) for n, s in encoded.sections.items()}]),
    )  # fmt: skip
