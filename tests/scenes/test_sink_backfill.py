"""A sink whose history others give: it waits, takes up exactly what they gave, and goes on there."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.fakebroker import FakeQueue
from tests.kit.fakecluster import FakeCluster
from tests.kit.sinkbackfilling import Backfilled
from tests.kit.webhookserver import receiver
from tiered.errors import Invalid, Unavailable
from tiered.sink.comparison.found import SinkVerdict
from tiered.sink.giving import PartPace, give_part, is_as_planned
from tiered.sink.kinds import PartedKind, find_kind
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase


@pytest.fixture
def made(tmp_path: Path) -> Backfilled:
    found = Backfilled(tmp_path, SinkOrder("copy", "file", {"location": f"file://{tmp_path}/out"}))
    found.put(60)
    found.ask()
    return found


def same(made: Backfilled, messages: int) -> bool:
    made.scene.commit()
    found = made.scene.verified()
    return (found.verdict, found.totals["same"]) == (SinkVerdict.SAME, messages)


def test_it_goes_on_exactly_where_the_backfill_ends(made: Backfilled) -> None:
    plan = made.plan()
    made.give(plan, 0)
    assert made.scene.run() is SinkPhase.BACKFILLING
    assert f"1 of {plan.parts} parts" in str(made.scene.runner.progress.why)
    with pytest.raises(Unavailable):
        made.give(plan, 1, fail_after=3)
    made.give(plan, 1)
    made.scene.put(5)
    made.scene.archive()
    assert made.finish() is SinkPhase.LIVE
    assert same(made, 65)


def test_a_topic_that_begins_meanwhile_is_given_to_a_sink_that_began_with_now(tmp_path: Path) -> None:
    options = {"location": f"file://{tmp_path}/out"}
    made = Backfilled(tmp_path, SinkOrder("copy", "file", options, from_start=False))
    made.put(6)
    assert made.scene.run() is SinkPhase.LIVE
    made.scene.commit()
    made.ask()
    made.put(12)
    plan = made.plan()
    assert plan.messages == 12
    for number in range(plan.parts):
        made.give(plan, number)
    made.scene.put(4, topic="Later")
    made.scene.archive()
    assert made.finish() is SinkPhase.LIVE
    made.scene.commit()
    told = made.scene.verified().totals
    assert (told["same"], told["lost"], told["not_comparable"]) == (16, 0, 6)


def test_what_others_left_out_or_did_not_find_is_told_of_the_sink(tmp_path: Path) -> None:
    options = {"location": f"file://{tmp_path}/out", "shape.tags": "TagOfNone"}
    made = Backfilled(tmp_path, SinkOrder("copy", "file", options))
    made.put(60)
    made.ask()
    plan = made.plan()
    for number in range(plan.parts):
        made.give(plan, number)
    [asked] = made.book.ranges(plan, 0)
    with closing(made.open(replace(plan, plan_id=b"\1" * 16), 0)) as beyond:
        pace = PartPace(1, lambda: None)
        done = give_part(0, made.scene.view, beyond, (replace(asked, end=asked.end + 3),), pace)
    assert (done.lost, done.left_out) == (3, asked.end)
    assert made.finish() is SinkPhase.LIVE
    assert made.scene.runner.progress.document()["left_out"] == 60


def test_a_process_that_ends_between_the_destination_and_the_archive(made: Backfilled) -> None:
    plan = made.plan()
    for number in range(plan.parts):
        made.give(plan, number)
    assert made.finish() is SinkPhase.LIVE
    made.scene.restart()  # its commit is not there
    made.hold()
    made.scene.put(3)
    made.scene.archive()
    assert made.scene.run() is SinkPhase.LIVE
    assert same(made, 63)


def test_a_daemon_that_is_started_again_meanwhile_waits_on(made: Backfilled) -> None:
    plan = made.plan()
    made.give(plan, 0)
    made.scene.restart()
    made.hold()
    assert made.scene.run() is SinkPhase.BACKFILLING
    told = made.scene.runner.progress.document()
    assert told["backlog_messages"] == plan.messages - made.book.done(plan)[0].messages
    made.give(plan, 1)
    assert made.finish() is SinkPhase.LIVE
    assert same(made, 60)


def test_a_loss_at_the_broker_meanwhile_is_accounted_for(made: Backfilled) -> None:
    """What the backfill gave and the broker then lost is told once, and what replaced it is given behind."""
    plan, scene = made.plan(), made.scene
    made.give(plan, 0)
    cut = sorted(scene.log.records)[50]
    scene.log.cut(cut)
    scene.salt, scene.wrote = "again", scene.wrote[:50]
    for queue in scene.next:
        scene.next[queue] = sum(1 for at, _, _ in scene.wrote if at == queue)
    scene.put(6)
    scene.restart()
    made.hold()
    scene.archive()
    assert scene.run() is SinkPhase.BACKFILLING
    ranges = made.book.ranges(plan, 1)
    assert not is_as_planned(plan, ranges, scene.view.state)
    made.give(plan, 1, view=made.planned_view(plan))
    assert made.finish() is SinkPhase.LIVE
    assert scene.runner.progress.lost_at_source == 10
    scene.commit()
    told = scene.verified().totals
    assert (told["lost"], told["reordered"]) == (0, 0)
    # One of what replaced the tail lies where a lost one lay, and has its id.
    assert (told["same"], told["changed"], told["doubled"]) == (56, 0, 0)
    assert told["others"] + told["ahead"] == 10, "what was lost, which stays there"


@pytest.mark.parametrize(
    ("changed", "given", "said"),
    [
        ({"looked": 77}, 2, "the sink has moved since it was planned"),
        ({"revision": 1}, 2, "the sink has moved since it was planned"),
        ({}, 1, "a part is not done"),
    ],
)
def test_what_does_not_join_stops_it(
    made: Backfilled, changed: dict[str, int], given: int, said: str
) -> None:
    plan = made.plan(**changed)
    for number in range(given):
        made.give(plan, number)
    assert made.finish() is SinkPhase.STOPPED
    assert said in str(made.scene.runner.progress.why)


Came = dict[str, list[int]]
"""Queue offsets of each topic, in the order in which a destination was given them."""


@contextmanager
def posted() -> Iterator[tuple[SinkOrder, Callable[[], Came]]]:
    """A webhook."""
    with receiver() as server:

        def came() -> Came:
            lines = (line for request in server.taken for line in request.body.splitlines())
            return by_topic((row["topic"], row["queue_offset"]) for row in map(json.loads, lines))

        yield SinkOrder("posted", "http", {"url": server.url}), came


@contextmanager
def sent() -> Iterator[tuple[SinkOrder, Callable[[], Came]]]:
    """Another cluster's broker, which has the topics."""
    with FakeCluster() as there:
        for topic in ("Orders", "Bills"):
            there.made[topic] = 1
            there.queues[topic][0] = FakeQueue()

        def came() -> Came:
            stored = (
                (topic, queue.sent.values()) for topic, ids in there.queues.items() for queue in ids.values()
            )
            return by_topic(
                (topic, int(message.properties["TIERED_OFFSET"]))
                for topic, found in stored
                for message in found
            )

        yield SinkOrder("sent", "rocketmq", {"name_servers": there.address, "create_topics": "false"}), came


