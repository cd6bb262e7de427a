"""``SinkProgress``: how far sinks are becomes part of the archive (DESIGN.md, "Sinks")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tiered.archive.fold.context import OFFSET_LIMIT, Fold
from tiered.archive.fold.sinkmap import moved
from tiered.archive.state.keys import SINK, SINK_MAP, SINK_QUEUE, prefixed, queue_keys, queue_of
from tiered.archive.state.sinks import (
    SINK_ID_BYTES,
    SINKS,
    SinkQueue,
    SinkState,
    sink_queue,
    sink_state,
)
from tiered.codec.format.edits import EditBatch, SinkStep


def sink_progress(fold: Fold, batch: EditBatch) -> None:
    """Positions of sinks. The first one that an archive is given makes it one that older programs refuse to open."""
    fold.check_numbers(batch)
    if len(batch) and SINKS not in fold.head.required_features:
        fold.head = replace(fold.head, required_features=(*fold.head.required_features, SINKS))
    if not fold.scope.everything:
        return
    seen: set[bytes] = set()
    for i in range(len(batch)):
        row = batch.row(i)
        sink_id, step = row["sink_id"], row["step"]
        fold.check(len(sink_id) == SINK_ID_BYTES, "a sink's id is 16 bytes", expected=16, found=len(sink_id))
        fold.check(sink_id not in seen, "a commit names a sink once", expected="once", found=row["sink"])
        seen.add(sink_id)
        fold.check(step in _STEPS, "a sink's step is known", expected=f"one of {sorted(_STEPS)}", found=step)
        _step(fold, row, SinkStep(step))


def _step(fold: Fold, row: Mapping[str, Any], step: SinkStep) -> None:
    sink_id = row["sink_id"]
    known = fold.draft.get(SINK + sink_id)
    old = None if known is None else sink_state(sink_id, known)
    if step in (SinkStep.ANEW, SinkStep.REMOVED):
        fold.draft.put(SINK + sink_id, None)
        for kind in (SINK_QUEUE, SINK_MAP):
            fold.draft.drop_all([key for key, _ in fold.draft.iterate(kind + sink_id)])
    if step is SinkStep.REMOVED:
        return
    if step is SinkStep.ANEW:
        rule, before = "a sink begins anew by a later order", -1 if old is None else old.revision
        fold.check(row["revision"] > before, rule, expected=f"> {before}", found=row["revision"])
    made = _state(fold, row)
    if old is not None and step is not SinkStep.ANEW:
        _follows(fold, old, made, back=step is SinkStep.BACK)
    fold.draft.put(SINK + sink_id, made.pack())
    _queues(fold, sink_id, row["sink_queues"], back=step is SinkStep.BACK)


def _state(fold: Fold, row: Mapping[str, Any]) -> SinkState:
    physical, anchor = row["sink_position"]
    within = all(x is None or 0 <= x <= OFFSET_LIMIT for x in (physical, *(anchor or ())))
    fold.check(within, "a sink's position is in range", expected=f"0 to {OFFSET_LIMIT}", found=str(physical))
    highest, looked = fold.head.highest_lineage, row["looked"]
    fold.check(
        row["lineage"] <= highest, "a sink's lineage is known", expected=f"≤ {highest}", found=row["lineage"]
    )
    rule = "a sink has looked at commits before its own"
    fold.check(looked < fold.commit.seq, rule, expected=f"< {fold.commit.seq}", found=looked)
    return SinkState(
        row["sink_id"],
        row["sink"],
        row["revision"],
        row["lineage"],
        physical,
        None if anchor is None else tuple(anchor),
        looked,
        fold.commit.seq,
    )


def _follows(fold: Fold, old: SinkState, made: SinkState, *, back: bool) -> None:
    for name in ("revision", "lineage", "looked"):
        before, now = getattr(old, name), getattr(made, name)
        fold.check(now >= before, f"a sink's {name} never goes back", expected=f"≥ {before}", found=now)
    if back or made.lineage > old.lineage or old.physical is None:
        return
    now = -1 if made.physical is None else made.physical
    rule = "a sink's position goes back only where it says so"
    fold.check(now >= old.physical, rule, expected=f"≥ {old.physical}", found=now)


def _queues(fold: Fold, sink_id: bytes, value: object, *, back: bool) -> None:
    columns = fold.obj_columns("SinkProgress", value, ("queue_id", "next", "physical"), ("topic",))
    queues = queue_keys(columns["topic"], np.asarray(columns["queue_id"], np.int64))
    fold.check(
        len(set(queues)) == len(queues), "a sink's queue is named once", expected="once", found="twice"
    )
    keys = prefixed(SINK_QUEUE + sink_id, queues)
    before = [] if back else fold.draft.get_many(keys)
    rule = "a sink goes back in a queue only where it says so"
    for queue, value, now in zip(queues, before, columns["next"], strict=False):
        reached = 0 if value is None else sink_queue(value).next
        fold.check(now >= reached, rule, queue=queue_of(queue), expected=f"≥ {reached}", found=now)
    rows = zip(columns["next"], columns["physical"], strict=True)
    fold.draft.put_all(keys, [SinkQueue(*row).pack() for row in rows])
    moved(fold, sink_id, queues, columns["next"])


_STEPS = frozenset(map(int, SinkStep))
