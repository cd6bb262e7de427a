"""``ReplaceAliases``: aliases whose records retention took go, and alias runs become one (DESIGN.md, "Lite queues", L6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tiered.archive.fold.context import COUNT_LIMIT, Fold
from tiered.archive.state.aliases import ALIAS_HEAD, AliasRun, joined, unpack_alias_run
from tiered.archive.state.keys import (
    ALIAS,
    GENERATION,
    LITE_QUEUE,
    QUEUE,
    U8,
    generation_prefix,
    offset_key,
    queue_key,
    queue_of,
)
from tiered.archive.state.layout import NO_TIME_HIGH, NO_TIME_LOW, pack_queue, table, unpack_queue
from tiered.codec.format.aliases import LITE_QUEUE_ID, LITE_QUEUES
from tiered.codec.format.edits import EditBatch
from tiered.model import MessageQueue


def replace_aliases(fold: Fold, batch: EditBatch) -> None:
    """Ageing of lite queues. What a row speaks of and is not there, after a repair or a ``Rewind``, is passed over."""
    rule = "aliases stand in an epoch that requires their feature"
    required = fold.head.required_features
    fold.check(LITE_QUEUES in required, rule, expected=LITE_QUEUES, found=", ".join(required) or "none")
    fold.check_numbers(batch)
    for i in range(len(batch)):
        row = batch.row(i)
        if fold.scope.has(row["topic"], LITE_QUEUE_ID):
            queue = queue_key(MessageQueue(row["topic"], LITE_QUEUE_ID))
            messages, runs = _trim(fold, queue, row["generation"], row["first_offset"])
            runs += _join(fold, queue, row["generation"], row["start"], row["end"])
            _count(fold, queue, row["generation"], row["first_offset"], messages, runs)


def _trim(fold: Fold, queue: bytes, generation: int, first: int) -> tuple[int, int]:
    """Drop the aliases below ``first``: how many aliases and runs there are less."""
    messages = runs = 0
    below = []
    for key, run in _runs(fold, queue, generation, 0):
        if run.first_offset >= first:
            break
        below.append((key, run))
    for key, run in below:
        cut = min(first, run.end) - run.first_offset
        _check_gone(fold, queue, run, cut)
        messages += cut
        fold.draft.put(key, None)
        if run.end > first:
            left = run.between(first, run.end)
            fold.draft.put(offset_key(ALIAS, queue, generation, first), left.pack())
        else:
            runs += 1
    return messages, runs


def _check_gone(fold: Fold, queue: bytes, run: AliasRun, cut: int) -> None:
    """The records of a run's first ``cut`` aliases are not archived any more."""
    highest = np.full(len(run.targets), -1, np.int64)
    np.maximum.at(highest, run.rows["target"][:cut], run.rows["offset"][:cut])
    for target, offset in zip(run.targets, highest.tolist(), strict=True):
        if offset < 0 or not fold.scope.has_key(target[:-4]):
            continue
        lowest = _minimum(fold, target)
        rule = "an alias goes after its record"
        ok = lowest is None or offset < lowest
        fold.check(ok, rule, queue=queue_of(queue), expected=f"a record below {lowest}", found=offset)


def _minimum(fold: Fold, target: bytes) -> int | None:
    """First readable offset of a queue generation; ``None`` for one that is not known any more."""
    current = fold.draft.get(QUEUE + target[:-4])
    if current is not None:
        record = unpack_queue(current)
        if record.generation == int.from_bytes(target[-4:], "big"):
            return record.min_offset
    value = fold.draft.get(GENERATION + target)
    return None if value is None else unpack_queue(value).min_offset


def _join(fold: Fold, queue: bytes, generation: int, start: int, end: int) -> int:
    """Make one run of those in [start, end) that follow each other: how many runs there are less."""
    found = []
    for key, run in _runs(fold, queue, generation, start):
        if run.end > end:
            break
        found.append((key, run))
    groups = [[pair] for pair in found[:1]]
    for before, pair in pairwise(found):
        if before[1].end == pair[1].first_offset:
            groups[-1].append(pair)
        else:
            groups.append([pair])
    for group in groups:
        if len(group) > 1:
            made = joined([run for _, run in group])
            rule = "an alias run has no more aliases than can be counted"
            held = len(made.rows)
            fold.check(
                held <= COUNT_LIMIT, rule, queue=queue_of(queue), expected=f"≤ {COUNT_LIMIT}", found=held
            )
            for key, _ in group[1:]:
                fold.draft.put(key, None)
            fold.draft.put(group[0][0], made.pack())
    return len(found) - len(groups)


def _runs(fold: Fold, queue: bytes, generation: int, start: int) -> Iterator[tuple[bytes, AliasRun]]:
    """Alias runs of a generation that begin at or above ``start``, ascending."""
    first = offset_key(ALIAS, queue, generation, start)
    for key, value in fold.draft.scan(generation_prefix(ALIAS, queue, generation), start=first):
        yield key, unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)


def _count(fold: Fold, queue: bytes, generation: int, first: int, messages: int, runs: int) -> None:
    """The lite queue's record, if this is its current generation."""
    value = fold.draft.get(LITE_QUEUE + queue)
    record = None if value is None else unpack_queue(value)
    if record is None or record.generation != generation or not generation:
        return
    record.messages -= messages
    record.runs -= runs
    record.min_offset = max(record.min_offset, min(first, record.max_offset))
    if messages:
        pairs = fold.draft.scan(generation_prefix(ALIAS, queue, generation))
        heads = table([value[: ALIAS_HEAD.itemsize] for _, value in pairs], ALIAS_HEAD)
        record.min_store_time = int(heads["min_store_time"].min(initial=NO_TIME_LOW))
        record.max_store_time = int(heads["max_store_time"].max(initial=NO_TIME_HIGH))
    fold.draft.put(LITE_QUEUE + queue, pack_queue(record))
