"""Opening for writing: who waits for whom, which comparison counts, where an archive begins, what a rewind commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import KEYS, Assembly, Counting, assemble, memory, progress_of
from tests.kit.pipeline import Crafted
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.errors import Refused
from tiered.model import MessageQueue
from tiered.opening.lineage import Relation

ORDERS = MessageQueue("Orders", 0)
A, B = b"A" * 16, b"B" * 16


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    made = Crafted(tmp_path / "store", file_bytes=1 << 20)
    for number in range(20):
        made.send(body=b"number-%02d" % number)
    return made


def check(broker: Crafted, assembly: Assembly) -> None:
    expected = {
        q: [(r.generation, r.queue_offset, r.raw) for r in v.rows] for q, v in broker.oracle().queues.items()
    }
    assert assembly.rows() == expected


def test_a_restart_of_the_same_writer_never_waits(
    broker: Crafted, store: Counting, clock: ManualClock
) -> None:
    first = assemble(broker.store, store, clock)
    first.settle()
    first.close()
    before = clock.monotonic()
    again = assemble(broker.store, store, clock, seed=2)
    assert clock.monotonic() == before
    assert again.opened.outcome.relation is Relation.SAME
    again.close()


def test_a_foreign_writer_waits_until_the_head_is_old_and_meets_what_was_written_meanwhile(
    broker: Crafted, store: Counting, clock: ManualClock
) -> None:
    """What the other one archived during the wait is not archived again."""
    first = assemble(broker.store, store, clock)
    first.settle()
    rounds: list[int] = []

    def meanwhile() -> bool:
        rounds.append(1)
        if len(rounds) in (10, 30):  # the owner is alive: a flush now and then
            for number in range(5):
                broker.send(body=b"meanwhile-%d-%d" % (len(rounds), number))
            first.settle(3.0)
        return False

    began = clock.monotonic()
    second = assemble(broker.store, store, clock, writer=B, seed=2, stopping=meanwhile)
    assert clock.monotonic() - began > 60, "the wait began anew with each of the owner's commits"
    assert [m for m, _ in second.said].count(
        "another writer owns the archive: waiting until it is silent"
    ) == 1
    assert second.opened.position == progress_of(first) == broker.position
    broker.send(body=b"after")
    second.settle()
    check(broker, second)
    head = second.state.head()
    assert head is not None
    assert (head.epoch, head.writer_id) == (2, B)
    first.close()
    second.close()


def test_take_over_does_not_wait(broker: Crafted, store: Counting, clock: ManualClock) -> None:
    first = assemble(broker.store, store, clock)
    first.settle()
    before = clock.monotonic()
    second = assemble(broker.store, store, clock, writer=B, seed=2, take_over=True)
    assert clock.monotonic() == before
    assert second.opened.position == broker.position
    for one in (first, second):
        one.close()


def test_stopping_ends_the_wait(broker: Crafted, store: Counting, clock: ManualClock) -> None:
    first = assemble(broker.store, store, clock)
    first.settle()
    head = first.state.head()
    asked: list[int] = []

    def stop_soon() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(Refused, match="stopped while waiting"):
        assemble(broker.store, store, clock, writer=B, seed=2, stopping=stop_soon)
    assert ArchiveState(first.log.store).head() == head
    assert first.log.reader.read(head.seq + 1) is None  # type: ignore[union-attr]
    first.close()


def test_a_put_of_the_former_run_lands_after_the_comparison(
    broker: Crafted, store: Counting, clock: ManualClock
) -> None:
    """The comparison that counts is made on the fold that the epoch was opened on: nothing is archived twice."""
    first = assemble(broker.store, store, clock)
    first.settle()
    for number in range(7):
        broker.send(body=b"in-flight-%d" % number)
    while not first.line.pending()[0]:
        first.clock.advance(max(first.dispatcher.step(), 0.3))
    late = first.line._settled[0].commit
    first.close()  # killed with this put in flight
    landed: list[int] = []

    def land(message: str) -> None:
        if message.startswith("compared") and not landed:
            landed.append(1)
            store.put(KEYS.commit(late.commit.seq), late.parts)

    again = assemble(broker.store, store, clock, seed=2, on_say=land)
    assert landed
    assert again.opened.position == late.changes.head.progress[1].physical_offset
    again.settle()
    check(broker, again)
    assert again.state.queue(ORDERS).highest_generation == 1  # type: ignore[union-attr]
    again.close()


def test_where_an_empty_archive_begins(broker: Crafted, clock: ManualClock) -> None:
    for start, first in (
        ("earliest", 0),
        ("latest", 20),
        (str(broker.time_ms + 1), 20),
        (str(broker.time_ms), 0),
    ):
        store = memory(clock)
        one = assemble(broker.store, store, clock, source={"start": start})
        one.settle()
        rows = one.rows().get(ORDERS, [])
        assert [o for _, o, _ in rows] == list(range(first, 20)), start
        one.close()


def test_latest_does_not_move_when_the_daemon_restarts_before_its_first_flush(
    broker: Crafted, store: Counting, clock: ManualClock
) -> None:
    first = assemble(broker.store, store, clock, source={"start": "latest"})
    first.close()
    for _ in range(5):
        broker.send(body=b"later")
    again = assemble(broker.store, store, clock, seed=2, source={"start": "latest"})
    again.settle()
    assert [o for _, o, _ in again.rows()[ORDERS]] == [20, 21, 22, 23, 24]
    again.close()


def test_latest_on_a_broker_that_then_lost_its_tail(
    broker: Crafted, store: Counting, clock: ManualClock
) -> None:
    """Nothing was archived, so nothing can be lost by going back with the broker: no reason to refuse it."""
    first = assemble(broker.store, store, clock, source={"start": "latest"})
    first.close()
    cut = broker.sent[15][0].physical_offset
    broker.crash(cut)
    broker.write(cut, bytes(2000))
    again = assemble(broker.store, store, clock, seed=2, source={"start": "latest"})
    for _ in range(5):
        broker.send(body=b"later")
    again.settle()
    assert [o for _, o, _ in again.rows()[ORDERS]] == [15, 16, 17, 18, 19]
    again.close()


def run_number(assembly: Assembly) -> int:
    head = assembly.state.head()
    assert head is not None
    return head.epoch


def test_epochs_count_up(broker: Crafted, store: Counting, clock: ManualClock) -> None:
    for number in range(1, 5):
        one = assemble(broker.store, store, clock, seed=number)
        one.settle()
        assert run_number(one) == number
        one.close()
    assert [g.generation for g in one.state.generations(ORDERS)] == [1]


@pytest.mark.parametrize("marks", ["matched below", "none"])
def test_the_mark_of_a_rewind_is_over_the_brokers_own_bytes(
    broker: Crafted, store: Counting, clock: ManualClock, marks: str
) -> None:
    """After a rewind the next start must match exactly there."""
    first = assemble(broker.store, store, clock)
    if marks == "matched below":
        first.settle()
        for number in range(10):
            broker.send(body=b"second-%d" % number)
    first.settle()
    first.close()
    cut = broker.sent[-4][0].physical_offset
    broker.crash(cut)
    for number in range(3):
        broker.send(body=b"rewritten-%d" % number)
    second = assemble(broker.store, store, clock, seed=2)
    assert second.opened.outcome.relation is Relation.REWIND
    assert (second.opened.outcome.matched is None) == (marks == "none")
    assert second.opened.mark.offset == cut
    second.close()
    third = assemble(broker.store, store, clock, seed=3)
    outcome = third.opened.outcome
    assert outcome.relation is Relation.SAME
    assert outcome.matched is not None
    assert outcome.matched.physical_offset == cut, "the rewind's own mark is evidence"
    third.settle()
    assert [raw for _, _, raw in third.rows()[ORDERS]] == [raw for _, raw in broker.sent]
    third.close()


def test_opening_says_what_it_found(broker: Crafted, store: Counting, clock: ManualClock) -> None:
    one = assemble(broker.store, store, clock)
    said: dict[str, Any] = one.said[0][1]
    assert (said["relation"], said["lineage"]) == ("fresh", 0)
    one.close()
