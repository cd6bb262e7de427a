"""Bytes before pointers, one commit after the other, the hold last; and what a failure does to the line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.assemble import KEYS, Assembly, Counting, assemble
from tests.kit.pipeline import Crafted
from tiered import crashpoint
from tiered.archive.log.writer import Claim
from tiered.archive.state.keys import DISPATCH
from tiered.archive.state.view import dispatch_offsets
from tiered.clock import ManualClock
from tiered.crashpoint import CrashPoint
from tiered.errors import Conflict, Fenced, TieredError, Unavailable
from tiered.model import MessageQueue

OBJECTS = {
    "pipeline_flushes": 2,
    "inline_bytes": 0,
    "group_commit_count": 10,
    "object_bytes": 65_536,
    "block_bytes": 4096,
}


@pytest.fixture
def daemon(tmp_path: Path, store: Counting, clock: ManualClock) -> Iterator[Assembly]:
    broker = Crafted(tmp_path / "store", file_bytes=1 << 20)
    for number in range(40):
        broker.send(queue_id=number % 2, body=bytes([number]) * 3000)
    made = assemble(broker.store, store, clock, dispatch=OBJECTS)
    made.proven.clear()
    made.line.committing = False
    yield made
    made.close()


def submit(daemon: Assembly, flushes: int) -> None:
    """Put flushes in line without proving them."""
    while daemon.line.pending()[0] < 10 * flushes:
        daemon.dispatcher.step()


def test_objects_then_commit_then_cache_then_release(
    daemon: Assembly, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    put_many, release = daemon.log.store.put_many, daemon.source.release
    names = {
        CrashPoint.AFTER_OBJECTS,
        CrashPoint.AFTER_COMMIT,
        CrashPoint.AFTER_METADATA,
        CrashPoint.AFTER_RELEASE,
    }

    def cache(puts: Any, deletes: Any = (), **kw: Any) -> None:
        events.append("cache" if kw.get("applied") else "dispatch offsets")
        put_many(puts, deletes, **kw)

    monkeypatch.setattr(daemon.log.store, "put_many", cache)
    monkeypatch.setattr(daemon.line, "_release", lambda up_to: events.append("release") or release(up_to))
    crashpoint.install(lambda point: events.append(point.name) if point in names else None)
    try:
        store.calls.clear()
        submit(daemon, 1)
        daemon.line.step(0)
    finally:
        crashpoint.install(None)
    assert events == [
        "dispatch offsets", "AFTER_OBJECTS", "AFTER_COMMIT", "cache", "AFTER_METADATA", "release", "AFTER_RELEASE",
    ]  # fmt: skip
    puts = [key for verb, key in store.calls if verb == "put"]
    assert len(puts) >= 2
    assert all("/data/" in key for key in puts[:-1])
    assert puts[-1] == KEYS.commit(daemon.proven[0].commit.commit.seq)


def test_dispatch_offsets_run_ahead_of_commit_offsets(daemon: Assembly, store: Counting) -> None:
    submit(daemon, 2)
    queue = MessageQueue("Orders", 0)
    before = daemon.state.queue(queue)
    daemon.log.store.put_many([(DISPATCH, b"as an earlier version kept them")])
    store.say(*["dropped"] * 3)
    daemon.give_up.set()
    with pytest.raises(TieredError):
        daemon.line.step(0)
    assert daemon.log.store.get_many([DISPATCH]) == [None]
    offsets, known = dispatch_offsets(daemon.state.view, ["Orders", "Orders"], np.array([0, 1]))
    assert known.all()
    assert offsets.tolist() == [5, 5]
    assert daemon.state.queue(queue) == before


def test_commits_are_proven_in_order(daemon: Assembly) -> None:
    submit(daemon, 2)
    assert daemon.line.pending() == (20, sum(p.flush.raw_bytes for p in daemon.line._settled))
    assert not daemon.line.room
    assert not daemon.line.idle
    assert daemon.line.wait_for_room(0) is False
    assert daemon.line.wait_idle(0) is False
    assert daemon.commit_all() == 2
    assert daemon.line.idle
    assert daemon.line.wait_idle(0)
    seqs = [p.commit.commit.seq for p in daemon.proven]
    assert seqs == [seqs[0], seqs[0] + 1]
    assert daemon.proven[0].store_time_ms == daemon.clock.now_ms()
    assert daemon.line.step(0) is False


def test_a_store_that_is_away_is_waited_for(daemon: Assembly, store: Counting) -> None:
    while not daemon.dispatcher.buffer.due(daemon.clock.monotonic()):
        daemon.dispatcher.step()
    # put_own itself tries a few rounds, with a read-back each
    store.say(*[Unavailable("away")] * 4)
    daemon.dispatcher.step()
    assert daemon.heard.resent, "somebody heard of it"
    assert daemon.clock.monotonic() > 0
    daemon.settle()
    assert sum(len(v) for v in daemon.rows().values()) == 40


def test_giving_up_ends_the_line(daemon: Assembly, store: Counting) -> None:
    while not daemon.dispatcher.buffer.due(daemon.clock.monotonic()):
        daemon.dispatcher.step()
    store.say(*[Unavailable("away")] * 20)
    daemon.give_up.set()
    daemon.dispatcher.step()
    head = daemon.state.head()
    with pytest.raises(TieredError, match="away"):
        daemon.line.step(0)
    assert daemon.state.head() == head
    for ask in (
        lambda: daemon.line.room,
        lambda: daemon.line.idle,
        lambda: daemon.line.wait_for_room(0),
        lambda: daemon.line.wait_idle(0),
    ):
        with pytest.raises(TieredError, match="away"):
            ask()


def test_an_object_key_that_is_taken_stops_everything(daemon: Assembly, store: Counting) -> None:
    while not daemon.dispatcher.buffer.due(daemon.clock.monotonic()):
        daemon.dispatcher.step()
    store.say(Conflict("exists"))
    monkey = store.inner

    def other(key: str, start: int | None = None, length: int | None = None) -> Any:
        monkey.put(key, [b"somebody else's"])
        return type(monkey).get(monkey, key, start, length)

    store.get = other  # type: ignore[method-assign]
    daemon.dispatcher.step()
    with pytest.raises(Conflict):
        daemon.line.step(0)


def test_a_fence_reaches_the_dispatcher(daemon: Assembly, store: Counting, clock: ManualClock) -> None:
    from tests.kit.assemble import open_log

    submit(daemon, 1)
    rival = open_log(store, clock, writer=b"B" * 16, seed=9)
    rival.claim(Claim(lineage=1, host="rival"), 0, before_try=lambda head: None)
    with pytest.raises(Fenced):
        daemon.line.step(0)
    with pytest.raises(Fenced):
        daemon.dispatcher.step()
    assert daemon.proven == []


def test_an_unexpected_failure_is_told_as_one(daemon: Assembly, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(daemon, 1)
    monkeypatch.setattr(daemon.log, "put", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        daemon.line.step(0)
    with pytest.raises(RuntimeError, match="the committer died"):
        _ = daemon.line.room


def test_a_waiting_dispatcher_is_woken_by_the_failure(
    daemon: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(daemon, 2)
    monkeypatch.setattr(daemon.log, "put", lambda *_: 1 / 0)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            daemon.line.wait_for_room(60)
        except RuntimeError as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.raises(ZeroDivisionError):
        daemon.line.step(0)
    waiting.join(10)
    assert not waiting.is_alive()
    assert len(caught) == 1
