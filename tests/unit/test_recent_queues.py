"""What commits put last is not looked up in the store again, and is never older than what the store holds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tests.kit.assemble import memory, open_log, plan, put
from tests.kit.histories import History
from tests.kit.manyqueues import flushed
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.state.keys import QUEUE, queue_key
from tiered.archive.state.layers import Changes, QueueBatch
from tiered.archive.state.layout import QUEUE_DTYPE
from tiered.archive.state.recentqueues import Planning, RecentQueues
from tiered.clock import ManualClock
from tiered.codec.format.edits import EditBatch
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue

TOPICS, QUEUES = 4, 100
HISTORY = History(random.Random(1))


class Asked(MemoryStore):
    """Keeps which queues it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: list[bytes] = []

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.queues += [key for key in keys if key[:1] == QUEUE]
        return super().get_many(keys)


def claim(log: CommitLog) -> None:
    log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)


def flush(queues: range, number: int, *, epoch: int = 1) -> list[EditBatch]:
    chance = random.Random(str((queues, number, epoch)))
    return flushed(np.array(queues), TOPICS, number, QUEUES, chance, epoch)


def test_queues_of_the_commits_before_are_not_looked_up() -> None:
    store = Asked()
    log = open_log(memory(), ManualClock(), store=store, recent_queues=QUEUES)
    claim(log)
    put(log, *flush(range(10), 0))
    assert len(set(store.queues)) == 10, "they are new"
    put(log, *flush(range(10, 15), 0))
    assert len(set(store.queues)) == 15
    store.queues.clear()
    put(log, *flush(range(12), 1))
    assert store.queues == []


def test_what_another_writer_put_is_seen() -> None:
    bucket, clock = memory(), ManualClock()
    ours = open_log(bucket, clock, recent_queues=QUEUES)
    claim(ours)
    put(ours, *flush(range(10), 0))
    theirs = open_log(bucket, clock, writer=b"B" * 16, recent_queues=QUEUES, seed=2)
    claim(theirs)
    put(theirs, *flush(range(10), 1, epoch=2))
    ours.follow()
    claim(ours)
    put(ours, *flush(range(10), 2, epoch=3))
    assert ours.proven().head() == ours.tip


def test_a_commit_that_is_planned_hides_what_is_remembered() -> None:
    log = open_log(memory(), ManualClock(), recent_queues=QUEUES)
    claim(log)
    put(log, *flush(range(10), 0))
    ahead = [plan(log, *flush(range(10), number)) for number in (1, 2)]
    for planned in ahead:
        log.put(planned)
    put(log, *flush(range(10), 3))


def test_so_many_are_kept_and_no_more() -> None:
    recent, store, head = RecentQueues(10), Asked(), HISTORY.state.head()
    assert head is not None
    for first in range(0, 100, 5):
        records = np.zeros(5, QUEUE_DTYPE)
        records["messages"] = np.arange(first, first + 5)
        named = ["Orders"] * 5, np.arange(first, first + 5)
        recent.planned(Changes({}, head, queues=(QueueBatch(*named, records),)))
        assert len(recent) <= 2 * 10 + 5
    table, known = recent.table(["Orders"] * 2, np.array([99, 1]), store)
    assert (table["messages"].tolist(), known.tolist()) == ([99, 0], [True, False])
    assert store.queues == [QUEUE + queue_key(MessageQueue("Orders", 1))]


def test_topics_are_bounded_too() -> None:
    recent, store = RecentQueues(10), Asked()
    for number in range(100):
        recent.table([f"Topic-{number}"], np.array([0]), store)
        assert len(recent) <= 2 * 10 + 1
        assert len(recent._topics) <= 2 * 10 + 1


def test_a_plan_and_its_commit_ask_once_for_what_is_no_queue_either() -> None:
    store = Asked()
    view = Planning(store, RecentQueues(1), most=2)
    assert view.get_many([QUEUE + b"1", QUEUE + b"1"]) == [None, None]
    assert view.get_many([QUEUE + b"1"]) == [None]
    assert store.queues == [QUEUE + b"1", QUEUE + b"1"], "one question"
    assert view.get_many([QUEUE + b"2", QUEUE + b"3"]) == [None, None]
    assert view.get_many([QUEUE + b"2"]) == [None]
    assert store.queues[-1] == QUEUE + b"2", "they were too many to be remembered"


def test_only_who_has_the_place_plans() -> None:
    log = open_log(memory(), ManualClock())
    with pytest.raises(RuntimeError, match="while its place is held"):
        log.planning()
