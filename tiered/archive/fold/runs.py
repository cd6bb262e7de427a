"""The hot edits, ten thousand rows at a time: ``AppendRun``, ``Gap``, ``NewGeneration``; and ``Loss``, which is like them.

Rows of one queue depend on each other, rows of different queues do not. So rows are ordered by queue
(stable), each is checked against the row before it in its queue, the first one against the queue's record,
and each queue's record takes the sum. That is the same as one row after the other, and a batch in which every
queue occurs once is just the plain case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from tiered.archive.fold.context import Fold
from tiered.archive.state.keys import (
    GAP,
    GENERATION,
    QUEUE,
    RUN,
    U4,
    U8,
    offset_keys,
    packed,
    prefixed,
    queue_keys,
    queue_of,
)
from tiered.archive.state.layers import QueueBatch
from tiered.archive.state.layout import NO_TIME_HIGH, NO_TIME_LOW, OPEN, RUN_RECORD_DTYPE, packed_table
from tiered.archive.state.values import LOST
from tiered.codec.format.edits import EditBatch
from tiered.codec.types import Bools, Ints
from tiered.model import ObjectRef

_CURRENT = "rows go to the queue's current generation"
_LINEAGE = "rows go to a generation of the epoch's lineage"


@dataclass(frozen=True, slots=True)
class _ByQueue:
    """Rows of a batch ordered by queue.

    ``keys``: queue key of each row, in row order; ``queues``: the distinct ones, with ``topics`` and ``queue_ids``.
    ``order``: row numbers by queue, stable; ``group``: queue number of each ordered row; ``first``: whether it is its queue's
    first; ``heads``/``tails``: ordered positions of each queue's first and last row. ``record``: the queues' records,
    writable.
    """

    keys: list[bytes]
    queues: list[bytes]
    topics: Sequence[str]
    queue_ids: Ints
    order: Ints
    group: Ints
    first: Bools
    heads: Ints
    tails: Ints
    record: npt.NDArray[np.void]

    def put(self, fold: Fold, record: npt.NDArray[np.void]) -> None:
        """What the queues' records are now."""
        fold.put_queues(self.queues, QueueBatch(self.topics, self.queue_ids, record))

    def after(self, ends: Ints, record: npt.NDArray[np.void], name: str) -> Ints:
        """Where each ordered row must start: the end of the row before it, for a queue's first row the
        record's field."""
        expected = np.empty_like(ends)
        expected[1:] = ends[:-1]
        expected[self.first] = record[name][self.group[self.first]]
        return expected


def _by_queue(fold: Fold, batch: EditBatch) -> _ByQueue:
    topics, ids = batch.columns["topic"], batch.ints("queue_id")
    keys = queue_keys(topics, ids)
    number = {k: i for i, k in enumerate(dict.fromkeys(keys))}
    queues = list(number)
    count = len(keys)
    if len(queues) == count:
        order = group = np.arange(count)
        first = np.ones(count, dtype=np.bool_)
        heads = tails = order
    else:
        numbers = np.fromiter(map(number.__getitem__, keys), np.int64, count)
        order = np.argsort(numbers, kind="stable")
        group = numbers[order]
        first = np.ones(count, dtype=np.bool_)
        first[1:] = group[1:] != group[:-1]
        heads = np.flatnonzero(first)
        tails = np.append(heads[1:], count) - 1
        topics, ids = [topics[row] for row in order[heads].tolist()], ids[order[heads]]
    record, known = fold.queue_table(queues, topics, ids)
    record["generation"][~known] = 0
    record["highest_generation"][~known] = fold.head.forgotten.generation
    return _ByQueue(keys, queues, topics, ids, order, group, first, heads, tails, record)


def _check_current(fold: Fold, batch: EditBatch, by: _ByQueue) -> None:
    stated = batch.ints("generation")[by.order]
    current = by.record["generation"].astype(np.int64)[by.group]
    fold.check_rows(batch, (stated == current) & (current > 0), _CURRENT, current, stated, by.order)
    lineage = by.record["lineage"].astype(np.int64)[by.group]
    fold.check_rows(
        batch,
        lineage == fold.head.lineage,
        _LINEAGE,
        np.full_like(lineage, fold.head.lineage),
        lineage,
        by.order,
    )


def append_runs(fold: Fold, batch: EditBatch) -> None:
    """Runs at the end of their queues."""
    if not len(batch):
        return
    fold.check_numbers(batch)
    _check_shapes(fold, batch)
    fold.appended_to = max(fold.appended_to, int(batch.ints("physical_end").max()))
    for number, found in enumerate(np.bincount(batch.ints("object"), minlength=fold.objects).tolist()):
        fold.refer(ObjectRef(fold.commit.seq, number), found)
    first_run = fold.runs
    fold.runs += len(batch)
    batch, rows = fold.mine(batch)
    if len(batch):
        _append(fold, batch, first_run + rows)


