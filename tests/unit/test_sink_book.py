"""Sinks' standing orders: added once, changed by revisions, removed; a look reads nothing twice."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.kit.assemble import KEYS
from tiered.archive.keys import SINK_PREFIX
from tiered.archive.standing import SINK, put_order
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, NotFound, Unavailable
from tiered.provider.memory import MemoryProvider
from tiered.sink.book import MAX_SINKS, SinkBook, SinkRewind
from tiered.sink.order import SinkOrder

ARCHIVE_ID = bytes(range(16))
ORDERS = SinkOrder(
    "orders", "file", {"url": "file:///out"}, topics=("Order*",), exclude=("*-test",), required=True
)


@pytest.fixture
def provider() -> MemoryProvider:
    return MemoryProvider("", ManualClock())


@pytest.fixture
def book(provider: MemoryProvider) -> SinkBook:
    return SinkBook(provider, KEYS, ARCHIVE_ID)


def test_an_order_comes_back_as_it_was_put(book: SinkBook, provider: MemoryProvider) -> None:
    made = book.add(ORDERS, 5, os.urandom)
    assert SinkBook(provider, KEYS, ARCHIVE_ID).sinks() == [made]
    assert (made.order, made.revision, made.paused, made.anew) == (ORDERS, 1, False, 0)


def test_changes_keep_the_sink_and_all_else(book: SinkBook) -> None:
    made = book.add(ORDERS, 5, os.urandom)
    book.change("orders", 6, os.urandom, paused=True)
    book.change("orders", 7, os.urandom, order=replace(ORDERS, topics=("*",)))
    book.change("orders", 8, os.urandom, rewind=True, rewind_ms=77)
    (found,) = book.sinks()
    assert found.sink_id == made.sink_id
    assert (found.paused, found.order.topics, found.order.exclude) == (True, ("*",), ("*-test",))
    assert (found.rewind, found.anew, found.revision) == (SinkRewind(4, 77), 4, 4)
    assert not book.change("orders", 9, os.urandom, paused=False).paused
    assert book.sink("orders").anew == 4, "a rewind stays the last one"


def test_a_name_is_taken_until_it_is_removed(book: SinkBook) -> None:
    first = book.add(ORDERS, 5, os.urandom)
    with pytest.raises(Conflict, match="of this name"):
        book.add(ORDERS, 6, os.urandom)
    assert book.remove("orders") == first
    assert book.sinks() == []
    assert book.add(ORDERS, 7, os.urandom).sink_id != first.sink_id
    with pytest.raises(NotFound, match="did you mean orders"):
        book.sink("order")


def test_of_two_that_were_made_at_one_moment_the_first_counts(
    book: SinkBook, provider: MemoryProvider
) -> None:
    first = book.add(ORDERS, 5, os.urandom)
    other = SinkBook(provider, KEYS, ARCHIVE_ID)
    other._put(b"\xff" * 16, replace(first, sink_id=b"\xff" * 16, made_ms=9, created_ms=9))
    assert [stored.sink_id for stored in other.sinks()] == [first.sink_id]
    other.change("orders", 10, os.urandom, paused=True)
    assert [stored.sink_id for stored in other.sinks()] == [first.sink_id]


def test_a_sink_that_is_not_listed_any_more_is_not_removed(
    book: SinkBook, provider: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing deletes an order: a listing without it is a store's that lists no more what it has."""
    made = book.add(ORDERS, 5, os.urandom)
    with monkeypatch.context() as patch:
        patch.setattr(provider, "list", lambda *_, **__: iter(()))
        with pytest.raises(Unavailable, match="does not list"):
            book.sinks()
    assert book.sinks() == [made]
    for stored in list(provider.list(KEYS.key(SINK_PREFIX))):
        provider.delete(stored.key)
    assert book.sinks() == [], "somebody took it away by hand"


def test_sinks_are_bounded(book: SinkBook) -> None:
    for number in range(MAX_SINKS):
        book.add(SinkOrder(f"s{number}", "file"), number, os.urandom)
    with pytest.raises(Conflict, match="no more sinks"):
        book.add(SinkOrder("one-more", "file"), 99, os.urandom)


def test_a_look_reads_no_order_twice(
    book: SinkBook, provider: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        book.add(SinkOrder(name, "file"), 1, os.urandom)
    book.sinks()
    monkeypatch.setattr(provider, "get", None)
    assert [stored.name for stored in book.sinks()] == ["a", "b"]


def test_an_order_that_cannot_be_read_is_said(book: SinkBook, provider: MemoryProvider) -> None:
    book.add(ORDERS, 5, os.urandom)
    (stored,) = provider.list(KEYS.key(SINK_PREFIX))
    provider.put(stored.key, [b"no line\n"], create_only=False)
    with pytest.raises(Corrupt, match="cannot be read"):
        SinkBook(provider, KEYS, ARCHIVE_ID).sinks()
    provider.delete(stored.key)
    put_order(provider, KEYS, ARCHIVE_ID, SINK, bytes(16), {"created_ms": 1, "revision": 1})
    with pytest.raises(Corrupt, match="makes no sense"):
        SinkBook(provider, KEYS, ARCHIVE_ID).sinks()
