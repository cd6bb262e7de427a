"""From records that name lite queues to their aliases in the archive."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import Assembly, Counting, assemble
from tests.kit.litebroker import LiteBroker
from tiered.archive.state.aliases import alias_runs, lite_queue, lite_queues
from tiered.clock import ManualClock
from tiered.codec.format.aliases import LITE_QUEUES
from tiered.codec.format.edits import EditKind
from tiered.model import MessageQueue
from tiered.settings import MIB
from tiered.write import planner

Make = Callable[..., Assembly]


@pytest.fixture
def broker(tmp_path: Path) -> LiteBroker:
    return LiteBroker(tmp_path / "store")


@pytest.fixture
def daemon(broker: LiteBroker, store: Counting, clock: ManualClock) -> Iterator[Make]:
    made: list[Assembly] = []

    def make(**options: Any) -> Assembly:
        options["dispatch"] = {"lite_queues": True, **options.get("dispatch", {})}
        made.append(assemble(broker.store, store, clock, seed=len(made) + 1, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def archived(one: Assembly) -> dict[str, dict[int, bytes]]:
    """The records that the aliases of each lite queue name, read where its own queue has them."""
    rows = {(q, g, o): raw for q, found in one.rows().items() for g, o, raw in found}
    found: dict[str, dict[int, bytes]] = {}
    for queue in lite_queues(one.state.view):
        assert queue.generation is not None
        for run in alias_runs(one.state.view, queue.queue, queue.generation):
            for i, row in enumerate(run.rows):
                record = rows[*run.target(int(row["target"])), int(row["offset"])]
                assert int.from_bytes(record[28:36], "big") == row["physical_offset"]
                found.setdefault(queue.queue.topic, {})[run.first_offset + i] = record
    return found


def test_each_lite_queue_has_its_records(
    broker: LiteBroker, daemon: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, counted = random.Random(1), Counter[str]()
    made = planner.FlushStatistics
    monkeypatch.setattr(
        planner, "FlushStatistics", lambda **found: counted.update(aliases=found["aliases"]) or made(**found)
    )
    one = daemon(dispatch={"group_commit_count": 7})
    for number in range(60):
        names = chance.sample(["%LMQ%a", "%LMQ%b", "%LMQ%c"], chance.choice([0, 1, 1, 2, 3]))
        broker.place(names, queue_id=number % 3, body=b"%d" % number)
    one.settle()
    assert archived(one) == broker.placed()
    assert len(broker.placed()) == 3
    assert counted["aliases"] == sum(map(len, broker.placed().values()))


def test_what_was_lost_is_no_longer_in_a_lite_queue_and_the_next_takes_its_offset(
    broker: LiteBroker, daemon: Make
) -> None:
    for number in range(10):
        broker.place(["%LMQ%a"] if number % 2 else ["%LMQ%b", "%LMQ%a"], queue_id=number % 2)
    first = daemon()
    first.settle()
    broker.crash(broker.sent[6][0].physical_offset)
    broker.place(["%LMQ%b"], body=b"another")
    first.close()
    second = daemon(take_over=True)
    second.settle()
    assert archived(second) == broker.placed()
    found = lite_queue(second.state.view, MessageQueue("%LMQ%a", 0))
    assert found is not None
    assert (found.generation, found.max_offset) == (1, 6)


def test_offsets_that_jump_leave_a_hole_and_those_that_go_back_begin_anew(
    broker: LiteBroker, daemon: Make
) -> None:
    one = daemon()
    for offset in (3, 4, 9, 1, 2):
        broker.numbered["%LMQ%a"] = offset
        broker.place(["%LMQ%a"])
    one.settle()
    queue = MessageQueue("%LMQ%a", 0)
    runs = {g: [(r.first_offset, r.end) for r in alias_runs(one.state.view, queue, g)] for g in (1, 2)}
    assert runs == {1: [(3, 5), (9, 10)], 2: [(1, 3)]}


def test_records_that_are_not_archived_have_no_aliases(broker: LiteBroker, daemon: Make) -> None:
    one = daemon(source={"exclude_topics": ("Secret",)})
    broker.place(["%LMQ%a"], topic="Secret")
    broker.place(["%LMQ%b"])
    one.settle()
    assert [q.queue.topic for q in lite_queues(one.state.view)] == ["%LMQ%b"]


def test_unless_asked_nothing_is_archived_of_them_and_once_asked_the_archive_says_so_for_good(
    broker: LiteBroker, daemon: Make
) -> None:
    broker.place(["%LMQ%a"])
    one = daemon(dispatch={"lite_queues": False})
    one.settle()
    assert not list(lite_queues(one.state.view))
    assert one.log.tip is not None
    assert one.log.tip.required_features == ()
    one.close()
    for asked in (True, False):
        one = daemon(dispatch={"lite_queues": asked}, take_over=True)
        assert one.log.tip is not None
        assert one.log.tip.required_features == (LITE_QUEUES,)
        one.close()


def test_a_flush_with_too_many_places_becomes_several_commits(broker: LiteBroker, daemon: Make) -> None:
    names = [f"%LMQ%{n}" for n in range(300)]
    for _ in range(40):
        broker.place(names)
    one = daemon(dispatch={"max_edit_bytes": 65_536, "group_commit_bytes": 16 * MIB})
    one.settle()
    assert archived(one) == broker.placed()
    edits = [
        sum(b.kind is EditKind.QUEUE_ALIAS for b in p.flush.edits) for p in one.proven if p.flush.messages
    ]
    assert edits == [1] * 4
