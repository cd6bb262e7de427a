"""Partial folds: what they load, that they say the same as a whole fold, and what damage does to them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.kit.assemble import one_after_another
from tests.kit.histories import History
from tests.kit.savedhistory import KEYS, TOPICS, SavedHistory
from tiered.archive.checkpoint import partial as partial_module
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.fold.apply import apply
from tiered.archive.state.keys import OBJECT, OBJECT_PATH, QUEUE, RUN, U8_U4, queue_key, topic_key
from tiered.archive.state.scope import EVERYTHING, OF_QUEUES, Scope
from tiered.archive.state.values import pack_object, unpack_object
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditKind, Rows, batch
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataView
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, ObjectRef


@pytest.fixture(scope="module")
def grown_archive() -> SavedHistory:
    return SavedHistory(3, (20, 40), 60)


@pytest.fixture
def archive(grown_archive: SavedHistory, monkeypatch: pytest.MonkeyPatch) -> SavedHistory:
    one_after_another(monkeypatch)
    return grown_archive.copy()


def pairs(view: MetadataView, scope: Scope = EVERYTHING) -> Iterator[tuple[bytes, bytes]]:
    """A fold as far as a partial one is to agree with it: no references, of objects those that runs lie in."""
    for key, value in view.iterate(b""):
        if key[:1] == OBJECT:
            item = unpack_object(ObjectRef(*U8_U4.unpack_from(key, 1)), value)
            if item.references or item.path:
                yield key, pack_object(replace(item, references=0))
        elif key[:1] not in OF_QUEUES or key[1:].startswith(scope.prefixes):
            yield key, value


def same(partial: MetadataView, whole: MetadataView, scope: Scope) -> None:
    """Of the log all the same, of queues those in the scope; inline objects of others may be there still."""
    expected = dict(pairs(whole, scope))
    found = {k: v for k, v in _plain(partial) if k in expected or k[:1] != OBJECT}
    assert found == expected


def _plain(view: MetadataView) -> Iterator[tuple[bytes, bytes]]:
    for key, value in view.iterate(b""):
        if key[:1] == OBJECT:
            item = unpack_object(ObjectRef(*U8_U4.unpack_from(key, 1)), value)
            yield key, pack_object(replace(item, references=0))
        else:
            yield key, value


SCOPES = [
    Scope.queue("topic-3", 1),
    Scope.topic("topic-0"),
    Scope({"topic-1": None, "topic-7": frozenset((0,)), "absent": None}),
    Scope({}),
]


@functools.cache
def grown(seed: int) -> History:
    """A history that nobody changes any more."""
    history = History(random.Random(seed), topics=TOPICS)
    for _ in range(50):
        history.step()
    return history


@pytest.mark.parametrize("scope", SCOPES, ids=["queue", "topic", "some", "none"])
@pytest.mark.parametrize("seed", range(6))
def test_a_fold_of_some_queues_says_of_them_what_the_whole_fold_says(seed: int, scope: Scope) -> None:
    history = grown(seed)
    partial = MemoryStore()
    for commit in history.commits:
        made = apply(partial, commit, scope)
        partial.put_many(made.puts, made.deletes, applied=made.head.position())
    same(partial, history.store, scope)
    assert partial.applied() == history.store.applied()
    kinds = {b.kind for c in history.commits for b in c.edits}
    assert kinds >= {EditKind.REWIND, EditKind.TRIM_QUEUE, EditKind.REPLACE_RUNS}


def test_rules_of_the_log_hold_in_a_fold_of_no_queue(archive: SavedHistory) -> None:
    """A run above the Progress, of a queue that nobody asked for."""
    history = archive.history
    edits = history.flush()
    bad = [b for b in edits if b.kind is not EditKind.PROGRESS]
    with pytest.raises(Corrupt, match="ends in a Progress"):
        apply(archive.open(Scope({})), history.next_commit(bad), Scope({}))
    runs = next(b for b in bad if b.kind is EditKind.APPEND_RUN)
    wrong = batch(EditKind.APPEND_RUN, **{**runs.columns, "rows": np.zeros(len(runs), np.int64)})
    with pytest.raises(Corrupt, match="a run has records"):
        apply(archive.open(Scope({})), history.next_commit([*bad[: bad.index(runs)], wrong]), Scope({}))


def test_only_the_shards_that_a_question_touches_are_loaded(archive: SavedHistory) -> None:
    newest = archive.manifests[-1]
    assert len(newest.shards) > 12
    archive.loaded()
    store = archive.open(Scope.queue("topic-3", 1))
    view = ArchiveState(store.snapshot())
    queue = MessageQueue("topic-3", 1)
    state = view.queue(queue)
    assert state is not None
    assert state == archive.history.state.queue(queue)
    assert state.generation is not None
    runs = list(view.runs(queue, state.generation))
    assert runs == list(archive.history.state.runs(queue, state.generation))
    touched = archive.loaded()
    assert 0 < len(touched) <= len(newest.shards) // 2
    runs_of_others = [
        s for s in newest.shards if s.first_key > RUN + topic_key("topic-4") and s.last_key < b"s"
    ]
    assert runs_of_others
    assert not touched & {KEYS.key(s.path) for s in runs_of_others}
    list(view.runs(queue, state.generation))
    assert not archive.loaded(), "a second time they are there"


def test_keys_of_new_objects_are_looked_up_by_who_folds_everything_alone(archive: SavedHistory) -> None:
    """They are random, so that of an archive of many objects each commit would cost two shards more."""
    newest = archive.manifests[-1]
    of_keys = [s for s in newest.shards if s.first_key[:1] == s.last_key[:1] == OBJECT_PATH]
    assert len(of_keys) > 1

    def adding(path: str) -> Commit:
        sections = Rows([{1: [0, 1, 1]}])
        return archive.history.next_commit(
            [batch(EditKind.ADD_OBJECT, key=path, object_id=bytes(16), level=0, length=1, sections=sections)]
        )

    scope, taken = Scope.queue("topic-3", 1), of_keys[0].last_key[1:].decode()
    store = archive.open(scope)
    archive.loaded()
    apply(store, adding(taken), scope)
    assert not archive.loaded()
    with pytest.raises(Corrupt, match="an object key is never used again"):
        apply(archive.history.store, adding(taken))


def test_a_view_asked_for_more_than_its_scope_answers_all_the_same(archive: SavedHistory) -> None:
    store = archive.open(Scope.queue("topic-3", 1))
    whole = archive.history.state
    archive.provider.calls.clear()
    view = store.snapshot()
    state = ArchiveState(view)
    other = MessageQueue("topic-5", 0)
    assert state.queue(other) == whole.queue(other)
    assert view.scope == Scope({"topic-3": frozenset((1,)), "topic-5": frozenset((0,))})
    assert list(state.queues("topic-7")) == list(whole.queues("topic-7"))
    assert view.scope == view.scope | Scope.topic("topic-7")
    assert list(state.runs_all()) == list(whole.runs_all())
    assert view.scope.everything
    same(view, whole.view, EVERYTHING)
    with pytest.raises(AssertionError, match="not in it"):
        store.get_many([QUEUE + queue_key(other)])
    assert store.outgrown
    archive.grow(3)
    archive.reader.follow(store)
    assert not store.outgrown
    same(store.snapshot(), whole.view, EVERYTHING)


def test_a_view_stays_at_its_commit(archive: SavedHistory) -> None:
    store = archive.open(Scope.topic("topic-1"))
    view, before = store.snapshot(), archive.history.store.snapshot()
    archive.grow(5)
    archive.save()
    archive.reader.follow(store)
    assert view.applied() == before.applied()
    same(view, before, EVERYTHING)
    same(store.snapshot(), archive.history.store, EVERYTHING)


Ask = Callable[[MetadataView], object]
QUESTIONS: list[Ask] = [
    lambda view: list(view.iterate(RUN)),
    lambda view: list(view.iterate(RUN, reverse=True)),
    lambda view: list(view.iterate(QUEUE, start=QUEUE + topic_key("topic-2"))),
    lambda view: view.get_many([QUEUE + queue_key(MessageQueue(f"topic-{t}", 0)) for t in range(TOPICS)]),
]


@pytest.mark.parametrize("ask", QUESTIONS, ids=["forward", "backward", "from", "many"])
def test_a_checkpoint_with_a_damaged_shard_counts_as_absent_whenever_it_is_met(
    archive: SavedHistory, ask: Ask
) -> None:
    archive.save()
    expected = ask(archive.history.store)
    store = PartialStore(cache_bytes=1)
    archive.reader.fold(store)
    view = store.snapshot()
    archive.damage(archive.manifests[-1])
    archive.provider.calls.clear()
    assert ask(view) == expected
    read = [int(k[-20:]) for verb, k in archive.provider.calls if verb == "get" and "/commit/" in k]
    assert read, "from an older checkpoint, or from the first commit"
    assert read[0] in (0, *(manifest.seq + 1 for manifest in archive.manifests[:-1]))
    assert archive.manifests[-1].key in store.damaged
    archive.grow(1)
    archive.reader.follow(store)
    same(store.snapshot(), archive.history.store, EVERYTHING)


def test_a_shard_that_is_found_damaged_while_commits_are_folded(archive: SavedHistory) -> None:
    archive.damage(archive.manifests[-1])
    store = archive.open()
    assert store.damaged
    same(store.snapshot(), archive.history.store, EVERYTHING)


def test_a_checkpoint_whose_head_does_not_verify_is_passed_over(archive: SavedHistory) -> None:
    archive.damage(archive.manifests[-1], keep_head=False)
    same(archive.open().snapshot(), archive.history.store, EVERYTHING)


def test_damage_that_nothing_makes_good_is_said(archive: SavedHistory) -> None:
    store = archive.open()
    for manifest in archive.manifests:
        archive.damage(manifest)
    archive.provider.delete(KEYS.commit(0))
    with pytest.raises(Corrupt, match="cannot be rebuilt"):
        list(store.snapshot().iterate(RUN))


def test_a_store_that_grew_begins_at_a_newer_checkpoint(
    archive: SavedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_module, "MOST_CHANGES", 50)
    store = archive.open()
    store.snapshot()
    archive.save()
    for _ in range(20):
        archive.grow(4)
        archive.save()
        archive.reader.follow(store)
        store.snapshot()
    most = len(store._layers.values)
    assert most < len(list(archive.history.store.iterate(b""))) / 2, "not all that was ever changed"
    same(store.snapshot(), archive.history.store, EVERYTHING)


def test_a_store_that_grew_without_a_newer_checkpoint_begins_anew_once(
    archive: SavedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_module, "MOST_CHANGES", 50)
    store = archive.open()
    store.snapshot()
    while not store.outgrown:
        archive.grow(1)
        archive.reader.follow(store)
    archive.reader.follow(store)
    for _ in range(3):
        archive.provider.calls.clear()
        archive.reader.follow(store)
        assert len(archive.provider.calls) < 4, "a look at a log on which nothing moved"
    same(store.snapshot(), archive.history.store, EVERYTHING)


def test_so_does_one_that_stays_at_a_commit(archive: SavedHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_module, "MOST_CHANGES", 1)
    store = archive.open()
    for _ in range(40):
        archive.grow(1)
    head = archive.reader.follow(store)
    assert head is not None
    for look in range(3):
        archive.provider.calls.clear()
        assert archive.reader.fold_until(store, head.seq).seq == head.seq
        assert look == 0 or len(archive.provider.calls) < 4


def test_a_small_cache_of_shards_only_costs_requests(archive: SavedHistory) -> None:
    store = PartialStore(cache_bytes=1)
    archive.reader.fold(store)
    same(store.snapshot(), archive.history.store, EVERYTHING)


def test_walks_begin_and_end_where_they_should(archive: SavedHistory) -> None:
    store, whole = archive.open(), archive.history.store
    view = store.snapshot()
    keys = [k for k, _ in whole.iterate(RUN)]
    for start in (keys[0], keys[len(keys) // 2], keys[-1], keys[7] + b"\0", keys[7][:-1]):
        for reverse in (False, True):
            expected = list(whole.iterate(RUN, start=start, reverse=reverse))
            assert list(view.iterate(RUN, start=start, reverse=reverse)) == expected
    assert list(view.iterate(b"nothing")) == []


def test_scopes() -> None:
    scope = Scope({"a": None, "b": frozenset((1, 5))})
    assert [scope.has(*q) for q in (("a", 9), ("b", 5), ("b", 2), ("c", 0))] == [True, True, False, False]
    assert scope | Scope.queue("b", 2) == Scope({"a": None, "b": frozenset((1, 2, 5))})
    assert scope | Scope.topic("b") == Scope({"a": None, "b": None})
    assert (scope | EVERYTHING).everything
    awkward = MessageQueue("a\0b", 3)
    assert Scope({}).wider(RUN + queue_key(awkward) + b"more") == Scope.queue("a\0b", 3)
    assert Scope({}).wider(RUN + topic_key("a\0b")) == Scope.topic("a\0b")
    assert Scope({}).wider(RUN + b"a").everything
    assert not scope.covers(b"")
    assert scope.covers(b"h")
