"""Ranges that are asked for before they are wanted: in order, so many at once, none twice, and nothing that was left out is
waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Ranges
from tiered.archive.read.blockwindow import ContentStep
from tiered.archive.read.coming import Coming
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.held import Range
from tiered.clock import ManualClock
from tiered.errors import NotFound
from tiered.provider.memory import MemoryProvider

SIZE = 100


@pytest.fixture
def store() -> Ranges:
    inner = MemoryProvider("coming", ManualClock())
    for name in "abcdef":
        inner.put(name, [name.encode() * SIZE])
    return Ranges(inner)


@pytest.fixture
def coming(store: Ranges) -> Iterator[Coming]:
    made = Coming(store, lambda byte_count: None, 3)
    yield made
    made.end()


def whole(name: str) -> Range:
    return name, 0, SIZE


def look(coming: Coming, name: str) -> bytes:
    """An object that is read at once."""
    coming.begin(whole(name))
    coming.expect_parts(())
    found = bytes(coming.fetch(*whole(name)))
    coming.forget(name)
    return found


def test_objects_come_in_order_each_once(store: Ranges, coming: Coming) -> None:
    coming.expect(map(whole, "abcdef"))
    assert b"".join(look(coming, name) for name in "abcdef") == b"".join(n.encode() * SIZE for n in "abcdef")
    assert sorted(key for key, _, _ in store.gets) == list("abcdef")


def test_so_many_are_under_way_at_once(store: Ranges, coming: Coming) -> None:
    together = threading.Barrier(3, timeout=10)
    store.gate = lambda key, start, length: together.wait() and None
    coming.expect(map(whole, "abcdef"))
    for name in "abcdef":  # each waits for two more: with fewer the barrier would break
        look(coming, name)
    assert store.most_flying == 3


def test_what_was_left_out_is_passed_over(store: Ranges, coming: Coming) -> None:
    store.inner.delete("b")
    coming.expect(map(whole, "abcdef"))
    threads = set[str]()
    store.gate = lambda key, start, length: threads.add(threading.current_thread().name)
    assert [look(coming, name)[:1] for name in "adf"] == [b"a", b"d", b"f"]
    assert all(name.startswith("ahead") for name in threads), (
        "none is asked for a second time, by the asking thread"
    )
    with pytest.raises(NotFound):
        look(coming, "b")


def test_parts_come_before_the_next_object(store: Ranges, coming: Coming) -> None:
    coming.expect(map(whole, "bc"))
    parts = [("a", at, at + 10) for at in range(0, 80, 10)]
    coming.begin(("a", 80, SIZE))
    assert bytes(coming.fetch("a", 80, SIZE)) == b"a" * 20
    assert [key for key, _, _ in store.gets] == ["a"], (
        "nothing of others before it is known what is left of this one"
    )
    coming.expect_parts(parts)
    assert b"".join(bytes(coming.read(*part)) for part in parts) == b"a" * 80
    coming.forget("a")
    assert [look(coming, name)[:1] for name in "bc"] == [b"b", b"c"]
    assert sorted(store.gets) == sorted(
        [("a", 80, 20), *(("a", at, 10) for _, at, _ in parts), ("b", 0, SIZE), ("c", 0, SIZE)]
    )


def test_parts_of_every_large_object_are_asked_for_ahead_and_once(store: Ranges, coming: Coming) -> None:
    small, large = "abd", "cef"
    parts = [(at, at + 10) for at in range(0, 80, 10)]
    coming.expect(whole(name) if name in small else (name, 80, SIZE) for name in "abcdef")
    threads = set[str]()
    store.gate = lambda key, start, length: threads.add(threading.current_thread().name)
    for name in "abcdef":
        if name in small:
            assert look(coming, name) == name.encode() * SIZE
            continue
        coming.begin((name, 80, SIZE))
        coming.fetch(name, 80, SIZE)
        coming.expect_parts((name, *part) for part in parts)
        assert b"".join(bytes(coming.read(name, *part)) for part in parts) == name.encode() * 80
        coming.forget(name)
    assert all(name.startswith("ahead") for name in threads)
    asked = [whole(name) for name in small] + [(name, 80, 20) for name in large]
    asked += [(name, at, 10) for name in large for at, _ in parts]
    assert sorted(store.gets) == sorted(asked), "nothing twice"


def test_parts_of_a_forgotten_object_are_not_asked_for(store: Ranges, coming: Coming) -> None:
    coming.begin(("a", 80, SIZE))
    coming.fetch("a", 80, SIZE)
    coming.expect_parts([("a", at, at + 10) for at in range(0, 80, 10)])
    coming.read("a", 0, 10)
    coming.forget("a")
    coming.expect(map(whole, "b"))
    assert look(coming, "b") == b"b" * SIZE
    assert len([key for key, _, _ in store.gets if key == "a"]) <= 1 + 3


def test_what_is_held_is_not_asked_for_as_a_part(store: Ranges, coming: Coming) -> None:
    coming.begin(whole("a"))
    coming.fetch(*whole("a"))
    coming.expect_parts([("a", 0, 50), ("a", 50, SIZE)])
    assert bytes(coming.read("a", 50, SIZE)) == b"a" * 50
    assert len(store.gets) == 1


def test_alone_it_asks_when_it_is_asked(store: Ranges) -> None:
    threads = set[str]()
    store.gate = lambda key, start, length: threads.add(threading.current_thread().name)
    alone = Coming(store, lambda byte_count: threads.add(threading.current_thread().name), 1)
    alone.expect(map(whole, "abc"))
    look(alone, "a")
    assert [key for key, _, _ in store.gets] == ["a"]
    assert threads == {threading.current_thread().name}
    alone.end()


def test_windows_of_two_objects_are_checked_at_once(store: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are done, and what lies between two windows, keep neither from a thread; what was found comes in order."""
    together = threading.Barrier(2, timeout=10)
    told, quick, slow = (ContentStep(bytes=number) for number in (1, 2, 3))

    def window() -> tuple[ContentStep]:
        together.wait()
        return (slow,)

    def parts(self: ContentCheck, item: Any, runs: object) -> Iterator[object]:
        yield from (told, lambda: (quick,), window)

    monkeypatch.setattr(ContentCheck, "_parts", parts)
    check = ContentCheck(store, KEYS, bytes(16), records=True)
    objects: list[Any] = [SimpleNamespace(path=name) for name in "ab"]
    found = list(check.each(((item, ()) for item in objects), 2))
    seen = [(item.path, None if steps is None else [step.bytes for step in steps]) for item, steps in found]
    assert seen == [(name, steps) for name in "ab" for steps in ([1], [2], [3], None)]
