"""The edits that take rows away from readers: ``Rewind`` (the broker lost its tail) and ``TrimQueue``
(retention)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tiered.archive.fold.aliases import cut_aliases
from tiered.archive.fold.context import Fold
from tiered.archive.fold.logedits import check_lineage
from tiered.archive.fold.marks import add_mark, cut_marks
from tiered.archive.fold.sinkmap import trim_maps
from tiered.archive.state.keys import (
    GAP,
    GENERATION,
    PHYS_GAP,
    QUEUE,
    RUN,
    U4,
    U8,
    generation_prefix,
    lineage_key,
    offset_key,
    queue_key,
    queue_of,
)
from tiered.archive.state.layout import (
    NO_TIME_HIGH,
    NO_TIME_LOW,
    QUEUE_DTYPE,
    RUN_RECORD_DTYPE,
    QueueRecord,
    RunRecord,
    pack_queue,
    pack_value,
    table,
    unpack_queue,
    unpack_run,
    unpack_value,
)
from tiered.archive.state.values import LOST
from tiered.codec.format.edits import EditBatch
from tiered.model import MessageQueue, ObjectRef, Progress

_SCAN = 4096


def rewind(fold: Fold, batch: EditBatch) -> None:
    """Records of the lineage at and above a physical offset become closed parts."""
    fold.check_numbers(batch)
    for i in range(len(batch)):
        _rewind(fold, batch.row(i))


def _rewind(fold: Fold, row: dict[str, object]) -> None:
    lineage, position = int(str(row["lineage"])), int(str(row["physical_offset"]))
    check_lineage(fold, lineage)
    old = fold.head.progress.get(lineage)
    reached = 0 if old is None else old.physical_offset
    fold.check(position <= reached, "a Rewind goes back", expected=f"≤ {reached}", found=position)
    names = ("queue_id", "generation", "max_offset", "flat_end")
    columns = fold.obj_columns("Rewind", row["queues"], names, ("topic",))
    touched: dict[bytes, set[int]] = {}
    for topic, queue_id, generation, maximum, flat_end in zip(
        columns["topic"], *(columns[n] for n in names), strict=True
    ):
        queue = queue_key(MessageQueue(topic, queue_id))
        if not fold.scope.has_key(queue):
            continue
        generations = touched.setdefault(queue, set())
        once = generation not in generations
        fold.check(
            once, "a Rewind names a generation once", queue=queue_of(queue), expected="once", found=generation
        )
        generations.add(generation)
        _cut_generation(fold, queue, generation, position, maximum, flat_end)
    for queue in touched:
        _choose_current(fold, queue)
    _check_complete(fold, lineage, position)
    cut_aliases(fold, lineage, position)
    _cut_phys_gaps(fold, lineage, position)
    cut_marks(fold, lineage, position)
    mark = Progress(lineage, position, int(str(row["mark_crc"])), int(str(row["crc_from"])))
    add_mark(fold, mark)
    fold.set_progress(mark)
    fold.settled = min(fold.settled, position)
    fold.appended_to = min(fold.appended_to, position)


def _cut_generation(
    fold: Fold, queue: bytes, generation: int, position: int, maximum: int, flat_end: int
) -> None:
    mq = queue_of(queue)
    record, current = fold.load_generation(queue, generation, "a Rewind names generations that exist")
    lineage = fold.head.lineage
    fold.check(
        record.lineage == lineage,
        "a Rewind cuts its own lineage",
        queue=mq,
        expected=lineage,
        found=record.lineage,
    )
    rule = "a Rewind names only generations with records above it"
    fold.check(
        record.last_physical_end > position,
        rule,
        queue=mq,
        expected=f"> {position}",
        found=record.last_physical_end,
    )
    split = _split_runs(fold, queue, generation, position)
    straddling = split.straddling
    if (
        straddling is not None
        and maximum >= straddling.end < straddling.first_queue_offset + straddling.queue_offsets
    ):
        # Cut before: its physical end is only a bound, and it has no record up there after all.
        kept, straddling = replace(straddling, physical_end=position), None
        fold.put_live(queue, generation, kept)
        split = replace(split, straddling=None, kept=kept)
    _check_bounds(fold, mq, record, split, maximum, flat_end)
    for run in split.closed:
        _close(fold, queue, generation, record, run, position)
    if straddling is not None and maximum <= straddling.start:
        _close(fold, queue, generation, record, straddling, position)
    elif straddling is not None:
        part = replace(straddling, start=maximum, physical_start=max(position, straddling.physical_start))
        part.closed_by = fold.commit.seq
        fold.put_closed(queue, generation, part)
        fold.refer(ObjectRef(part.commit_seq, part.object), 1)
        record.messages -= part.end - part.start
        record.bytes -= straddling.flat_end - flat_end
        # The live part ends below the cut, so that a later Rewind to a higher offset leaves it alone.
        fold.put_live(
            queue, generation, replace(straddling, end=maximum, flat_end=flat_end, physical_end=position)
        )
    record.max_offset, record.flat_end = maximum, flat_end
    record.min_offset = min(record.min_offset, maximum)
    record.last_physical_end = position
    _cut_gaps(fold, queue, generation, maximum)
    bound_times(fold, queue, generation, record)
    fold.store_generation(queue, record, current=current)


@dataclass(frozen=True, slots=True)
class _Split:
    """Live runs wholly above a position (descending), the one across it, and the last one wholly below."""

    closed: list[RunRecord]
    straddling: RunRecord | None
    kept: RunRecord | None


def _split_runs(fold: Fold, queue: bytes, generation: int, position: int) -> _Split:
    closed: list[RunRecord] = []
    straddling = None
    for _, value in fold.draft.scan(generation_prefix(RUN, queue, generation), reverse=True):
        run = unpack_run(value)
        if run.physical_end <= position:
            return _Split(closed, straddling, run)
        if run.physical_start >= position:
            closed.append(run)
        else:
            straddling = run
    return _Split(closed, straddling, None)


def _check_bounds(
    fold: Fold, mq: MessageQueue, record: QueueRecord, split: _Split, maximum: int, flat_end: int
) -> None:
    """New maximum and flat end as stated must be what the runs allow."""
    closed, straddling, kept = split.closed, split.straddling, split.kept
    rule = "a Rewind's new maximum fits the runs"
    flat_rule = "a Rewind's flat end fits the runs"
    if straddling is not None:
        low, high = straddling.first_queue_offset + 1, straddling.end - 1
        fold.check(low <= maximum <= high, rule, queue=mq, expected=f"{low} to {high}", found=maximum)
        low, high = straddling.first_flat_offset + 1, straddling.flat_end - 1
        fold.check(low <= flat_end <= high, flat_rule, queue=mq, expected=f"{low} to {high}", found=flat_end)
        return
    low = record.first_offset if kept is None else kept.end
    high = closed[-1].first_queue_offset if closed else record.max_offset
    fold.check(low <= maximum <= high, rule, queue=mq, expected=f"{low} to {high}", found=maximum)
    high = closed[-1].first_flat_offset if closed else record.flat_end
    # Rows that retention took away, or that are lost, may have been cut too; only then is the exact flat end unknown.
    if kept is not None:
        low = kept.flat_end
    elif maximum < record.min_offset or _lost_some(fold, queue_key(mq), record):
        low = 0
    else:
        low = high
    fold.check(low <= flat_end <= high, flat_rule, queue=mq, expected=f"{low} to {high}", found=flat_end)


def _close(
    fold: Fold, queue: bytes, generation: int, record: QueueRecord, run: RunRecord, position: int
) -> None:
    """A whole live run becomes a closed part; its object keeps its reference."""
    fold.draft.put(offset_key(RUN, queue, generation, run.first_queue_offset), None)
    record.runs -= 1
    record.messages -= run.end - run.start
    record.bytes -= run.flat_end - run.first_flat_offset
    part = replace(run, closed_by=fold.commit.seq, physical_start=max(position, run.physical_start))
    fold.put_closed(queue, generation, part)


def _choose_current(fold: Fold, queue: bytes) -> None:
    """A current generation that was emptied gives way to the highest non-empty one of the lineage, or to
    none."""
    emptied = fold.load_queue(queue)
    if emptied is None or emptied.generation == 0 or emptied.lineage != fold.head.lineage:
        return
    if _had_records(fold, queue, emptied):
        return
    chosen = QueueRecord()
    for key, value in fold.draft.iterate(GENERATION + queue, reverse=True):
        candidate = unpack_queue(value)
        if candidate.lineage == emptied.lineage and _had_records(fold, queue, candidate):
            chosen = candidate
            fold.draft.put(key, None)
            break
    chosen.highest_generation = emptied.highest_generation
    fold.draft.put(GENERATION + queue + U4.pack(emptied.generation), pack_queue(emptied))
    fold.draft.put(QUEUE + queue, pack_queue(chosen))


def _had_records(fold: Fold, queue: bytes, record: QueueRecord) -> bool:
    """Whether a generation holds records, or did before they were lost with a damaged commit."""
    return record.runs > 0 or (record.flat_end > 0 and _lost_some(fold, queue, record))


def _lost_some(fold: Fold, queue: bytes, record: QueueRecord) -> bool:
    gaps = fold.draft.iterate(generation_prefix(GAP, queue, record.generation))
    return any(v[16:] == LOST.encode() and U8.unpack_from(v)[0] > record.min_offset for _, v in gaps)


def _check_complete(fold: Fold, lineage: int, position: int) -> None:
    """No live run of the lineage lies above the Rewind now. Reads every queue's record, in pieces.

    Generations whose rows up there retention took away need not be named; later records may lie where those did.
    """
    above: list[tuple[bytes, bool]] = []
    for prefix in (QUEUE, GENERATION):
        pairs = fold.scope.walk(fold.draft.scan, prefix)
        while chunk := list(islice(pairs, _SCAN)):
            found = table([v for _, v in chunk], QUEUE_DTYPE)
            mine = (found["generation"] > 0) & (found["lineage"] == lineage)
            rows = np.flatnonzero(mine & (found["last_physical_end"] > position)).tolist()
            above.extend((chunk[i][0], prefix == QUEUE) for i in rows)
    for key, current in above:
        queue = key[1:] if current else key[1:-4]
        record = unpack_queue(fold.draft.get(key) or b"")
        last = fold.draft.iterate(generation_prefix(RUN, queue, record.generation), reverse=True)[:1]
        ends = unpack_run(last[0][1]).physical_end if last else 0
        rule = "a Rewind names every generation with records above it"
        fold.check(ends <= position, rule, queue=queue_of(queue), expected=f"≤ {position}", found=ends)
        record.last_physical_end = position
        fold.draft.put(key, pack_queue(record))


def _cut_gaps(fold: Fold, queue: bytes, generation: int, maximum: int) -> None:
    for key, value in fold.draft.iterate(generation_prefix(GAP, queue, generation), reverse=True):
        start, end = U8.unpack_from(key, len(key) - 8)[0], U8.unpack_from(value)[0]
        if end <= maximum:
            return
        fold.draft.put(key, None if start >= maximum else U8.pack(maximum) + value[8:])


def _cut_phys_gaps(fold: Fold, lineage: int, position: int) -> None:
    for key, value in fold.draft.iterate(lineage_key(PHYS_GAP, lineage), reverse=True):
        start = U8.unpack_from(key, len(key) - 8)[0]
        end, reason, seq = unpack_value(value)
        if end <= position:
            return
        fold.draft.put(key, None if start >= position else pack_value([position, reason, seq]))


def bound_times(fold: Fold, queue: bytes, generation: int, record: QueueRecord) -> None:
    """Store times of the live runs that are left."""
    values = [value for _, value in fold.draft.scan(generation_prefix(RUN, queue, generation))]
    record.min_store_time, record.max_store_time = NO_TIME_LOW, NO_TIME_HIGH
    if values:
        runs = table(values, RUN_RECORD_DTYPE)
        record.min_store_time = int(runs["min_store_time"].min())
        record.max_store_time = int(runs["max_store_time"].max())


def trim_queues(fold: Fold, batch: EditBatch) -> None:
    """Retention moves the first readable offset of generations up; closed parts below it go too."""
    fold.check_numbers(batch)
    rows = zip(
        batch.columns["topic"],
        batch.ints("queue_id").tolist(),
        batch.ints("generation").tolist(),
        batch.ints("first_offset").tolist(),
        strict=True,
    )
    trimmed = {}
    for topic, queue_id, generation, first in rows:
        if fold.scope.has(topic, queue_id):
            queue = queue_key(MessageQueue(topic, queue_id))
            if _trim(fold, queue, generation, first):
                trimmed[queue] = first
    trim_maps(fold, trimmed)


def _trim(fold: Fold, queue: bytes, generation: int, first: int) -> bool:
    """Whether it is the queue's current generation."""
    mq = queue_of(queue)
    record, current = fold.load_generation(queue, generation, "a TrimQueue names a generation that exists")
    parts = fold.closed_parts(queue, generation)
    highest = record.max_offset
    if not current:  # closed parts may lie above what a Rewind left of it
        highest = max([highest, *(p.end for _, p in parts)])
    rule = "a TrimQueue moves up to the generation's end at most"
    expected = f"{record.min_offset} to {highest}"
    fold.check(record.min_offset <= first <= highest, rule, queue=mq, expected=expected, found=first)
    cut = False
    for key, run in list(_below(fold, queue, generation, first)):
        cut = True
        record.messages -= min(run.end, first) - run.start
        if run.end > first:
            fold.put_live(queue, generation, replace(run, start=first))
            continue
        fold.draft.put(key, None)
        fold.refer(ObjectRef(run.commit_seq, run.object), -1)
        record.runs -= 1
        record.bytes -= run.flat_end - run.first_flat_offset
    for key, part in parts:
        if part.start >= first:
            continue
        fold.draft.put(key, None)
        if part.end > first:
            fold.put_closed(queue, generation, replace(part, start=first))
        else:
            fold.refer(ObjectRef(part.commit_seq, part.object), -1)
    for key, value in fold.draft.iterate(generation_prefix(GAP, queue, generation)):
        if U8.unpack_from(key, len(key) - 8)[0] >= first:
            break
        fold.draft.put(key, None)
        if U8.unpack_from(value)[0] > first:
            fold.draft.put(offset_key(GAP, queue, generation, first), value)
    record.min_offset = min(first, record.max_offset)
    if cut:
        bound_times(fold, queue, generation, record)
    fold.store_generation(queue, record, current=current)
    return current


def _below(fold: Fold, queue: bytes, generation: int, first: int) -> Iterator[tuple[bytes, RunRecord]]:
    """Live runs that begin below ``first``."""
    for key, value in fold.draft.scan(generation_prefix(RUN, queue, generation)):
        run = unpack_run(value)
        if run.start >= first:
            return
        yield key, run
