"""``ReplaceRuns``: the same rows, served by other objects (merge and seal)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.fold.context import Fold
from tiered.archive.state.keys import (
    CLOSED,
    RUN,
    U4,
    U8,
    generation_prefix,
    offset_key,
    queue_key,
    queue_of,
)
from tiered.archive.state.layout import OPEN, RUN_RECORD_DTYPE, RunRecord, table
from tiered.codec.format.edits import SCHEMA, Col, EditBatch, EditKind
from tiered.codec.types import Ints
from tiered.model import MessageQueue, ObjectRef

_SOURCE = ("commit_seq", "index", "start", "end", "closed_by")
_TARGET_TEXT = tuple(n for n, how in SCHEMA[EditKind.APPEND_RUN] if how is Col.TEXT)
_TARGET = (*(n for n, how in SCHEMA[EditKind.APPEND_RUN] if how is Col.INT), "closed_by")
_RUN_FIELDS = tuple(f.name for f in fields(RunRecord))

_INDEX_BITS = 20
"""An object's number in its commit is below 2^20: a commit holds no more edits."""

Runs = npt.NDArray[np.void]
"""``RUN_RECORD_DTYPE`` records."""

SourceId = tuple[int, int, int]
"""Run id and closing commit (``OPEN`` for a live run)."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Targets of one queue, generation and state (live, or closed by one commit), ascending."""

    queue: bytes
    generation: int
    closed_by: int
    targets: list[RunRecord]


def replace_runs(fold: Fold, batch: EditBatch) -> None:
    """Sources leave, targets that cover exactly their union come. References are counted once for all: each object has many."""
    for i in range(len(batch)):
        row = batch.row(i)
        sources = _read_sources(fold, row["sources"])
        groups = _read_targets(fold, row["targets"])
        # Everything is looked up before anything is written: a scan of a changing map would be slow.
        found = [(group, _find_sources(fold, group, sources)) for group in groups]
        if sources and fold.scope.everything:  # else most of them are of other queues
            (seq, index, closed_by), bounds = next(iter(sources.items()))
            state = "live" if closed_by == OPEN else f"closed by {closed_by}"
            rule = "every source is a run that the targets cover"
            fold.fail(
                rule,
                expected="a run there",
                found=f"run {seq}/{index}, {state}, at {bounds[0]} to {bounds[1]}",
            )
        for group, taken in found:
            _check_group(fold, group, taken.runs)
            _apply_group(fold, group, taken)
        _leave_objects(fold, [taken.runs for _, taken in found])


