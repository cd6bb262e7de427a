"""Resets that the broker tells consumers itself (220): into the archive where the operator's time lies there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kit.fakearchive import time_of
from tests.kit.gatewaydesk import Desk, answered, asking, pull, simple
from tiered.codec.remoting.frame import ONEWAY, Command
from tiered.errors import Corrupt, Unavailable
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.answers.resets import MAX_QUEUES

KEY = '{"brokerName":"broker-a","queueId":%d,"topic":"T"}'
BODY = ('{"offsetTable":{' + ",".join(f"{KEY % queue}:100" for queue in range(3)) + "}}").encode()
INTO_ARCHIVE = BODY.replace(b":100,", b":40,", 1)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 10, 150)  # queue 0 only
    yield made
    made.close()


def notice(time_ms: int = time_of(40), body: bytes = BODY, **more: str) -> Command:
    """220 as a broker of 4.9 sends it."""
    ext = {"topic": "T", "group": "G", "timestamp": str(time_ms), "isForce": "false"}
    return Command(220, 5, ONEWAY, None, {**ext, **more}, body, 397)


def order(time_ms: int = time_of(40)) -> Command:
    """222: what the operator asks for."""
    ext = {"topic": "T", "group": "G", "timestamp": str(time_ms), "isForce": "true"}
    return asking(222, **ext)


def told(desk: Desk, command: Command) -> bytes | None:
    """The body that a consumer gets instead of the broker's."""
    made = asyncio.run(desk.answers.notice(command, desk.connection))
    return None if made is None else made.body


def body_of(answer: Command | str) -> bytes:
    assert isinstance(answer, Command)
    return bytes(answer.body)


def test_a_time_before_the_broker_leads_into_the_archive(desk: Desk) -> None:
    assert told(desk, notice()) == INTO_ARCHIVE
    assert desk.count("reset", "told") == 1
    assert told(desk, notice(time_of(5))) == BODY.replace(b":100,", b":10,", 1), "as far as the archive goes"


def test_what_the_broker_can_do_itself_passes(desk: Desk) -> None:
    assert told(desk, notice(time_of(120))) is None
    desk.archive.asked.clear()
    assert told(desk, notice(-1)) is None, "to the end"
    assert told(desk, notice(queueId="0", offset="7")) is None, "to an offset"
    assert desk.archive.asked == []


@pytest.mark.parametrize(
    "body", [b"", b'{"offsetTable":[{"queueId":0}]}', b'{"offsetTable":{"a":1}}', b"\xff"]
)
def test_what_is_no_table_passes_and_is_counted(desk: Desk, body: bytes) -> None:
    assert told(desk, notice(body=body)) is None
    assert desk.metrics.value("tiered_gateway_bad_requests_total", code="220") == 1


def test_clients_in_other_languages_get_the_list_that_brokers_write_for_them(desk: Desk) -> None:
    item = '{"brokerName":"broker-a","offset":100,"queueId":%d,"topic":"T"}'
    body = ('{"offsetTable":[' + ",".join(item % queue for queue in range(3)) + "]}").encode()
    assert told(desk, notice(body=body)) == body.replace(b'"offset":100', b'"offset":40', 1)
    assert told(desk, notice(time_of(120), body=body)) is None
    assert told(desk, notice(body=b'{"offsetTable":[]}')) is None
    assert desk.metrics.value("tiered_gateway_bad_requests_total", code="220") is None


def test_fields_that_make_no_sense_pass_and_are_counted(desk: Desk) -> None:
    strange = notice()
    strange.ext["timestamp"] = "yesterday"
    assert told(desk, strange) is None
    assert desk.metrics.value("tiered_gateway_bad_requests_total", code="220") == 1


def test_strange_entries_are_left_as_they_are(desk: Desk) -> None:
    entries = ['{"queueId":[0],"topic":"T"}:100', '{"queueId":0,"topic":"U"}:100', KEY % 0 + ':"x"']
    body = ('{"offsetTable":{' + ",".join(entries) + "}}").encode()
    assert told(desk, notice(body=body)) is None
    assert body_of(desk.ask(order(), simple(0, None, body))) == body


