"""What the commits behind a damaged one take for granted: how far the log was, and where each queue stood."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tiered.codec.format.edits import Commit, EditBatch, EditKind
from tiered.codec.record.layout import MIN_RECORD_BYTES
from tiered.model import MessageQueue

_STARTS = {
    EditKind.APPEND_RUN: "physical_start",
    EditKind.PHYS_GAP: "start",
    EditKind.PROGRESS: "physical_offset",
}
"""Columns that lie at or above what earlier commits archived."""

_Name = tuple[str, int, int]
"""Topic, queue id, generation."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a generation of a queue stood when it was first named. ``flat``: bytes of all its records so far.

    ``begins``: it began there, so that all earlier generations of the queue had been. ``cut_at``: it was named because it had
    records above this physical offset. ``batches``: records of it own several queue offsets.
    """

    queue: MessageQueue
    generation: int
    offset: int
    flat: int
    begins: bool = False
    cut_at: int | None = None
    batches: bool = False

    @property
    def least(self) -> int:
        """The lowest queue offset that the generation can have begun with, by the bytes of its records."""
        if self.flat and self.batches:
            return 0
        return max(0, self.offset - self.flat // MIN_RECORD_BYTES)


@dataclass(slots=True)
class Behind:
    """``reach``: everything below this physical offset had been archived, or lost before; ``None`` if nothing tells.

    ``rewound``: where the broker's log was cut instead, which says no more than that it had reached so far.
    """

    reach: int | None = None
    rewound: int | None = None
    stands: list[Stand] = field(default_factory=list)


def look_behind(commits: Iterable[Commit], lineage: int) -> Behind:
    """Look through commits, ascending, from the one behind the damage on. ``lineage``: the damaged commit's."""
    found, scan, settled = Behind(), _Scan(), False
    for commit in commits:
        starts: list[int] = []
        for edit in commit.edits:
            if not len(edit):
                continue
            if edit.kind is EditKind.REWIND and not settled:
                settled, found.rewound = True, int(edit.ints("physical_offset")[0])
            settled = settled or (
                edit.kind is EditKind.OPEN_EPOCH and int(edit.ints("lineage")[0]) != lineage
            )
            if edit.kind in _STARTS:
                starts.append(int(edit.ints(_STARTS[edit.kind]).min()))
            scan.take(edit)
        if starts and not settled:
            settled, found.reach = True, min(starts)
    found.stands = list(scan.stands.values())
    return found


class _Scan:
    """Finds the first word about each generation of each queue."""

    def __init__(self) -> None:
        self.stands: dict[_Name, Stand] = {}
        self._ahead: dict[
            _Name, tuple[int, int]
        ] = {}  # gaps that were named before any run: start, bytes lost
        self._begun: dict[tuple[str, int], int] = {}  # the first generation of a queue that began behind

    def take(self, edit: EditBatch) -> None:
        match edit.kind:
            case EditKind.APPEND_RUN:
                self._runs(edit)
            case EditKind.GAP | EditKind.LOSS:
                lost = edit.ints("bytes").tolist() if edit.kind is EditKind.LOSS else [0] * len(edit)
                for name, start, size in zip(_names(edit), edit.ints("start").tolist(), lost, strict=True):
                    first, before = self._ahead.get(name, (start, 0))
                    self._ahead[name] = (first, before + size)
            case EditKind.NEW_GENERATION:
                for name in _names(edit):
                    self._keep(name, Stand(MessageQueue(*name[:2]), name[2], 0, 0, begins=True))
                    self._begun.setdefault(name[:2], name[2])
            case EditKind.REWIND:
                for i in range(len(edit)):
                    self._cut(edit.row(i))
            case _:
                pass

    def _runs(self, edit: EditBatch) -> None:
        batches = edit.ints("queue_offsets") > edit.ints("rows")
        columns = np.stack([edit.ints("first_queue_offset"), edit.ints("first_flat_offset"), batches], axis=1)
        for name, (first, flat, several) in zip(_names(edit), columns.tolist(), strict=True):
            if name not in self.stands:
                start, lost = self._ahead.get(name, (first, 0))
                queue = MessageQueue(*name[:2])
                self._keep(name, Stand(queue, name[2], start, flat - lost, batches=bool(several)))

    def _cut(self, row: dict[str, object]) -> None:
        queues, offset = row["queues"], int(str(row["physical_offset"]))
        assert isinstance(queues, dict)
        for topic, queue_id, generation, maximum, flat in zip(
            *(queues[n] for n in ("topic", "queue_id", "generation", "max_offset", "flat_end")), strict=True
        ):
            stand = Stand(MessageQueue(topic, queue_id), generation, maximum, flat, cut_at=offset)
            self._keep((topic, queue_id, generation), stand)

    def _keep(self, name: _Name, stand: Stand) -> None:
        if name not in self.stands and name[2] < self._begun.get(name[:2], name[2] + 1):
            self.stands[name] = stand


def _names(edit: EditBatch) -> list[_Name]:
    return list(
        zip(
            edit.columns["topic"],
            edit.ints("queue_id").tolist(),
            edit.ints("generation").tolist(),
            strict=True,
        )
    )