def by_topic(pairs: Iterable[tuple[str, int]]) -> Came:
    made: defaultdict[str, list[int]] = defaultdict(list)
    for topic, offset in pairs:
        made[topic].append(offset)
    return dict(made)


@pytest.mark.parametrize("destination", [posted, sent])
def test_where_no_position_is_kept_a_part_that_is_tried_again_is_given_again(
    tmp_path: Path, destination: Callable[[], AbstractContextManager[tuple[SinkOrder, Callable[[], Came]]]]
) -> None:
    """In order, and with nothing left out; and the sink goes on behind it."""
    with destination() as (order, came):
        made = Backfilled(tmp_path, order)
        made.put(60)
        made.ask()
        plan = made.plan()
        with pytest.raises(Unavailable):
            made.give(plan, 0, fail_after=4)
        [(topic, before)] = came().items()
        assert before == list(range(len(before)))
        for number in range(plan.parts):
            made.give(plan, number)
        made.put(6)
        assert made.finish() is SinkPhase.LIVE
        wanted = {queue.topic: list(range(end)) for queue, end in made.scene.next.items()}
        assert came() == {**wanted, topic: before + wanted[topic]}
        made.scene.runner.close()


@pytest.mark.parametrize(
    ("kind", "options", "once"),
    [
        ("file", {"location": "file:///out"}, True),
        ("kafka", {"brokers": "a:9092"}, True),
        ("kafka", {"brokers": "a:9092", "mode": "idempotent", "shape.tags": "a"}, False),
        ("http", {"url": "http://a/in"}, False),
        ("rocketmq", {"name_servers": "a:9876", "create_topics": "false"}, False),
        ("rocketmq", {"name_servers": "a:9876"}, "only where their topics are there"),
        ("iceberg", {"catalog": "c", "table": "a.b"}, "cannot be given to by several processes at once"),
    ],
)
def test_which_kinds_may_be_given_to_in_parts(kind: str, options: dict[str, str], once: bool | str) -> None:
    found = find_kind(kind)
    assert isinstance(found, PartedKind)
    if isinstance(once, str):
        with pytest.raises(Invalid, match=once):
            found.check_parts(SinkOrder("copy", kind, options))
    else:
        assert found.check_parts(SinkOrder("copy", kind, options)) is once
