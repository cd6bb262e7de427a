"""A reader that stays loads what it is asked for; of more than a few queues it takes the whole fold, once, into its copy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.readstore import READER, Cold, cold
from tiered.archive.checkpoint.partial import FEW_COMMITS, PartialStore
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.read.reader import FEW_QUEUES
from tiered.archive.state.scope import Scope
from tiered.archive.state.view import ArchiveState
from tiered.errors import Unavailable
from tiered.fetch.pull import Pull
from tiered.metadata.memory import MemoryStore
from tiered.model import GetMessageStatus, MessageQueue
from tiered.store.messages import MessageStore

TOPICS = 40


@pytest.fixture(autouse=True)
def _forty_topics_are_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "small" not in request.node.name:
        monkeypatch.setattr("tiered.archive.read.reader.FEW_PAIRS", -1)


def name(number: int) -> str:
    return f"Topic-{number:02}"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cold]:
    """Forty topics of one queue behind small shards, and a commit behind the checkpoint."""
    with cold(tmp_path, open_now=False) as archive:
        for number in range(TOPICS):
            archive.broker.send(topic=name(number))
        archive.archive()
        save(archive)
        archive.broker.send(topic=name(7))
        archive.archive()
        yield archive


def save(archive: Cold) -> None:
    chance = random.Random(len(archive.provider.calls))
    write_checkpoint(
        archive.provider, KEYS, archive.daemon.log.store.snapshot(), None,
        lambda: KEYS.shard(1, chance.randbytes(16)), shard_bytes=1024,
    )  # fmt: skip


def opened(archive: Cold, copy: MemoryStore) -> MessageStore:
    return archive.open(fold=PartialStore(Scope({})), copy=copy)


def shards(archive: Cold) -> int:
    return sum("/shard/" in key for verb, key in archive.provider.calls if verb == "get")


def first(store: MessageStore, number: int) -> GetMessageStatus:
    return store.get_message(Pull(READER, name(number), 0, 0, 8)).status


def is_filled(copy: MemoryStore) -> bool:
    return ArchiveState(copy).head() is not None


def test_a_few_queues_are_all_that_is_loaded(made: Cold) -> None:
    copy = MemoryStore()
    store = opened(made, copy)
    total = sum(1 for _ in made.provider.inner.list(KEYS.key("shard/")))
    for number in range(FEW_QUEUES):
        assert first(store, number) is GetMessageStatus.FOUND
        made.fresh()
        store.follow()
    assert not is_filled(copy)
    assert shards(made) < total
    assert store.max_offset(name(0), 0) == 1
    assert store.get_message(Pull(READER, name(0), 0, 1, 8)).status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_more_queues_fill_the_copy_which_follows_from_then_on(made: Cold) -> None:
    copy = MemoryStore()
    store = opened(made, copy)
    for number in range(FEW_QUEUES + 2):
        made.fresh()
        assert first(store, number) is GetMessageStatus.FOUND
    assert is_filled(copy)
    assert list(copy.iterate(b"q")) == list(made.daemon.log.store.iterate(b"q"))
    made.provider.calls.clear()
    assert store.known(MessageQueue(name(39), 0)) is not None
    assert made.provider.calls == []
    made.broker.send(topic=name(39))
    made.archive()
    made.fresh()
    assert store.follow()
    found = store.known(MessageQueue(name(39), 0))
    assert found is not None
    assert found.max_offset == 2
    assert shards(made) == 0


def test_a_copy_that_holds_a_fold_is_used_at_once(made: Cold) -> None:
    copy = MemoryStore()
    made.daemon.log.reader.fold(copy)
    made.provider.calls.clear()
    store = opened(made, copy)
    assert store.known(MessageQueue(name(3), 0)) is not None
    assert shards(made) == 0


def test_what_lies_beside_what_is_loaded_is_not_known(made: Cold) -> None:
    """Its shard is at hand, but no commit behind the checkpoint was folded for it: it would be older than the view."""
    store = opened(made, MemoryStore())
    for number in (6, 8):
        store.loaded(MessageQueue(name(number), 0))
    queue = MessageQueue(name(7), 0)
    with pytest.raises(Unavailable, match="not loaded yet"):
        store.known(queue)
    made.provider.calls.clear()
    found = store.loaded(queue)
    assert (found and found.max_offset, shards(made)) == (2, 0)


def test_what_is_known_is_never_waited_for(made: Cold) -> None:
    store = opened(made, MemoryStore())
    queue = MessageQueue(name(7), 0)
    made.provider.calls.clear()
    for ask in (lambda: store.known(queue), lambda: store.physical_floor(queue, 0)):
        with pytest.raises(Unavailable, match="not loaded yet"):
            ask()
    assert made.provider.calls == []
    found = store.loaded(queue)
    assert found is not None
    assert found.max_offset == 2
    made.provider.calls.clear()
    assert store.known(queue) == found
    assert made.provider.calls == []


def test_a_question_about_all_queues_fills_the_copy(made: Cold) -> None:
    copy = MemoryStore()
    store = opened(made, copy)
    assert list(store.topics()) == [name(n) for n in range(TOPICS)]
    assert is_filled(copy)


def test_the_newest_record_is_found_in_the_log_and_loads_one_queue(made: Cold) -> None:
    copy = MemoryStore()
    store = opened(made, copy)
    newest = store.newest()
    assert newest is not None
    assert newest.record == made.broker.sent[-1][1]
    assert not is_filled(copy)


def test_commits_behind_the_checkpoint_are_read_once(made: Cold) -> None:
    for _ in range(3):
        made.broker.send(topic=name(7))
        made.archive()
    made.provider.calls.clear()
    store = opened(made, MemoryStore())
    for number in (7, 8):
        assert store.loaded(MessageQueue(name(number), 0)) is not None
    head = made.daemon.log.tip
    assert head is not None
    asked = [key for verb, key in made.provider.calls if verb == "get" and key.startswith(KEYS.commit_prefix)]
    for behind in range(3):
        key = KEYS.commit(head.seq - behind)
        assert asked.count(key) == 1
    assert store.max_offset(name(7), 0) == 5


def test_everything_behind_many_commits_is_no_work_for_a_few_shards(made: Cold) -> None:
    def scattered(cache_bytes: int) -> bool:
        store = PartialStore(Scope({}), cache_bytes=cache_bytes)
        made.daemon.log.reader.fold(store)
        return store.scattered

    assert not scattered(1000), "one commit behind the checkpoint"
    for _ in range(FEW_COMMITS):
        made.broker.send(topic=name(7))
        made.archive()
    assert scattered(1000)
    assert not scattered(1 << 20), "all shards can be kept"
    save(made)
    assert not scattered(1000)


def test_a_copy_that_cannot_be_filled_is_tried_again(made: Cold) -> None:
    copy = MemoryStore()
    store = opened(made, copy)
    for number in range(FEW_QUEUES + 1):
        assert store.loaded(MessageQueue(name(number), 0)) is not None
    made.provider.say("dropped")
    made.fresh()
    with pytest.raises(Unavailable):
        store.follow()
    assert not is_filled(copy)
    assert first(store, 0) is GetMessageStatus.FOUND
    made.fresh()
    assert store.follow() is not None
    assert is_filled(copy)


def test_a_small_archive_is_taken_into_the_copy_at_once(made: Cold) -> None:
    copy = MemoryStore()
    store = opened(made, copy)
    assert is_filled(copy)
    assert store.known(MessageQueue(name(30), 0)) is not None
