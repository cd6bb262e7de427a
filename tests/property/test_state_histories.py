"""Random valid histories: every store folds them alike, a naive model agrees, broken commits change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.histories import ARCHIVE_ID, History, mutate, store_changes
from tiered.archive.checkpoint.store import load_checkpoint, newest_checkpoint, write_checkpoint
from tiered.archive.fold.apply import apply
from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.layers import Overlay
from tiered.archive.state.recentqueues import Planning, RecentQueues
from tiered.archive.state.sinks import sink_queues
from tiered.archive.state.sinks import sinks as list_sinks
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.format.commit import decode_commit, encode_commit
from tiered.codec.format.edits import Commit, EditBatch, EditKind
from tiered.errors import Corrupt
from tiered.metadata.memory import MemoryStore
from tiered.metadata.open import open_metadata
from tiered.provider.memory import MemoryProvider

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32 - 1)


def grown(seed: int, steps: int) -> History:
    history = History(random.Random(seed), forgets=seed % 2 == 0, sinks=seed % 3 == 0)
    for _ in range(steps):
        history.step()
    return history


def pairs(store: Any) -> list[tuple[bytes, bytes]]:
    return list(store.iterate(b""))


@QUICK
@given(seeds)
def test_the_model_agrees_after_every_commit(seed: int) -> None:
    history = History(random.Random(seed), forgets=seed % 2 == 0, sinks=True)
    for _ in range(25):
        history.step()
        sinks = {s.sink_id: s for s in list_sinks(history.store)}
        assert {
            sink_id: (s.revision, s.physical, {mq: f.next for mq, f in sink_queues(history.store, sink_id)})
            for sink_id, s in sinks.items()
        } == history.model.sinks
        assert history.folded(history.state) == history.readable()
        assert history.folded_closed(history.state) == history.closed()


@QUICK
@given(seeds, st.sampled_from((1, 3, 1000)))
def test_a_plan_on_recent_queues_is_a_plan_on_the_fold(seed: int, most: int) -> None:
    history = History(random.Random(seed), forgets=seed % 2 == 0, sinks=True)
    store, recent = MemoryStore(), RecentQueues(most)
    store.put_many(pairs(history.store), applied=history.store.applied())
    for _ in range(30):
        commit = history.step()
        expected, found = apply(store, commit), apply(Planning(store, recent), commit)
        assert (found.values, found.head) == (expected.values, expected.head)
        recent.planned(found)
        store_changes(store, expected)
        queues = list(history.model.queues)
        named = [mq.topic for mq in queues], np.array([mq.queue_id for mq in queues], np.int64)
        table, known = recent.table(*named, store)
        there, are = ArchiveState(store).queue_table(*named)
        assert (table.tolist(), known.tolist()) == (there.tolist(), are.tolist())
        assert len(recent) <= 2 * (most + len(queues))


@QUICK
@given(seeds)
def test_counters_bounds_and_references(seed: int) -> None:
    history = grown(seed, 30)
    state = history.state
    assert {found.queue for found in state.queues()} == set(history.model.queues)
    for mq, queue in history.model.queues.items():
        found = state.queue(mq)
        assert found is not None
        assert (found.generation or 0, found.highest_generation) == (queue.current, queue.highest)
        for generation in state.generations(mq):
            model = queue.generations[generation.generation]
            live = model.live()
            runs = list(state.runs(mq, generation.generation))
            assert generation.current == (generation.generation == queue.current)
            assert (generation.lineage, generation.max_offset, generation.flat_end) == (
                model.lineage, model.maximum, model.flat_end,
            )  # fmt: skip
            assert generation.messages == sum(r.end - r.start for r in runs)
            assert generation.bytes == sum(r.flat_end - r.first_flat_offset for r in runs)
            assert generation.runs == len(runs)
            assert all(r.rows > 0 and generation.min_offset <= r.start < r.end for r in runs)
            if live:
                assert generation.min_store_time is not None
                assert generation.max_store_time is not None
                assert generation.min_store_time <= min(r.time for r in live)
                assert generation.max_store_time >= max(r.time for r in live)
            else:
                assert (generation.min_store_time, runs) == (None, [])
            gaps = {
                o
                for g in state.gaps(mq)
                if g.generation == generation.generation
                for o in range(g.start, g.end)
            }
            assert gaps == model.gaps
    counted: dict[Any, int] = {}
    for run in [*state.runs_all(), *state.closed_parts()]:
        counted[run.object] = counted.get(run.object, 0) + 1
    assert {o.ref: o.references for o in state.objects() if o.references} == counted


@QUICK
@given(seeds)
def test_no_two_generations_of_a_queue_have_the_same_number(seed: int) -> None:
    history = History(random.Random(seed), topics=1, queues=2, forgets=True)
    begun: set[tuple[str, int, int]] = set()
    forgotten = 0
    for _ in range(40):
        for edit in history.step().edits:
            rows = [edit.row(i) for i in range(len(edit))]
            if edit.kind is EditKind.NEW_GENERATION:
                names = {(row["topic"], row["queue_id"], row["generation"]) for row in rows}
                assert not names & begun
                begun |= names
            if edit.kind is EditKind.FORGET_QUEUES:
                forgotten += len(rows)
    head = history.state.head()
    assert head is not None
    assert (head.forgotten.generation, head.forgotten.queues) == (history.model.forgotten, forgotten)


@FEW
@given(seeds)
def test_every_store_folds_alike_and_from_a_checkpoint(seed: int) -> None:
    history = grown(seed, 24)
    keys = ArchiveKeys("cluster", "broker")
    provider = MemoryProvider(f"state-{seed}", ManualClock())
    chance = random.Random(seed)
    with TemporaryDirectory() as directory, ExitStack() as stack:
        stores = {k: open_metadata(k, Path(directory) / k, 1 << 20) for k in ("memory", "json", "rocksdb")}
        for store in stores.values():
            stack.callback(store.close)
        middle = chance.randint(1, len(history.commits) - 1)
        resumed = MemoryStore()
        for commit in history.commits:
            for store in stores.values():
                store_changes(store, apply(store, commit))
            if commit.seq > middle:
                store_changes(resumed, apply(resumed, commit))
            if commit.seq == middle:
                made = write_checkpoint(
                    provider,
                    keys,
                    stores["rocksdb"].snapshot(),
                    None,
                    lambda: keys.shard(1, chance.randbytes(16)),
                    shard_bytes=4096,
                )
                found = newest_checkpoint(provider, keys)
                assert found == made
                head = load_checkpoint(provider, made, resumed)
                assert head == ArchiveState(stores["json"]).head()
                assert resumed.applied() == head.position()
        expected = pairs(history.store)
        for name, store in {**stores, "resumed": resumed}.items():
            assert pairs(store) == expected, name
            assert store.applied() == history.store.applied()


@QUICK
@given(seeds)
def test_an_overlay_of_pending_commits_is_the_fold_to_be(seed: int) -> None:
    history = grown(seed, 18)
    store, pending = MemoryStore(), []
    for commit in history.commits:
        pending.append(apply(Overlay(store, pending), commit))
        if len(pending) == 4:
            store_changes(store, pending.pop(0))
    view = Overlay(store, pending)
    expected = pairs(history.store)
    assert pairs(view) == expected
    assert list(view.iterate(b"r", reverse=True)) == list(history.store.iterate(b"r", reverse=True))
    some = [k for k, _ in expected[::3]]
    assert view.get_many([*some, b"none"]) == history.store.get_many([*some, b"none"])
    assert view.applied() == history.store.applied()


@QUICK
@given(seeds)
def test_a_commit_survives_its_encoding(seed: int) -> None:
    history = grown(seed, 12)
    store = MemoryStore()
    for commit in history.commits:
        data = b"".join(encode_commit(commit, [bytes(commit.inline_length)] if commit.inline_length else ()))
        store_changes(store, apply(store, decode_commit(data, key="commit")))
    assert pairs(store) == pairs(history.store)


def _plus(amount: int) -> Callable[[Any], Any]:
    return lambda value: value + amount


_CHAIN: list[Callable[[Commit], Commit]] = [
    lambda c: replace(c, seq=c.seq + 1),
    lambda c: replace(c, seq=c.seq - 1),
    lambda c: replace(c, previous_id=b"x" * 16),
    lambda c: replace(c, epoch=c.epoch + 1),
    lambda c: replace(c, writer_id=b"x" * 16),
    lambda c: replace(c, archive_id=b"x" * 16),
    lambda c: replace(c, commit_id=bytes(16)),
]
_COLUMNS: list[tuple[EditKind, str, Callable[[Any], Any]]] = [
    (EditKind.APPEND_RUN, "first_queue_offset", _plus(1)),
    (EditKind.APPEND_RUN, "first_queue_offset", _plus(-1)),
    (EditKind.APPEND_RUN, "first_flat_offset", _plus(1)),
    (EditKind.APPEND_RUN, "generation", _plus(1)),
    (EditKind.APPEND_RUN, "generation", _plus(-1)),
    (EditKind.APPEND_RUN, "rows", lambda v: 0),
    (EditKind.APPEND_RUN, "queue_offsets", lambda v: 0),
    (EditKind.APPEND_RUN, "bytes", lambda v: -5),
    (EditKind.APPEND_RUN, "bytes", _plus(100_000)),
    (EditKind.APPEND_RUN, "object", _plus(2)),
    (EditKind.APPEND_RUN, "block_count", lambda v: 0),
    (EditKind.APPEND_RUN, "physical_start", lambda v: -1),
    (EditKind.APPEND_RUN, "physical_end", _plus(1 << 50)),
    (EditKind.APPEND_RUN, "queue_id", lambda v: 1 << 40),
    (EditKind.APPEND_RUN, "topic", lambda v: "never seen"),
    (EditKind.APPEND_RUN, "min_store_time", _plus(1 << 40)),
    (EditKind.PROGRESS, "lineage", _plus(1)),
    (EditKind.PROGRESS, "physical_offset", lambda v: 0),
    (EditKind.PROGRESS, "crc_from", _plus(1 << 40)),
    (EditKind.ADD_OBJECT, "object_id", lambda v: v[:15]),
    (EditKind.ADD_OBJECT, "length", lambda v: 10),
    (EditKind.ADD_OBJECT, "sections", lambda v: {1: [0, 10**6, 1]}),
]


@QUICK
@given(seeds, st.sampled_from(_CHAIN))
def test_a_commit_that_does_not_follow_is_refused(seed: int, change: Callable[[Commit], Commit]) -> None:
    history = grown(seed, 8)
    commit = change(history.next_commit(history.flush()))
    _refused(history, commit)


@settings(QUICK, max_examples=80)
@given(seeds, st.sampled_from(_COLUMNS))
def test_a_flush_with_one_wrong_value_is_refused(
    seed: int, change: tuple[EditKind, str, Callable[[Any], Any]]
) -> None:
    history = grown(seed, 8)
    edits: list[EditBatch] = history.flush()
    kind, column, alter = change
    at = max(i for i, b in enumerate(edits) if b.kind is kind)
    wrong = mutate(edits[at], column, len(edits[at]) - 1, alter)
    if wrong.columns[column][-1] == edits[at].columns[column][-1]:
        return
    commit = history.next_commit(edits)
    _refused(history, replace(commit, edits=[*edits[:at], wrong, *edits[at + 1 :]]))


def _refused(history: History, commit: Commit) -> None:
    before = pairs(history.store)
    with pytest.raises(Corrupt) as found:
        apply(history.store, commit)
    assert "rule" in found.value.fields
    assert found.value.fields["commit"] == commit.seq
    assert {"expected", "found"} <= found.value.fields.keys()
    assert pairs(history.store) == before
    assert commit.archive_id in (ARCHIVE_ID, b"x" * 16)
