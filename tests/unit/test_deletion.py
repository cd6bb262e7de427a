"""Batches of deletions of which one key fails the request for all: what is refused, and what it holds back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from tiered.archive.rewrite.deletion import FAILED_REQUESTS, Deletion
from tiered.clock import ManualClock
from tiered.errors import Invalid, TieredError, Unavailable
from tiered.provider.base import Capabilities
from tiered.provider.memory import MemoryProvider
from tiered.provider.wrap import Wrapped

BATCH = 1000
Kind = Callable[..., TieredError]


class Touchy(Wrapped):
    """A store that deletes nothing of a batch that has one of ``bad`` in it. ``shared``: it raises no error, and gives it
    to all keys. ``kind``: the error."""

    def __init__(self, bad: Collection[str] = (), kind: Kind = Invalid, *, shared: bool = False) -> None:
        super().__init__(MemoryProvider("", ManualClock()))
        self.bad, self.kind, self.shared = set(bad), kind, shared
        self.asked: list[int] = []

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, delete_keys=BATCH)

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        self.asked.append(len(keys))
        if found := self.bad & set(keys):
            error = self.kind("the store deletes none of these", key=min(found))
            if not self.shared:
                raise error
            return dict.fromkeys(keys, error)
        return self.inner.delete_many(keys)


def filled(store: Touchy, count: int) -> list[str]:
    keys = [f"data/{number:06}" for number in range(count)]
    for key in keys:
        store.inner.put(key, [b"x"], create_only=False)
    return keys


def left(store: Touchy) -> list[str]:
    return [found.key for found in store.list("data/")]


@pytest.mark.parametrize("shared", [False, True], ids=["raised", "given to all"])
@pytest.mark.parametrize("at", [0, 1, 499, 500, 999])
def test_a_key_that_fails_the_request_for_all_is_found_and_holds_back_only_itself(
    at: int, shared: bool
) -> None:
    bad = f"data/{at:06}"
    store = Touchy([bad], shared=shared)
    keys, deletion = filled(store, 3 * BATCH), Deletion(store, 2)
    failed = deletion.delete(keys)
    assert list(failed) == left(store) == [bad]
    assert failed[bad].fields["key"] == bad
    assert len(store.asked) <= 3 + 20
    store.asked.clear()
    assert list(deletion.delete(filled(store, BATCH))) == [bad]
    assert sorted(store.asked) == [1, BATCH - 1], "never again together with others"
    store.bad.clear()
    assert deletion.delete([bad]) == {}
    assert deletion._alone == set()


@pytest.mark.parametrize("kind", [Invalid, Unavailable])
def test_a_store_that_deletes_nothing_is_asked_a_few_times_and_not_for_each_key(kind: Kind) -> None:
    keys = [f"data/{number:06}" for number in range(4 * BATCH)]
    store = Touchy(keys, kind)
    deletion = Deletion(store, 1)
    for _ in range(3):
        store.asked.clear()
        assert deletion.delete(filled(store, len(keys))).keys() == set(keys)
        tried_alone = store.asked.count(1)
        assert len(store.asked) - tried_alone <= FAILED_REQUESTS + 4 * BATCH // deletion._at_once
        assert tried_alone <= 3 * FAILED_REQUESTS
    assert left(store) == keys


def test_keys_over_which_a_store_breaks_down_hold_back_the_others_for_some_rounds_at_most() -> None:
    """As long as a store answers nothing at all nobody knows whether it is away."""
    bad = [f"data/{number:06}" for number in range(100, BATCH, 200)]
    store = Touchy(bad, Unavailable)
    filled(store, BATCH)
    deletion = Deletion(store, 1)
    deletion.delete(left(store))
    assert len(left(store)) > len(bad)
    for _ in range(10):
        deletion.delete(left(store))
    assert left(store) == bad


def test_a_store_that_says_so_and_deletes_nothing_is_not_believed() -> None:
    class Locked(Touchy):
        def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
            return {}

    store = Locked()
    keys = filled(store, 3)
    failed = Deletion(store, 1).delete(keys)
    assert sorted(failed) == keys
    assert "lock or retention rule" in str(failed[keys[0]])