def _append(fold: Fold, batch: EditBatch, numbers: Ints) -> None:
    """Runs with their numbers in the commit."""
    by = _by_queue(fold, batch)
    _check_current(fold, batch, by)
    start = batch.ints("first_queue_offset")[by.order]
    flat = batch.ints("first_flat_offset")[by.order]
    owned, size = batch.ints("queue_offsets")[by.order], batch.ints("bytes")[by.order]
    physical, physical_end = batch.ints("physical_start")[by.order], batch.ints("physical_end")[by.order]
    end, flat_end, record = start + owned, flat + size, by.record
    for rule, expected, found in (
        ("a run starts at its queue's maximum", by.after(end, record, "max_offset"), start),
        ("a run's flat offset is its queue's flat end", by.after(flat_end, record, "flat_end"), flat),
    ):
        fold.check_rows(batch, found == expected, rule, expected, found, by.order)
    lowest = by.after(physical_end, record, "last_physical_end")
    rule = "physical ranges ascend within a queue"
    fold.check_rows(batch, physical >= lowest, rule, lowest, physical, by.order)
    first_runs = record["flat_end"] == 0
    record["min_offset"][first_runs] = start[by.heads][first_runs]
    record["max_offset"] = end[by.tails]
    record["flat_end"] = flat_end[by.tails]
    record["last_physical_end"] = physical_end[by.tails]
    record["messages"] += np.add.reduceat(owned, by.heads)
    record["bytes"] += np.add.reduceat(size, by.heads)
    record["runs"] += by.tails - by.heads + 1
    low = np.minimum.reduceat(batch.ints("min_store_time")[by.order], by.heads)
    high = np.maximum.reduceat(batch.ints("max_store_time")[by.order], by.heads)
    record["min_store_time"] = np.minimum(record["min_store_time"], low)
    record["max_store_time"] = np.maximum(record["max_store_time"], high)
    by.put(fold, record)
    _store_runs(fold, batch, by.keys, numbers)


def _check_shapes(fold: Fold, batch: EditBatch) -> None:
    """Rules that look at one row alone."""
    rows, owned, size = batch.ints("rows"), batch.ints("queue_offsets"), batch.ints("bytes")
    physical, physical_end = batch.ints("physical_start"), batch.ints("physical_end")
    one = np.ones_like(rows)
    fold.check_rows(batch, rows >= 1, "a run has records", one, rows)
    fold.check_rows(batch, owned >= rows, "each record owns a queue offset", rows, owned)
    fold.check_rows(batch, size >= rows, "a run has bytes", rows, size)
    fold.check_rows(batch, batch.ints("block_count") >= 1, "a run has blocks", one, batch.ints("block_count"))
    span = physical_end - physical
    fold.check_rows(batch, span >= size, "a run's records lie in its physical range", size, span)
    low, high = batch.ints("min_store_time"), batch.ints("max_store_time")
    fold.check_rows(batch, low <= high, "a run's store times are ordered", low, high)
    settled = np.full_like(physical, fold.settled)
    rule = "a run lies above what earlier commits archived"
    fold.check_rows(batch, physical >= settled, rule, settled, physical)
    number = batch.ints("object")
    limit = np.full_like(number, fold.objects - 1)
    fold.check_rows(
        batch, number <= limit, "a run's object was added by this commit before it", limit, number
    )


def _store_runs(fold: Fold, batch: EditBatch, keys: list[bytes], numbers: Ints) -> None:
    count = len(batch)
    runs = np.zeros(count, dtype=RUN_RECORD_DTYPE)
    runs["commit_seq"] = fold.commit.seq
    runs["index"] = numbers
    runs["lineage"] = fold.head.lineage
    for name in (
        "object", "rows", "first_row", "first_block", "block_count", "queue_offsets", "first_queue_offset",
        "first_flat_offset", "min_store_time", "max_store_time", "physical_start", "physical_end",
    ):  # fmt: skip
        runs[name] = batch.ints(name)
    runs["start"] = runs["first_queue_offset"]
    runs["end"] = runs["start"] + batch.ints("queue_offsets")
    runs["flat_end"] = runs["first_flat_offset"] + batch.ints("bytes")
    runs["closed_by"] = OPEN
    names = offset_keys(RUN, keys, batch.ints("generation"), batch.ints("first_queue_offset"))
    fold.draft.put_all(names, packed(runs))


def gaps(fold: Fold, batch: EditBatch) -> None:
    """Queue offsets that can never be served: they move the queue's maximum."""
    fold.check_numbers(batch)
    batch, _ = fold.mine(batch)
    if not len(batch):
        return
    by = _by_queue(fold, batch)
    _check_current(fold, batch, by)
    start, end = batch.ints("start")[by.order], batch.ints("end")[by.order]
    fold.check_rows(batch, end > start, "a gap has queue offsets", start + 1, end, by.order)
    _leave_out(fold, batch, by, start, end, batch.columns["reason"])


