"""Messages of quiet queues: what came with commits is not fetched again, adjacent commits are fetched at once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kit.assemble import KEYS, Counting, memory
from tests.kit.readstore import READER, Cold, cold
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.log.commitcache import WHOLE_BYTES, CommitCache
from tiered.fetch.pull import Pull
from tiered.provider.wrap import Wrapped
from tiered.settings import KIB, MIB
from tiered.store import MessageStore

COMMITS = 40


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    with cold(tmp_path_factory.mktemp("quiet"), open_now=False) as made:
        for number in range(COMMITS):
            made.broker.send("Orders", 0, b"quiet %d" % number)
            made.archive()
        yield made


@pytest.fixture
def scene(archived: Cold) -> Iterator[Cold]:
    """One message of one queue in each of many commits. Readers and objects that a test adds are taken away again."""
    before = {stored.key for stored in archived.provider.list(KEYS.root)}
    archived.provider.calls.clear()
    yield archived
    while archived.stores:
        archived.stores.pop().close()
    for stored in list(archived.provider.list(KEYS.root)):
        if stored.key not in before:
            archived.provider.delete(stored.key)


def read_through(store: MessageStore, count: int = 7) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = store.get_message(Pull(READER, "Orders", 0, len(found), count))
        if not answer.records:
            return found
        found += [bytes(record) for record in answer.records]


def ranges(store: Counting) -> int:
    """Requests for commits since the last look."""
    found = sum(verb == "get" and "/commit/" in key for verb, key in store.calls)
    store.calls.clear()
    return found


def saved(scene: Cold) -> None:
    """A checkpoint at the head: none of the commits is folded any more."""
    ids = iter(bytes([9, n]) * 8 for n in range(100))
    write_checkpoint(
        scene.provider, KEYS, scene.daemon.log.store.snapshot(), None, lambda: KEYS.shard(1, next(ids))
    )


def test_what_came_while_folding_is_not_fetched_again(scene: Cold) -> None:
    store = scene.open(provider=CommitCache(scene.provider, KEYS, MIB), whole_bytes=WHOLE_BYTES)
    scene.provider.calls.clear()
    assert read_through(store) == scene.raws("Orders")
    assert ranges(scene.provider) <= 2, "only the look for a newer one at the end"


def test_behind_a_checkpoint_a_quiet_queue_costs_one_request_a_commit(scene: Cold) -> None:
    saved(scene)
    store = scene.open(provider=CommitCache(scene.provider, KEYS, MIB), whole_bytes=WHOLE_BYTES)
    scene.provider.calls.clear()
    assert read_through(store) == scene.raws("Orders")
    assert COMMITS <= ranges(scene.provider) <= COMMITS + 2


class FourAtOnce(Wrapped):
    """In the middle, four ranges of commits are answered when all of them were asked for."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._four = threading.Barrier(4)
        self._asked = itertools.count(1)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        if "/commit/" in key and start is not None and start >= 0 and next(self._asked) in range(20, 24):
            self._four.wait(60)
        return self.inner.get(key, start, length)


def test_adjacent_commits_are_fetched_at_once(scene: Cold) -> None:
    saved(scene)
    slow = FourAtOnce(scene.provider)
    with ThreadPoolExecutor(16) as pool:
        store = scene.open(provider=CommitCache(slow, KEYS, MIB), whole_bytes=WHOLE_BYTES, pool=pool)
        assert read_through(store) == scene.raws("Orders")
        store.close()
        scene.stores.remove(store)


def test_the_cache_is_bounded_and_never_answers_whether_a_commit_is_there(scene: Cold) -> None:
    kept = CommitCache(scene.provider, KEYS, 4 * KIB)
    whole = {}
    for seq in range(1, COMMITS):
        whole[seq] = kept.get(KEYS.commit(seq), -256 * KIB).data
    assert sum(len(k.data) for k in kept._kept.values()) <= 4 * KIB
    scene.provider.calls.clear()
    last = COMMITS - 1
    assert kept.get(KEYS.commit(last), 10, 50).data == whole[last][10:60]
    assert ranges(scene.provider) == 0
    assert kept.get(KEYS.commit(1), 10, 50).data == whole[1][10:60]
    assert ranges(scene.provider) == 1, "it had to go"
    kept.get(KEYS.commit(last), -256 * KIB)
    assert ranges(scene.provider) == 1, "a suffix always asks the store"
    size = len(whole[last])
    assert kept.get(KEYS.commit(last), size - 5, 50).data == whole[last][-5:]
    assert ranges(scene.provider) == 1, "a range past its end is the store's to answer"


def test_only_commits_are_kept() -> None:
    store = memory()
    store.put("other", [b"x" * 100])
    kept = CommitCache(store, KEYS, MIB)
    for _ in range(2):
        assert kept.get("other", 0, 100).data == b"x" * 100
    assert store.calls.count(("get", "other")) == 2
