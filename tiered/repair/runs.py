"""Edits that append runs, made from what a later fold or an object's directory says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.archive.read.strays import Stray
from tiered.archive.state.values import GapState, ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.model import MessageQueue
from tiered.repair.behind import Stand

_INTS = (
    "first_queue_offset", "rows", "queue_offsets", "first_flat_offset", "bytes", "min_store_time", "max_store_time",
    "first_row", "first_block", "block_count", "physical_start", "physical_end",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Appended:
    """A run as its commit appended it. ``numbers``: the columns of ``_INTS``; ``object``: row of the commit's ``AddObject``."""

    queue: MessageQueue
    generation: int
    object: int
    numbers: dict[str, int]


def objects_edit(objects: Sequence[ObjectState]) -> EditBatch:
    """``AddObject`` of objects as a fold knows them."""
    return EditBatch(
        EditKind.ADD_OBJECT,
        {
            "key": [o.path for o in objects],
            "object_id": [o.object_id for o in objects],
            "level": np.array([o.level for o in objects], dtype=np.int64),
            "length": np.array([o.length for o in objects], dtype=np.int64),
            "sections": [{n: list(s) for n, s in sorted(o.sections.items())} for o in objects],
        },
    )


def strays_edit(strays: Sequence[Stray]) -> EditBatch:
    """``AddObject`` of objects by their own word."""
    return EditBatch(
        EditKind.ADD_OBJECT,
        {
            "key": [s.path for s in strays],
            "object_id": [s.footer.object_id for s in strays],
            "level": np.array([s.footer.level for s in strays], dtype=np.int64),
            "length": np.array([s.footer.length for s in strays], dtype=np.int64),
            "sections": [
                {int(n): [e.position, e.length, e.crc32c] for n, e in sorted(s.footer.sections.items())}
                for s in strays
            ],
        },
    )


def runs_of_fold(state: ArchiveState, seq: int) -> list[Appended]:
    """The runs that commit ``seq`` appended, put together from what a later fold has of each, live and closed."""
    found: dict[int, Appended] = {}
    for run in (*state.runs_all(), *state.closed_parts()):
        if run.id.commit_seq != seq:
            continue
        numbers = {name: getattr(run, name) for name in _INTS if name != "bytes"}
        numbers["bytes"] = run.flat_end - run.first_flat_offset
        known = found.get(run.id.index)
        if known is not None:  # another part of the same run: bounds were cut, the widest are the run's own
            for name, choose in (("physical_start", min), ("physical_end", max), ("bytes", max)):
                numbers[name] = choose(numbers[name], known.numbers[name])
        found[run.id.index] = Appended(run.queue, run.generation, run.object.index, numbers)
    return [found[index] for index in sorted(found)]


def runs_of_stray(stray: Stray, number: int) -> list[Appended]:
    """The runs of an object, in the order of its directory."""
    topics = stray.directory.topics
    return [
        Appended(
            MessageQueue(topics[int(row["topic"])], int(row["queue_id"])),
            int(row["generation"]),
            number,
            {name: int(row[name]) for name in _INTS},
        )
        for row in stray.directory.runs
    ]


def append_edits(base: ArchiveState, runs: Sequence[Appended], gaps: Iterable[GapState]) -> list[EditBatch]:
    """``NewGeneration``, ``Gap`` and ``AppendRun`` in an order that the fold takes: each run behind what makes room for it."""
    made = _Edits(base, {(g.queue, g.generation, g.end): g for g in gaps}, lossy=False)
    for run in runs:
        made.run(run)
    return made.done()


def lossy_edits(
    base: ArchiveState, runs: Sequence[Appended], stands: Iterable[Stand], physical_end: int
) -> list[EditBatch]:
    """As ``append_edits``, and a ``Loss`` where bytes are missing before a run, or before where a queue went on later."""
    made = _Edits(base, {}, lossy=True)
    for run in runs:
        made.run(run)
    for stand in sorted(stands, key=lambda s: s.generation):
        made.stand(stand, physical_end)
    return made.done()


@dataclass(slots=True)
class _End:
    """Where a queue stands: its current generation (0: none) and its highest, and the current one's numbers."""

    generation: int
    highest: int
    maximum: int
    flat: int
    physical_end: int


