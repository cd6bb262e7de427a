"""Answers that the archive could not complete: a number that would be wrong is *try again*; what else is missing is said."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.fakearchive import record, time_of
from tests.kit.gatewaydesk import RETRY, Desk, asking, found, pull, simple
from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Unavailable
from tiered.gateway.answers import lookup, stats
from tiered.gateway.knowledge.unchecked import QUIET_SECONDS

KEY = '{"brokerName":"broker-a","queueId":%d,"topic":"T"}'


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 10, 200)
    yield made
    made.close()


def topic_stats(low: int, *, last_ms: int = 5, queues: int = 1) -> Command:
    row = f':{{"lastUpdateTimestamp":{last_ms},"maxOffset":150,"minOffset":{low}}}'
    rows = (KEY % number + row for number in range(queues))
    return simple(0, None, ('{"offsetTable":{' + ",".join(rows) + "}}").encode())


def consume_stats(last_ms: int) -> Command:
    row = f'{{"brokerOffset":200,"consumerOffset":41,"lastTimestamp":{last_ms},"pullOffset":-1}}'
    return simple(0, None, ('{"consumeTps":0.5,"offsetTable":{' + KEY % 0 + ":" + row + "}}").encode())


def spans(first_ms: int) -> Command:
    span = {"messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"}, "minTimeStamp": first_ms}
    return simple(0, None, json.dumps({"consumeTimeSpanSet": [span]}).encode())


def made_of(made: Command | str) -> dict[str, Any]:
    assert isinstance(made, Command)
    [(_, value)] = stats.decode_object_map(made.body, "offsetTable").entries
    assert isinstance(value, dict)
    return value


def test_a_minimum_that_the_archive_does_not_say_is_no_number(desk: Desk) -> None:
    desk.archive.error = Unavailable("away")
    assert desk.ask(asking(202, topic="T"), topic_stats(100)) == RETRY
    assert desk.ask(asking(303, topic="T", group="G"), spans(time_of(100))) == RETRY
    assert (desk.count("topic_stats", "retry"), desk.count("consume_times", "retry")) == (1, 1)
    whole = topic_stats(0)
    assert desk.ask(asking(202, topic="T"), whole) is whole, "nothing was deleted, so nobody is asked"
    assert desk.ask(asking(208, consumerGroup="G"), consume_stats(7)) is not RETRY


def test_an_archive_that_is_slow_is_no_number_either() -> None:
    desk, goes_on = Desk(call_timeout_ms=100), threading.Event()
    desk.archive.fill("T", 0, 10, 200)
    quick = desk.archive.min_offset
    desk.archive.min_offset = lambda *queue: goes_on.wait(10) and quick(*queue)
    try:
        assert desk.ask(asking(202, topic="T"), topic_stats(100)) == RETRY
    finally:
        goes_on.set()
        desk.close()


def test_times_that_come_too_late_cost_no_minimum() -> None:
    desk, goes_on = Desk(call_timeout_ms=300), threading.Event()
    desk.archive.fill("T", 0, 10, 200)
    quick = desk.archive.message_time
    desk.archive.message_time = lambda *place: goes_on.wait(10) and quick(*place)
    try:
        made = made_of(desk.ask(asking(202, topic="T"), topic_stats(100, last_ms=0)))
        assert made == {"lastUpdateTimestamp": 0, "maxOffset": 150, "minOffset": 10}
        assert desk.count("topic_stats", "unchecked") == 1
    finally:
        goes_on.set()
        desk.close()


def test_a_state_is_said_when_it_begins_and_when_it_is_over(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def ask() -> Command | str:
        return desk.ask(asking(208, consumerGroup="G"), consume_stats(0))

    caplog.set_level(logging.INFO, "tiered.gateway")
    desk.archive.error = Unavailable("away")
    for _ in range(3):
        assert made_of(ask())["lastTimestamp"] == 0
    desk.archive.error = None
    assert made_of(ask())["lastTimestamp"] == time_of(40)
    assert [r.levelname for r in caplog.records] == ["WARNING"], "it may come and go"
    desk.clock.advance(QUIET_SECONDS)
    ask()
    ask()
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert vars(caplog.records[1])["answers"] == 3
    assert desk.count("consume_stats", "unchecked") == 3
    assert desk.count("consume_stats", "corrected") == 3


def test_what_is_damaged_or_too_much_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.archive.error = Corrupt("a block is damaged", key="k")
    assert made_of(desk.ask(asking(208, consumerGroup="G"), consume_stats(0)))["lastTimestamp"] == 0
    assert desk.count("consume_stats", "unchecked") == 1
    assert not desk.metrics.value("tiered_gateway_bad_requests_total", code="208"), "the request was good"
    desk.archive.error = None
    many = stats.MAX_TIMES + 3
    for number in range(many):
        desk.archive.fill("T", number, 10, 200)
    made = desk.ask(asking(202, topic="T"), topic_stats(10, last_ms=0, queues=many))
    assert isinstance(made, Command)
    assert bytes(made.body).count(b'"lastUpdateTimestamp":0,') == 3
    assert desk.count("topic_stats", "unchecked") == 1
    monkeypatch.setattr(stats, "MAX_BODY", 50)
    large = topic_stats(100)
    assert desk.ask(asking(202, topic="T"), large) is large
    assert desk.count("topic_stats", "unchecked") == 2


def test_queries_that_find_more_than_an_answer_holds_or_are_of_another_kind(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def query(**more: str) -> Command:
        times = {"beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        return asking(12, topic="T", key="k", maxNum="32", **times, **more)

    body = b"x" * 900
    desk.archive.fill("T", 0, 10, 13, properties={at: {"KEYS": "k"} for at in range(10, 13)}, body=body)
    none = simple(22, "can not find")
    assert desk.ask(query(), none) != none
    assert desk.count("query", "unchecked") == 0
    monkeypatch.setattr(desk.answers._lookups, "_max_bytes", 2 * len(record("T", 0, 10, body=body, KEYS="k")))
    made = desk.ask(query(), none)
    assert isinstance(made, Command)
    assert desk.count("query", "unchecked") == 1
    assert desk.ask(query(indexType="T"), none) is none
    assert desk.ask(query(lastKey="x"), none) is none
    assert desk.count("query", "unchecked") == 3
    assert lookup.ONE_MORE > 0


def test_a_broker_that_does_not_say_where_its_queue_begins_is_believed_aloud(desk: Desk) -> None:
    asked = asking(29, topic="T", queueId="0", timestamp=str(time_of(500)))
    later = simple(0, offset="700")
    assert desk.ask(asked, later) is later
    assert desk.count("search_offset", "unchecked") == 1
    desk.minimum = 300
    assert desk.ask(asked, later) == RETRY
    desk.minimum = 190
    assert desk.ask(asked, later) is later
    assert desk.count("search_offset", "passed") == 1


def test_a_doubt_that_the_archive_does_not_settle_passes_aloud_where_the_broker_is_calm(desk: Desk) -> None:
    filtered = found("T", 0, range(110, 114, 3), 100, 200)
    request = pull("T", 0, 110, subscription="A")
    desk.begin = 100_000
    desk.archive.error = Unavailable("away")
    assert desk.ask(request, filtered) == RETRY
    desk.clock.advance(60)
    assert desk.ask(request, filtered) is filtered
    assert desk.count("pull", "unchecked") == 1