def test_a_table_without_end_is_looked_at_to_a_bound(desk: Desk) -> None:
    entries = [KEY % 1 + ":100"] * MAX_QUEUES + [KEY % 0 + ":100"]
    body = ('{"offsetTable":{' + ",".join(entries) + "}}").encode()
    assert told(desk, notice(body=body)) is None
    assert told(desk, notice(body=body.replace(b'"queueId":1', b'"queueId":0', 1))) is not None


@pytest.mark.parametrize("error", [Unavailable("away"), Corrupt("damaged")])
def test_while_the_archive_cannot_say_the_consumer_hears_nothing(desk: Desk, error: Exception) -> None:
    desk.archive.error = error
    with pytest.raises(type(error)):
        told(desk, notice())


def test_levels_topics_and_brokers_that_are_not_served_pass(desk: Desk) -> None:
    desk.archive.levels["T"] = StorageLevel.DISABLE
    assert told(desk, notice()) is None
    answer = simple(0, None, BODY)
    assert desk.ask(order(), answer) is answer, "nor is the operator told anything else"
    desk.archive.levels.clear()
    assert told(desk, notice(topic="%RETRY%G")) is None
    assert told(desk, notice(lo="true")) is None, "a static topic"
    desk.connection = replace(desk.connection, broker_name="broker-b")
    assert told(desk, notice()) is None
    desk.connection = replace(desk.connection, broker_name=None)
    with pytest.raises(Unavailable):
        told(desk, notice())
    assert told(desk, notice(bname="broker-b")) is None


@pytest.mark.parametrize("first", ["consumer", "operator"])
def test_nothing_waits_for_pulls_once_consumers_are_told(desk: Desk, first: str) -> None:
    """Else a group that comes by the broker's offset within the hour would be sent back once more."""
    if first == "consumer":
        assert told(desk, notice()) == INTO_ARCHIVE
    assert body_of(desk.ask(order(), simple(0, None, BODY))) == INTO_ARCHIVE
    if first == "operator":
        assert told(desk, notice()) == INTO_ARCHIVE
    position = asking(14, consumerGroup="G", topic="T", queueId="0")
    answer = simple(0, offset="100")
    assert desk.ask(position, answer) is answer
    delivered = answered(21, "OFFSET_RESET", 100, 100, 200)
    assert desk.ask(pull(offset=170), delivered) is delivered


def test_another_order_is_delivered_by_pulls_again(desk: Desk) -> None:
    told(desk, notice())
    desk.ask(order(time_of(30)), simple(0, None, BODY))
    made = desk.ask(pull(offset=170), answered(21, "OFFSET_RESET", 100, 100, 200))
    assert isinstance(made, Command)
    assert made.ext["nextBeginOffset"] == "30"
    told(desk, notice())
    desk.clock.advance(3601)
    desk.ask(order(), simple(0, None, BODY))
    made = desk.ask(pull(offset=170), answered(21, "OFFSET_RESET", 100, 100, 200))
    assert isinstance(made, Command)
    assert made.ext["nextBeginOffset"] == "40", "the broker was set to do it the other way"


def test_a_commit_below_where_the_broker_put_it_settles_nothing(desk: Desk) -> None:
    """A group that reads in the archive when it is reset goes on to commit there until it hears of it."""
    desk.ask(order(), simple(0, None, BODY))
    for offset in (60, 70, 65):
        commit = asking(15, consumerGroup="G", topic="T", queueId="0", commitOffset=str(offset))
        desk.ask(commit, simple(0))
    made = desk.ask(pull(offset=70), answered(21, "OFFSET_RESET", 100, 100, 200))
    assert isinstance(made, Command)
    assert made.ext["nextBeginOffset"] == "40"
