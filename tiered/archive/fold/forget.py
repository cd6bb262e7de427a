"""``ForgetQueues``: queues of which nothing is left leave the fold (DESIGN.md, "Queues that are gone", Q1 to Q3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tiered.archive.fold.context import Fold
from tiered.archive.state.forgotten import FORGOTTEN_QUEUES, LEFT_BEHIND, occupied, written_last
from tiered.archive.state.keys import (
    DISPATCH,
    GENERATION,
    QUEUE,
    SINK,
    SINK_MAP,
    SINK_QUEUE,
    prefixed,
    queue_keys,
    queue_of,
)
from tiered.archive.state.layers import Pair
from tiered.codec.format.edits import EditBatch


def forget_queues(fold: Fold, batch: EditBatch) -> None:
    """Queues that have nothing: their records go, and the head keeps what they had at most."""
    rule, required = "queues are forgotten in an epoch that requires it", fold.head.required_features
    named = ", ".join(required) or "none"
    fold.check(FORGOTTEN_QUEUES in required, rule, expected=FORGOTTEN_QUEUES, found=named)
    fold.check_numbers(batch)
    if not len(batch):
        return
    generation, lineage, end = (batch.ints(name) for name in ("generation", "lineage", "physical_end"))
    highest = {n: int(end[lineage == n].max()) for n in np.unique(lineage).tolist()}
    forgotten = fold.head.forgotten.and_of(int(generation.max()), len(batch), highest)
    batch, _ = fold.mine(batch)
    if len(batch):
        _forget(fold, batch)
    fold.head = replace(fold.head, forgotten=forgotten)


def _forget(fold: Fold, batch: EditBatch) -> None:
    keys = queue_keys(batch.columns["topic"], batch.ints("queue_id"))
    rule = "queues are forgotten in the order of their keys, each once"
    for before, key in pairwise(keys):
        fold.check(before < key, rule, queue=queue_of(key), expected="ascending", found="not above the last")
    seen = _Seen(fold, keys)
    values, *stated = written_last(seen, keys)
    known = np.array([value is not None for value in values], np.int64)
    fold.check_rows(batch, known == 1, "a queue that is forgotten is known", np.ones_like(known), known)
    for name, expected in zip(("generation", "lineage", "physical_end"), stated, strict=True):
        found = batch.ints(name)
        rule = f"a queue is forgotten with its own {name}"
        fold.check_rows(batch, found == expected, rule, expected, found)
    for prefix in LEFT_BEHIND:
        some = next(occupied(seen.walk, prefix, keys), None)
        if some is not None:
            rule = "nothing is left of a queue that is forgotten"
            fold.fail(rule, queue=queue_of(some), expected="nothing", found=f"some under {prefix.decode()}")
    earlier = [key for queue in occupied(seen.walk, GENERATION, keys) for key, _ in seen.walk_queue(queue)]
    fold.draft.drop_all(prefixed(QUEUE, keys))
    fold.draft.drop_all(earlier)
    # Beside the fold, and no part of it, where an earlier version wrote to this store: but nothing else hears of a queue's end.
    fold.draft.drop_all(prefixed(DISPATCH, keys))
    if fold.scope.everything:
        for sink, _ in fold.draft.iterate(SINK):
            fold.draft.drop_all(prefixed(SINK_QUEUE + sink[1:], keys))
            fold.draft.drop_all(prefixed(SINK_MAP + sink[1:], keys))


class _Seen:
    """The draft as a view of these queues. A fold of some queues alone is asked for no others."""

    def __init__(self, fold: Fold, queues: Sequence[bytes]) -> None:
        self._fold = fold
        self._queues = queues

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._fold.draft.get_many(keys)

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        if self._fold.scope.everything or len(prefix) > 1:
            yield from self._fold.draft.scan(prefix, start=start, reverse=reverse)
            return
        for queue in self._queues:
            if start is None or prefix + queue >= start:
                yield from self._fold.draft.scan(prefix + queue)

    def applied(self) -> bytes | None:
        return None

    def walk(self, prefix: bytes, start: bytes) -> Iterator[Pair]:
        return self.iterate(prefix, start=start)

    def walk_queue(self, queue: bytes) -> Iterator[Pair]:
        return self.iterate(GENERATION + queue)
