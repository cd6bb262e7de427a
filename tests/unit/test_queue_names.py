"""What a queue looks like wherever it is told: in lines of the log, in what verbs print for machines and for people."""

from __future__ import annotations

import json
import logging
import pickle

import pytest

from tiered.daemon.logs import LineFormatter
from tiered.errors import Corrupt
from tiered.fetch.base import ReaderId
from tiered.model import MessageQueue, ObjectRef, RunId
from tiered.text.human import human
from tiered.text.machine import _dump

QUEUE = MessageQueue("Orders", 3)


@pytest.mark.parametrize("json_lines", [True, False])
def test_in_a_line_of_the_log(json_lines: bool) -> None:
    record = logging.LogRecord("tiered.x", logging.ERROR, "x.py", 1, "lost", (), None)
    record.queue = QUEUE
    line = LineFormatter(lambda text: text, json_lines=json_lines).format(record)
    if json_lines:
        assert json.loads(line)["queue"] == "Orders/3"
    else:
        assert line.endswith("  queue=Orders/3")


def test_in_what_verbs_print() -> None:
    error = Corrupt("columns and records disagree", key="k", queue=QUEUE)
    assert json.loads(_dump({"error": error.fields}))["error"]["queue"] == "Orders/3"
    assert json.loads(_dump([{"queue": QUEUE}])) == [{"queue": "Orders/3"}]
    assert human(QUEUE) == f"{QUEUE}" == "Orders/3"
    assert "queue=Orders/3" in str(error)


def test_identities_of_different_things_are_never_equal() -> None:
    """They are keys of the same tables."""
    same = [RunId(3, 0), ObjectRef(3, 0), (3, 0)]
    assert len(set(same)) == len(same)
    queues = [QUEUE, ("Orders", 3), ReaderId("Orders", "3")]
    assert len(set(queues)) == len(queues)
    for value in (QUEUE, RunId(3, 0), ReaderId("g")):
        assert pickle.loads(pickle.dumps(value)) == value  # Spark sends them to its executors
        with pytest.raises(AttributeError):
            value.topic = "other"  # type: ignore[union-attr, misc]


def test_queues_are_in_the_order_of_topic_and_number() -> None:
    queues = [MessageQueue("B", 0), MessageQueue("A", 10), MessageQueue("A", 9)]
    assert sorted(queues) == [MessageQueue("A", 9), MessageQueue("A", 10), MessageQueue("B", 0)]