class _Edits:
    """Edits of queues, each behind what it needs. ``lossy``: missing bytes are lost, and not the sign of a wrong guess."""

    def __init__(
        self, base: ArchiveState, gaps: Mapping[tuple[MessageQueue, int, int], GapState], *, lossy: bool
    ) -> None:
        head = base.head()
        self._base = base
        self._lineage = 0 if head is None else head.lineage
        self._gaps = gaps
        self._lossy = lossy
        self._made: list[EditBatch] = []
        self._waiting: list[Appended] = []
        self._ends: dict[MessageQueue, _End] = {}

    def run(self, run: Appended) -> None:
        """A run, and before it what makes room for it."""
        numbers, end = run.numbers, self._end(run.queue)
        first, flat, physical = (
            numbers[n] for n in ("first_queue_offset", "first_flat_offset", "physical_start")
        )
        gap = self._gaps.get((run.queue, run.generation, first))
        if end.generation != run.generation:
            lost = self._lossy and flat > 0
            start = Stand(run.queue, run.generation, first, flat).least if lost else first
            end = self._begin(run.queue, run.generation, start if gap is None else gap.start, physical)
        if self._lossy and end.flat < flat:
            self._lose(run.queue, first, flat, physical)
        elif end.maximum < first:
            reason = "queue offsets jumped" if gap is None else gap.reason
            self._flush()
            self._made.append(
                _one(run.queue, run.generation, EditKind.GAP, start=end.maximum, end=first, reason=reason)
            )
        self._waiting.append(run)
        end.maximum, end.flat = first + numbers["queue_offsets"], flat + numbers["bytes"]
        end.physical_end = numbers["physical_end"]

    def stand(self, stand: Stand, physical_end: int) -> None:
        """What was lost before a queue went on as ``stand`` says, below ``physical_end``."""
        end, queue = self._end(stand.queue), stand.queue
        last = stand.generation - 1 if stand.begins else stand.generation
        while end.highest < last:
            number = end.highest + 1
            named = number == stand.generation
            end = self._begin(queue, number, stand.least if named else 0, physical_end)
            self._lose(queue, stand.offset if named else 0, stand.flat if named else 0, physical_end)
        if stand.begins or stand.generation != end.generation:
            return
        hidden = stand.cut_at is not None and end.physical_end <= stand.cut_at < physical_end
        if stand.offset > end.maximum or stand.flat > end.flat or hidden:
            if stand.cut_at is not None and not hidden:
                return  # named for what is there: the cut tells nothing of what is lost
            self._lose(queue, max(stand.offset, end.maximum), max(stand.flat, end.flat), physical_end)

    def done(self) -> list[EditBatch]:
        """All edits, in order."""
        self._flush()
        return self._made

    def _end(self, queue: MessageQueue) -> _End:
        if queue not in self._ends:
            known = self._base.queue(queue)
            self._ends[queue] = (
                _End(0, 0, 0, 0, 0)
                if known is None
                else _End(
                    known.generation or 0, known.highest_generation, known.max_offset, known.flat_end,
                    known.last_physical_end,
                )
            )  # fmt: skip
        return self._ends[queue]

    def _begin(self, queue: MessageQueue, generation: int, first: int, physical: int) -> _End:
        """A generation that begins; what follows must be its first run, or loss."""
        self._flush()
        self._made.append(
            _one(
                queue, generation, EditKind.NEW_GENERATION,
                lineage=self._lineage, first_queue_offset=first, physical_offset=physical,
            )
        )  # fmt: skip
        self._ends[queue] = end = _End(generation, generation, first, 0, physical)
        return end

    def _lose(self, queue: MessageQueue, offset: int, flat: int, physical: int) -> None:
        end = self._ends[queue]
        self._flush()
        self._made.append(
            _one(
                queue, end.generation, EditKind.LOSS,
                start=end.maximum, end=offset, bytes=flat - end.flat, physical_end=physical,
            )
        )  # fmt: skip
        end.maximum, end.flat, end.physical_end = offset, flat, physical

    def _flush(self) -> None:
        if self._waiting:
            self._made.append(_append(self._waiting))
            self._waiting = []


def _append(runs: Sequence[Appended]) -> EditBatch:
    columns: dict[str, object] = {
        "topic": [r.queue.topic for r in runs],
        "queue_id": np.array([r.queue.queue_id for r in runs], dtype=np.int64),
        "generation": np.array([r.generation for r in runs], dtype=np.int64),
        "object": np.array([r.object for r in runs], dtype=np.int64),
    }
    for name in _INTS:
        columns[name] = np.array([r.numbers[name] for r in runs], dtype=np.int64)
    return EditBatch(EditKind.APPEND_RUN, columns)


def _one(queue: MessageQueue, generation: int, kind: EditKind, **numbers: int | str) -> EditBatch:
    return batch(kind, topic=queue.topic, queue_id=queue.queue_id, generation=generation, **numbers)
