"""Edits that append runs, made from what a later fold or an object's directory says of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.archive.entities import GapState, ObjectState
from tiered.archive.state import ArchiveState
from tiered.archive.strays import Stray
from tiered.codec.edits import EditBatch, EditKind
from tiered.model import MessageQueue

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
    head = base.head()
    lineage = 0 if head is None else head.lineage
    reasons = {(g.queue, g.generation, g.end): g for g in gaps}
    edits: list[EditBatch] = []
    waiting: list[Appended] = []
    ends: dict[MessageQueue, tuple[int, int]] = {}  # generation and maximum so far

    def flush() -> None:
        if waiting:
            edits.append(_append(waiting))
            waiting.clear()

    for run in runs:
        first = run.numbers["first_queue_offset"]
        gap = reasons.get((run.queue, run.generation, first))
        known = base.queue(run.queue)
        before = (0, 0) if known is None else (known.generation or 0, known.max_offset)
        generation, maximum = ends.get(run.queue, before)
        if generation != run.generation:
            flush()
            maximum = first if gap is None else gap.start
            edits.append(_new_generation(run, lineage, maximum))
        if maximum < first:
            flush()
            edits.append(_gap(run, maximum, first, "queue offsets jumped" if gap is None else gap.reason))
        waiting.append(run)
        ends[run.queue] = (run.generation, first + run.numbers["queue_offsets"])
    flush()
    return edits


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


def _one(run: Appended, kind: EditKind, **numbers: int | str) -> EditBatch:
    columns: dict[str, object] = {
        "topic": [run.queue.topic],
        "queue_id": np.array([run.queue.queue_id], dtype=np.int64),
        "generation": np.array([run.generation], dtype=np.int64),
    }
    for name, value in numbers.items():
        columns[name] = [value] if isinstance(value, str) else np.array([value], dtype=np.int64)
    return EditBatch(kind, columns)


def _new_generation(run: Appended, lineage: int, first: int) -> EditBatch:
    return _one(
        run, EditKind.NEW_GENERATION,
        lineage=lineage, first_queue_offset=first, physical_offset=run.numbers["physical_start"],
    )  # fmt: skip


def _gap(run: Appended, start: int, end: int, reason: str) -> EditBatch:
    return _one(run, EditKind.GAP, start=start, end=end, reason=reason)
