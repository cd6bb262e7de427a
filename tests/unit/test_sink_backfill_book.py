"""A backfill as it stands in the bucket: what is read is what was put, what does not fit is refused, what is left goes."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.kit.assemble import KEYS, memory
from tiered.archive.state.offsetmap import OffsetMap, map_of_runs
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, Invalid
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.sink.backfill import (
    MAX_MAPS_BYTES,
    MAX_PART_QUEUES,
    BackfillBook,
    BackfillDone,
    BackfillPlan,
    QueueRange,
    check_joins,
)
from tiered.sink.book import SinkBook
from tiered.sink.ending import end_backfill
from tiered.sink.keptmaps import map_of_text, map_text
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder
from tiered.sink.required import required_sinks

ARCHIVE, SINK = b"\1" * 16, b"\2" * 16
ORDERS, BILLS = MessageQueue("Orders", 0), MessageQueue("Bills", 3)
PLAN = BackfillPlan(b"\3" * 16, b"\4" * 16, SINK, 2, 30, 7, 2, 6, 1, 1, 5)
PARTS = [[QueueRange(ORDERS, 0, 20, 1)], [QueueRange(BILLS, 5, 15, 2)]]


@pytest.fixture
def book() -> BackfillBook:
    return BackfillBook(memory(ManualClock()), KEYS, ARCHIVE)


def a_map(runs: int, start: int = 0) -> OffsetMap:
    """So many runs that cannot be joined: something lies between every two."""
    columns = {
        "first": [start + 977 * at for at in range(runs)],
        "messages": [977] * runs,
        "target_offset": [1_000_003 * at for at in range(runs)],
    }
    return map_of_runs(start, start + 977 * runs, "topic", "id", 3, columns)


def test_what_is_put_is_read(book: BackfillBook) -> None:
    assert book.plan(PLAN.backfill_id) is None
    assert book.put_plan(PLAN, PARTS) == PLAN
    assert book.plan(PLAN.backfill_id) == PLAN
    other = replace(PLAN, plan_id=b"\5" * 16, commit=9)
    assert book.put_plan(other, PARTS) == PLAN, "the first counts"
    assert [book.ranges(PLAN, number) for number in (0, 1)] == [tuple(part) for part in PARTS]
    assert book.done(PLAN) == {}
    done = BackfillDone(1, {BILLS: Follow(15, 900)}, 10, 1, 2, 3, {BILLS: a_map(3, 5)})
    book.put_done(PLAN, done, 8)
    book.put_done(PLAN, replace(done, lost=0), 9)  # another attempt that reached the same
    with pytest.raises(Conflict):
        book.put_done(PLAN, replace(done, reached={BILLS: Follow(14, 800)}), 9)
    [(number, found)] = book.done(PLAN).items()
    assert (number, found.reached, found.messages, found.lost) == (1, done.reached, 10, 1)
    assert (found.dead_letters, found.left_out) == (2, 3)
    assert map_text(found.maps[BILLS]) == map_text(done.maps[BILLS])


def test_of_two_jobs_the_later_gives_the_parts(book: BackfillBook) -> None:
    book.put_plan(PLAN, PARTS)
    first = book.begin_job(PLAN, b"\6" * 16, 5)
    book.check_job(PLAN, first)
    second = book.begin_job(PLAN, b"\7" * 16, 5)
    assert (first, second) == (1, 2)
    with pytest.raises(Conflict, match="a later job gives this backfill's parts"):
        book.check_job(PLAN, first)
    book.check_job(PLAN, second)
    other = replace(PLAN, plan_id=b"\5" * 16)
    assert book.begin_job(other, b"\6" * 16, 5) == 1, "of a plan"
    assert book.done(PLAN) == {}
    assert book.sweep(lambda sink_id, backfill_id: False) > 3
    assert book.begin_job(PLAN, b"\6" * 16, 5) == 1, "what is left of jobs goes with the rest"


def test_two_jobs_that_begin_at_the_same_moment_get_numbers_of_their_own(
    book: BackfillBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.begin_job(PLAN, b"\6" * 16, 5)
    monkeypatch.setattr("tiered.sink.backfill.list_orders", lambda *of: {})  # as it was a moment ago
    assert book.begin_job(PLAN, b"\7" * 16, 5) == 2


def test_maps_of_many_queues_fit_one_object(book: BackfillBook) -> None:
    """Each gets wider runs, whose ends stay exact, so that the whole stays as small as it must."""
    queues = [MessageQueue("\udcff" * 120, number) for number in range(MAX_PART_QUEUES)]
    maps = {queue: a_map(128) for queue in queues}
    book.put_plan(PLAN, [[QueueRange(queue, 0, 125_056) for queue in queues], PARTS[1]])
    book.put_done(PLAN, BackfillDone(0, {q: Follow(125_056, 1) for q in queues}, maps=maps), 8)
    found = book.done(PLAN)[0].maps
    assert sum(len(map_text(told)) for told in found.values()) <= 2 * MAX_MAPS_BYTES
    for told in found.values():
        assert (told.start, told.end, int(told.target_ends[-1])) == (0, 125_056, 1_000_003 * 127 + 977)
        assert told.locate(0) == maps[queues[0]].locate(0)


def test_what_is_damaged_says_so(book: BackfillBook) -> None:
    book.put_plan(PLAN, PARTS)
    with pytest.raises(Corrupt):
        book.ranges(replace(PLAN, sink_id=b"\6" * 16), 0)
    with pytest.raises(Corrupt):
        map_of_text("no map")


def test_what_nobody_needs_is_deleted(book: BackfillBook) -> None:
    other = replace(PLAN, backfill_id=b"\7" * 16, plan_id=b"\x08" * 16)
    book.put_plan(PLAN, PARTS)
    book.put_plan(other, PARTS)
    book.put_done(PLAN, BackfillDone(0, {ORDERS: Follow(20, 1)}), 8)
    assert book.sweep(lambda sink_id, backfill: (sink_id, backfill) == (SINK, other.backfill_id)) == 4
    assert book.plan(PLAN.backfill_id) is None
    assert book.done(PLAN) == {}
    assert book.ranges(other, 1) == tuple(PARTS[1])


def test_retention_waits_while_a_history_is_given() -> None:
    """Nothing that the tasks are to read goes; and no longer than that."""
    provider = memory(ManualClock())
    book, waits = SinkBook(provider, KEYS, ARCHIVE), required_sinks(provider, KEYS, ARCHIVE)
    stored = book.add(SinkOrder("copy", "file", {"location": "file:///out"}), 1, os.urandom)
    assert waits() == []
    book.change("copy", 2, os.urandom, backfill_id=PLAN.backfill_id)
    assert [(each.sink_id, each.takes("Orders")) for each in waits()] == [(stored.sink_id, True)]
    with pytest.raises(Conflict):
        book.change("copy", 3, os.urandom, backfilled=b"\x0a" * 16)
    book.change("copy", 4, os.urandom, backfilled=PLAN.backfill_id)
    assert waits() == []
    found = book.sink("copy").backfill
    assert found is not None
    assert (found.asked, found.done) == (2, 3)
    assert book.change("copy", 5, os.urandom, rewind=True).backfill is None, "a rewind ends it"


def test_one_that_has_not_planned_is_ended_as_if_it_had_not_been_asked_for(book: BackfillBook) -> None:
    provider = memory(ManualClock())
    orders = SinkBook(provider, KEYS, ARCHIVE)
    stored = orders.add(SinkOrder("copy", "file", {"location": "file:///out"}), 1, os.urandom)
    place = SinkPlace(ARCHIVE, "DefaultCluster", "broker-a", 1, "copy")
    with pytest.raises(Conflict, match="no backfill of this sink is under way"):
        end_backfill(orders, book, stored, place, ManualClock(), os.urandom)
    asked = orders.change("copy", 2, os.urandom, backfill_id=PLAN.backfill_id)
    ended = end_backfill(orders, book, asked, place, ManualClock(), os.urandom)
    assert (ended.backfill, ended.revision) == (None, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"done": 1}, "a part is not done"),
        ({"had": 4}, "does not begin where the sink is"),
        ({"next": 16}, "did not end in its range"),
        ({"queue": ORDERS}, "has other queues than were planned"),
        ({"sink": b"\x09" * 16}, "is of another sink"),
    ],
)
def test_only_what_fits_is_joined(change: dict[str, object], said: str) -> None:
    parts = dict(enumerate(PARTS))
    queue = change.get("queue", BILLS)
    assert isinstance(queue, MessageQueue)
    following = change.get("next", 15)
    assert isinstance(following, int)
    done = {0: BackfillDone(0, {ORDERS: Follow(20, 8)}), 1: BackfillDone(1, {queue: Follow(following, 9)})}
    if "done" in change:
        del done[1]
    had = {BILLS: Follow(int(str(change.get("had", 5))))}
    sink_id = change.get("sink", SINK)
    assert isinstance(sink_id, bytes)
    if said:
        with pytest.raises(Invalid, match=said):
            check_joins(PLAN, parts, done, sink_id, had)
    else:
        assert check_joins(PLAN, parts, done, sink_id, had) == {ORDERS: Follow(20, 8), BILLS: Follow(15, 9)}