def _leave_objects(fold: Fold, taken: Sequence[Runs]) -> None:
    """Each object has as many references less as runs lie in it."""
    runs = np.concatenate([np.empty(0, RUN_RECORD_DTYPE), *taken])
    codes, counts = np.unique((runs["commit_seq"] << _INDEX_BITS) | runs["object"], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        fold.refer(ObjectRef(code >> _INDEX_BITS, code & ((1 << _INDEX_BITS) - 1)), -count)


def _read_sources(fold: Fold, value: object) -> dict[SourceId, tuple[int, int]]:
    columns = fold.obj_columns("ReplaceRuns sources", value, _SOURCE)
    closed = (OPEN if by is None else by for by in columns["closed_by"])
    names = list(zip(columns["commit_seq"], columns["index"], closed, strict=True))
    sources = dict(zip(names, zip(columns["start"], columns["end"], strict=True), strict=True))
    if len(sources) < len(names):
        seq, index, _ = next(name for name, count in Counter(names).items() if count > 1)
        fold.fail("a source is named once", expected="once", found=f"run {seq}/{index}")
    return sources


def _read_targets(fold: Fold, value: object) -> list[_Group]:
    columns = fold.obj_columns("ReplaceRuns targets", value, _TARGET, _TARGET_TEXT)
    groups: dict[tuple[bytes, int, int], _Group] = {}
    for i in range(len(columns["topic"])):
        row: dict[str, Any] = {n: c[i] for n, c in columns.items()}
        queue = queue_key(MessageQueue(row["topic"], row["queue_id"]))
        if not fold.scope.has_key(queue):
            fold.runs += 1
            continue
        run = _target(fold, row, queue_of(queue))
        name = (queue, row["generation"], run.closed_by)
        groups.setdefault(name, _Group(*name, [])).targets.append(run)
    for group in groups.values():
        group.targets.sort(key=lambda t: t.first_queue_offset)
    return list(groups.values())


def _target(fold: Fold, row: dict[str, Any], mq: MessageQueue) -> RunRecord:
    rows, owned = row["rows"], row["queue_offsets"]
    fold.check(
        1 <= rows <= owned, "each record owns a queue offset", queue=mq, expected=f"1 to {owned}", found=rows
    )
    fold.check(row["bytes"] >= rows, "a run has bytes", queue=mq, expected=f"≥ {rows}", found=row["bytes"])
    fold.check(
        row["block_count"] >= 1, "a run has blocks", queue=mq, expected="≥ 1", found=row["block_count"]
    )
    rule = "a run's object was added by this commit before it"
    fold.check(
        row["object"] < fold.objects, rule, queue=mq, expected=f"< {fold.objects}", found=row["object"]
    )
    values = {n: row[n] for n in _RUN_FIELDS if n in row}
    values.update(
        commit_seq=fold.commit.seq,
        index=fold.runs,
        lineage=0,  # its sources'
        start=row["first_queue_offset"],
        end=row["first_queue_offset"] + owned,
        flat_end=row["first_flat_offset"] + row["bytes"],
        closed_by=OPEN if row["closed_by"] is None else row["closed_by"],
    )
    fold.runs += 1
    return RunRecord(**values)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Sources of one group, ascending by offset."""

    keys: list[bytes]
    runs: Runs


def _find_sources(fold: Fold, group: _Group, sources: dict[SourceId, tuple[int, int]]) -> _Taken:
    """Take the runs among the targets' offsets that are named as sources out of ``sources``."""
    low, high = group.targets[0].start, group.targets[-1].end
    if group.closed_by == OPEN:
        prefix = generation_prefix(RUN, group.queue, group.generation)
        start = prefix + U8.pack(low)
        # A run whose beginning was trimmed is keyed below its first live offset.
        before = next(iter(fold.draft.scan(prefix, start=start, reverse=True)), None)
        start = start if before is None else before[0]
    else:
        prefix = CLOSED + group.queue + U4.pack(group.generation) + U8.pack(group.closed_by)
        start = prefix
    behind = prefix + U8.pack(high)
    pairs = list(takewhile(lambda pair: pair[0] < behind, fold.draft.scan(prefix, start=start)))
    runs = table([value for _, value in pairs], RUN_RECORD_DTYPE)
    names = zip(runs["commit_seq"].tolist(), runs["index"].tolist(), runs["closed_by"].tolist(), strict=True)
    bounds = [sources.pop(name, None) for name in names]
    named = np.array([i for i, each in enumerate(bounds) if each is not None], np.int64)
    stated = np.array([each for each in bounds if each is not None], np.int64).reshape(-1, 2)
    runs = runs[named]
    wrong = np.flatnonzero((stated[:, 0] != runs["start"]) | (stated[:, 1] != runs["end"]))
    if len(wrong):
        at = int(wrong[0])
        fold.fail(
            "a source's bounds are its live bounds",
            queue=queue_of(group.queue),
            expected=f"{runs['start'][at]} to {runs['end'][at]}",
            found=f"{stated[at, 0]} to {stated[at, 1]}",
        )
    order = np.argsort(runs["start"], kind="stable")
    return _Taken([pairs[i][0] for i in named[order].tolist()], runs[order])


def _union(starts: Ints, ends: Ints) -> list[tuple[int, int]]:
    """Ascending ranges as maximal ones."""
    if not len(starts):
        return []
    begins = np.flatnonzero(np.append(True, starts[1:] != ends[:-1]))
    last = np.append(begins[1:] - 1, len(ends) - 1)
    return list(zip(starts[begins].tolist(), ends[last].tolist(), strict=True))


def _check_group(fold: Fold, group: _Group, runs: Runs) -> None:
    mq, targets = queue_of(group.queue), group.targets
    expected = _union(runs["start"], runs["end"])
    found = _union(np.array([t.start for t in targets]), np.array([t.end for t in targets]))
    rule = "targets cover exactly their sources' union"
    fold.check(expected == found, rule, queue=mq, expected=str(expected)[:80], found=str(found)[:80])
    rows, kept = int(runs["rows"].sum()), sum(t.rows for t in targets)
    whole = _uncut(runs)
    rule = "targets hold their sources' records"
    fold.check(kept == rows if whole else kept <= rows, rule, queue=mq, expected=rows, found=kept)
    _check_bounds(fold, mq, targets, runs)
    _check_flat(fold, mq, targets, runs)


def _uncut(runs: Runs) -> bool:
    """Whether every run is live from its first to its last row."""
    return bool((runs["end"] - runs["start"] == runs["queue_offsets"]).all())


def _check_bounds(fold: Fold, mq: MessageQueue, targets: list[RunRecord], runs: Runs) -> None:
    """Store times and physical ranges, which searches by time and every later ``Rewind`` rely on.

    A target's lie in those of the sources that it serves. Where it begins or ends with a source that was not cut there, they
    are the source's; of a run that was cut the fold knows only bounds.
    """
    reached = 0
    for target in targets:
        at = int(np.searchsorted(runs["end"], target.start, "right"))
        upto = int(np.searchsorted(runs["start"], target.end))
        own = runs[at:upto]
        for name, low, high in (
            ("store times", "min_store_time", "max_store_time"),
            ("physical range", "physical_start", "physical_end"),
        ):
            least, most = int(own[low].min()), int(own[high].max())
            inside = least <= getattr(target, low) <= getattr(target, high) <= most
            rule, shown = (
                f"a target's {name} lie in its sources'",
                f"{getattr(target, low)} to {getattr(target, high)}",
            )
            fold.check(inside, rule, queue=mq, expected=f"{least} to {most}", found=shown)
        _check_ends(fold, mq, target, own)
        rule = "physical ranges ascend within a queue"
        found = target.physical_start
        fold.check(found >= reached, rule, queue=mq, expected=f"≥ {reached}", found=found)
        reached = target.physical_end


def _check_ends(fold: Fold, mq: MessageQueue, target: RunRecord, own: Runs) -> None:
    """What is exact: the physical bounds at an end that was not cut, the store times over runs that were not cut at all."""
    first, last = own[0], own[-1]
    begins = target.start == first["start"] == first["first_queue_offset"]
    ends = target.end == last["end"] == last["first_queue_offset"] + int(last["queue_offsets"])
    expected = (
        int(first["physical_start"]) if begins else target.physical_start,
        int(last["physical_end"]) if ends else target.physical_end,
    )
    found = (target.physical_start, target.physical_end)
    rule = "a target begins and ends where its sources do"
    fold.check(found == expected, rule, queue=mq, expected=expected, found=found)
    if begins and ends and _uncut(own):
        expected = (int(own["min_store_time"].min()), int(own["max_store_time"].max()))
        found = (target.min_store_time, target.max_store_time)
        rule = "whole runs keep their store times"
        fold.check(found == expected, rule, queue=mq, expected=expected, found=found)


def _check_flat(fold: Fold, mq: MessageQueue, targets: list[RunRecord], runs: Runs) -> None:
    """Flat offsets stay what they were, wherever both a target and a source begin or end."""
    rule = "flat offsets do not change"
    for before, target in zip([None, *targets], targets, strict=False):
        flat = target.first_flat_offset
        at = int(np.searchsorted(runs["start"], target.start))
        if at < len(runs) and runs["start"][at] == runs["first_queue_offset"][at] == target.start:
            flat = int(runs["first_flat_offset"][at])
        if before is not None and before.end == target.start:
            flat = before.flat_end
        fold.check(
            target.first_flat_offset == flat, rule, queue=mq, expected=flat, found=target.first_flat_offset
        )
        at = int(np.searchsorted(runs["end"], target.end))
        if at < len(runs) and runs["end"][at] == target.end:
            flat = int(runs["flat_end"][at])
            fold.check(target.flat_end == flat, rule, queue=mq, expected=flat, found=target.flat_end)


def _apply_group(fold: Fold, group: _Group, taken: _Taken) -> None:
    live = group.closed_by == OPEN
    record, current = fold.load_generation(
        group.queue, group.generation, "runs are of a generation that exists"
    )
    fold.draft.drop_all(taken.keys)
    if live:
        record.runs -= len(taken.keys)
        record.bytes -= int((taken.runs["flat_end"] - taken.runs["first_flat_offset"]).sum())
    for target in group.targets:
        made = replace(target, lineage=record.lineage)
        fold.refer(ObjectRef(made.commit_seq, made.object), 1)
        if live:
            fold.draft.put(offset_key(RUN, group.queue, group.generation, made.first_queue_offset), None)
            fold.put_live(group.queue, group.generation, made)
            record.runs += 1
            record.bytes += made.flat_end - made.first_flat_offset
        else:
            fold.put_closed(group.queue, group.generation, made)
    fold.store_generation(group.queue, record, current=current)
