"""Tables of what the gateway knows: bounded, and what was heard longest ago goes first."""

from __future__ import annotations

import pytest

from tiered.clock import ManualClock
from tiered.fetch.base import ReaderId
from tiered.gateway.knowledge import minimums, positions
from tiered.gateway.knowledge.clients import Clients
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.knowledge.positions import EVERY_SECONDS, Positions
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics

CONNECTION = ConnectionInfo(1, "c:1", "b:1")


def fields(queue_id: int) -> dict[str, str]:
    return {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": str(queue_id),
        "queueOffset": "7",
        "maxMsgNums": "32",
        "sysFlag": "0",
    }


def test_of_many_queues_those_that_were_told_last_stay_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MAX_POSITIONS", 3)
    told: list[int] = []

    def tell(reader: ReaderId, topic: str, queue_id: int, offset: int) -> None:
        told.append(queue_id)

    clock = ManualClock()
    known = Positions(Clients(Metrics()), clock, tell)
    for queue_id in range(3):
        known.pull(fields(queue_id), CONNECTION)
    clock.advance(EVERY_SECONDS)
    known.pull(fields(0), CONNECTION)  # 1 is now the one that was told longest ago
    known.pull(fields(3), CONNECTION)
    del told[:]
    for queue_id in (0, 3):
        known.pull(fields(queue_id), CONNECTION)
    assert told == []
    known.pull(fields(1), CONNECTION)
    assert told == [1]


def test_of_many_minimums_those_that_were_heard_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimums, "MAX_QUEUES", 3)
    known = Minimums()
    for queue_id in range(4):
        known.hear("T", str(queue_id), "5")
    assert [known.get("T", queue_id) for queue_id in range(4)] == [None, 5, 5, 5]
    learnt: list[int] = []
    known.learn = lambda topic, queue_id, offset: learnt.append(queue_id)  # type: ignore[method-assign]
    for queue_id in (1, 2, 3, 0):
        known.hear("T", str(queue_id), "5")
    assert learnt == [0], "the others were heard before"


def test_a_minimum_that_was_forgotten_is_learnt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimums, "MAX_QUEUES", 3)
    known = Minimums()
    known.hear("T", "0", "5")
    for queue_id in range(1, 4):  # of other questions than pulls
        known.learn("T", queue_id, 5)
    assert known.get("T", 0) is None
    known.hear("T", "0", "5")
    assert known.get("T", 0) == 5
    known.hear("T", "+0", "7")
    assert known.get("T", 0) == 7, "the same queue, however it is written"