def losses(fold: Fold, batch: EditBatch) -> None:
    """What was archived and is gone with a damaged commit: a gap that moves the queue's flat end and physical end, too.

    The queue offsets may be none: that a generation began, or reached behind a physical offset, is then all that is known.
    """
    if not len(batch):
        return
    fold.check_numbers(batch)
    fold.appended_to = max(fold.appended_to, int(batch.ints("physical_end").max()))
    batch, _ = fold.mine(batch)
    if not len(batch):
        return
    by = _by_queue(fold, batch)
    _check_current(fold, batch, by)
    start, end = batch.ints("start")[by.order], batch.ints("end")[by.order]
    physical = batch.ints("physical_end")[by.order]
    fold.check_rows(batch, end >= start, "a loss does not go back", start, end, by.order)
    lowest = by.after(physical, by.record, "last_physical_end")
    rule = "physical ranges ascend within a queue"
    fold.check_rows(batch, physical >= lowest, rule, lowest, physical, by.order)
    by.record["flat_end"] += np.add.reduceat(batch.ints("bytes")[by.order], by.heads)
    by.record["last_physical_end"] = physical[by.tails]
    for queue in by.queues:
        fold.created.pop(queue, None)
    _leave_out(fold, batch, by, start, end, [LOST] * len(batch))


def _leave_out(
    fold: Fold, batch: EditBatch, by: _ByQueue, start: Ints, end: Ints, why: Sequence[str]
) -> None:
    """Gaps at the ends of their queues."""
    expected = by.after(end, by.record, "max_offset")
    rule = "a gap starts at its queue's maximum"
    fold.check_rows(batch, start == expected, rule, expected, start, by.order)
    by.record["max_offset"] = end[by.tails]
    by.put(fold, by.record)
    seq = U8.pack(fold.commit.seq)
    reasons = {r: seq + r.encode() for r in dict.fromkeys(why)}
    ends = packed(batch.ints("end").astype(">u8"))
    values = [e + reasons[r] for e, r in zip(ends, why, strict=True)]
    names = offset_keys(GAP, by.keys, batch.ints("generation"), batch.ints("start"))
    some = (batch.ints("end") > batch.ints("start")).tolist()
    fold.draft.put_all(compress(names, some), list(compress(values, some)))


def new_generations(fold: Fold, batch: EditBatch) -> None:
    """Queues that begin a generation; the first run or gap behind it fills it."""
    fold.check_numbers(batch)
    batch, _ = fold.mine(batch)
    if not len(batch):
        return
    by = _by_queue(fold, batch)
    if len(by.queues) != len(batch):
        twice = by.order[np.flatnonzero(~by.first)[0]]
        ok = np.arange(len(batch)) != twice
        rule = "a generation begins with a run in the same commit"
        fold.check_rows(batch, ok, rule, "one row per queue and batch", batch.ints("generation"))
    stated, lineage = batch.ints("generation"), batch.ints("lineage")
    first, physical = batch.ints("first_queue_offset"), batch.ints("physical_offset")
    record = by.record
    expected = record["highest_generation"].astype(np.int64) + 1
    fold.check_rows(batch, stated == expected, "generations count up per queue", expected, stated)
    ours = np.full_like(lineage, fold.head.lineage)
    fold.check_rows(batch, lineage == ours, "a generation is of the epoch's lineage", ours, lineage)
    same = (record["generation"] > 0) & (record["lineage"] == lineage)
    lowest = np.where(same, record["last_physical_end"], fold.settled)
    rule = "a generation begins at a higher physical offset"
    fold.check_rows(batch, physical >= lowest, rule, lowest, physical)
    _put_aside(fold, by)
    fresh = np.zeros_like(record)
    fresh["generation"] = fresh["highest_generation"] = stated
    fresh["lineage"] = lineage
    fresh["first_offset"] = fresh["min_offset"] = fresh["max_offset"] = first
    fresh["birth_physical"] = fresh["last_physical_end"] = physical
    fresh["min_store_time"], fresh["max_store_time"] = NO_TIME_LOW, NO_TIME_HIGH
    by.put(fold, fresh)
    fold.created.update(zip(by.queues, stated.tolist(), strict=True))


def _put_aside(fold: Fold, by: _ByQueue) -> None:
    """The generation that was current becomes an earlier one."""
    had = np.flatnonzero(by.record["generation"] > 0)
    if not len(had):
        return
    old = by.record[had]
    empty = fold.created.keys() & {by.queues[i] for i in had.tolist()} if fold.created else set()
    if empty:
        check_created(fold)
    names = [
        GENERATION + by.queues[i] + U4.pack(g)
        for i, g in zip(had.tolist(), old["generation"].tolist(), strict=True)
    ]
    fold.draft.put_all(names, packed(old))


def check_created(fold: Fold) -> None:
    """Every generation begun in this commit has a run by now."""
    if not fold.created:
        return
    queues = list(fold.created)
    record, _ = packed_table(fold.draft.get_many(prefixed(QUEUE, queues)))
    stated = np.fromiter(fold.created.values(), np.int64, len(queues))
    bad = np.flatnonzero((record["generation"] == stated) & (record["flat_end"] == 0))
    if len(bad):
        rule = "a generation begins with a run in the same commit"
        fold.fail(rule, queue=queue_of(queues[int(bad[0])]), expected="a run", found="none")
