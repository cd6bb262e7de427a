"""``ReplaceRuns``: the same rows, served by other objects (merge and seal)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

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
from tiered.archive.state.layout import OPEN, RunRecord, unpack_run
from tiered.codec.format.edits import SCHEMA, Col, EditBatch, EditKind
from tiered.model import MessageQueue, ObjectRef

_SOURCE = ("commit_seq", "index", "start", "end", "closed_by")
_TARGET_TEXT = tuple(n for n, how in SCHEMA[EditKind.APPEND_RUN] if how is Col.TEXT)
_TARGET = (*(n for n, how in SCHEMA[EditKind.APPEND_RUN] if how is Col.INT), "closed_by")
_RUN_FIELDS = tuple(f.name for f in fields(RunRecord))

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
        for group, runs in found:
            _check_group(fold, group, [r for _, r in runs])
            _apply_group(fold, group, runs)
        left = Counter((run.commit_seq, run.object) for _, runs in found for _, run in runs)
        for (seq, item), count in left.items():
            fold.refer(ObjectRef(seq, item), -count)


def _read_sources(fold: Fold, value: object) -> dict[SourceId, tuple[int, int]]:
    columns = fold.obj_columns("ReplaceRuns sources", value, _SOURCE)
    sources: dict[SourceId, tuple[int, int]] = {}
    for seq, index, start, end, closed_by in zip(*(columns[n] for n in _SOURCE), strict=True):
        name = (seq, index, OPEN if closed_by is None else closed_by)
        fold.check(name not in sources, "a source is named once", expected="once", found=f"run {seq}/{index}")
        sources[name] = (start, end)
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


def _find_sources(
    fold: Fold, group: _Group, sources: dict[SourceId, tuple[int, int]]
) -> list[tuple[bytes, RunRecord]]:
    """Take the runs among the targets' offsets that are named as sources out of ``sources``; ascending by
    offset."""
    low, high = group.targets[0].start, group.targets[-1].end
    mq, found = queue_of(group.queue), []
    if group.closed_by == OPEN:
        prefix = generation_prefix(RUN, group.queue, group.generation)
        start = prefix + U8.pack(low)
        # A run whose beginning was trimmed is keyed below its first live offset.
        before = next(iter(fold.draft.scan(prefix, start=start, reverse=True)), None)
        start = start if before is None else before[0]
    else:
        prefix = CLOSED + group.queue + U4.pack(group.generation) + U8.pack(group.closed_by)
        start = prefix
    for key, value in fold.draft.scan(prefix, start=start):
        run = unpack_run(value)
        if run.start >= high and run.first_queue_offset >= high:
            break
        bounds = sources.pop((run.commit_seq, run.index, run.closed_by), None)
        if bounds is None:
            continue
        rule = "a source's bounds are its live bounds"
        expected = f"{run.start} to {run.end}"
        fold.check(
            bounds == (run.start, run.end),
            rule,
            queue=mq,
            expected=expected,
            found=f"{bounds[0]} to {bounds[1]}",
        )
        found.append((key, run))
    found.sort(key=lambda pair: pair[1].start)
    return found


def _union(runs: Sequence[RunRecord]) -> list[tuple[int, int]]:
    """Ascending runs as maximal ranges."""
    made: list[tuple[int, int]] = []
    for run in runs:
        if made and made[-1][1] == run.start:
            made[-1] = (made[-1][0], run.end)
        else:
            made.append((run.start, run.end))
    return made


def _check_group(fold: Fold, group: _Group, runs: list[RunRecord]) -> None:
    mq, targets = queue_of(group.queue), group.targets
    expected, found = _union(runs), _union(targets)
    rule = "targets cover exactly their sources' union"
    fold.check(expected == found, rule, queue=mq, expected=str(expected)[:80], found=str(found)[:80])
    rows, kept = sum(r.rows for r in runs), sum(t.rows for t in targets)
    whole = all(r.end - r.start == r.queue_offsets for r in runs)
    rule = "targets hold their sources' records"
    fold.check(kept == rows if whole else kept <= rows, rule, queue=mq, expected=rows, found=kept)
    _check_bounds(fold, mq, targets, runs)
    _check_flat(fold, mq, targets, runs)


def _check_bounds(fold: Fold, mq: MessageQueue, targets: list[RunRecord], runs: list[RunRecord]) -> None:
    """Store times and physical ranges, which searches by time and every later ``Rewind`` rely on.

    A target's lie in those of the sources that it serves. Where it begins or ends with a source that was not cut there, they
    are the source's; of a run that was cut the fold knows only bounds.
    """
    at, reached = 0, 0
    for target in targets:
        while runs[at].end <= target.start:
            at += 1
        upto = at
        while upto < len(runs) and runs[upto].start < target.end:
            upto += 1
        own = runs[at:upto]
        for name, low, high in (
            ("store times", "min_store_time", "max_store_time"),
            ("physical range", "physical_start", "physical_end"),
        ):
            least, most = min(getattr(r, low) for r in own), max(getattr(r, high) for r in own)
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


def _check_ends(fold: Fold, mq: MessageQueue, target: RunRecord, own: list[RunRecord]) -> None:
    """What is exact: the physical bounds at an end that was not cut, the store times over runs that were not cut at all."""
    first, last = own[0], own[-1]
    begins = target.start == first.start == first.first_queue_offset
    ends = target.end == last.end == last.first_queue_offset + last.queue_offsets
    expected = (
        first.physical_start if begins else target.physical_start,
        last.physical_end if ends else target.physical_end,
    )
    found = (target.physical_start, target.physical_end)
    rule = "a target begins and ends where its sources do"
    fold.check(found == expected, rule, queue=mq, expected=expected, found=found)
    if begins and ends and all(r.end - r.start == r.queue_offsets for r in own):
        expected = (min(r.min_store_time for r in own), max(r.max_store_time for r in own))
        found = (target.min_store_time, target.max_store_time)
        rule = "whole runs keep their store times"
        fold.check(found == expected, rule, queue=mq, expected=expected, found=found)


def _check_flat(fold: Fold, mq: MessageQueue, targets: list[RunRecord], runs: list[RunRecord]) -> None:
    """Flat offsets stay what they were, wherever both a target and a source begin or end."""
    rule = "flat offsets do not change"
    begins = {r.start: r.first_flat_offset for r in runs if r.start == r.first_queue_offset}
    ends = {r.end: r.flat_end for r in runs}
    for before, target in zip([None, *targets], targets, strict=False):
        flat = begins.get(target.start, target.first_flat_offset)
        if before is not None and before.end == target.start:
            flat = before.flat_end
        fold.check(
            target.first_flat_offset == flat, rule, queue=mq, expected=flat, found=target.first_flat_offset
        )
        flat = ends.get(target.end, target.flat_end)
        fold.check(target.flat_end == flat, rule, queue=mq, expected=flat, found=target.flat_end)


def _apply_group(fold: Fold, group: _Group, runs: list[tuple[bytes, RunRecord]]) -> None:
    live = group.closed_by == OPEN
    record, current = fold.load_generation(
        group.queue, group.generation, "runs are of a generation that exists"
    )
    fold.draft.drop_all(key for key, _ in runs)
    if live:
        record.runs -= len(runs)
        record.bytes -= sum(run.flat_end - run.first_flat_offset for _, run in runs)
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
