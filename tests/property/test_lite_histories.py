"""Random histories with lite queues: a naive model agrees after every commit, and whoever folds a part sees the same of it."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.histories import store_changes
from tests.kit.litehistories import LiteHistory
from tiered.archive.fold.apply import apply
from tiered.archive.state.aliases import lite_queue
from tiered.archive.state.scope import OF_QUEUES, Scope
from tiered.codec.format.commit import decode_commit, encode_commit
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32 - 1)


@QUICK
@given(seeds)
def test_the_model_agrees_after_every_commit(seed: int) -> None:
    history = LiteHistory(random.Random(seed))
    for _ in range(25):
        history.step()
        assert history.folded_lite() == {name: queue.aliases for name, queue in history.lite.items()}
        assert history.folded(history.state) == history.readable()
        for name, queue in history.lite.items():
            found = lite_queue(history.store, MessageQueue(name, 0))
            assert found is not None
            assert (found.generation or 0, found.highest_generation) == (queue.current, queue.highest)
            current = queue.of(queue.current)
            assert found.messages == len(current)
            if queue.current:
                first = min(current, default=queue.maximum)
                assert found.max_offset == queue.maximum
                assert found.min_offset == first or (queue.gone and found.min_offset < first)
            if current:
                times = [alias[4] for alias in current.values()]
                assert (found.min_store_time, found.max_store_time) == (min(times), max(times))
                assert found.lineage == queue.lineages[queue.current]


@QUICK
@given(seeds)
def test_a_reader_of_one_lite_queue_folds_the_same_of_it(seed: int) -> None:
    history = LiteHistory(random.Random(seed))
    for _ in range(25):
        history.step()
    parts = [
        (Scope.queue("%LMQ%a", 0), MemoryStore()),
        (Scope.topic("topic-0") | Scope.topic("%LMQ%b"), MemoryStore()),
        (Scope.beginning("%LMQ%"), MemoryStore()),
    ]
    whole = MemoryStore()
    for commit in history.commits:
        read = decode_commit(b"".join(encode_commit(commit, [bytes(commit.inline_length)])), key="c")
        store_changes(whole, apply(whole, read))
        for scope, part in parts:
            store_changes(part, apply(part, read, scope))
    for scope, part in parts:
        assert pairs(whole, scope) == pairs(history.store, scope) == pairs(part, scope)


def pairs(store: Any, scope: Scope) -> list[tuple[bytes, bytes]]:
    return [(k, v) for k, v in store.iterate(b"") if k[:1] in OF_QUEUES and scope.has_key(k[1:])]
