"""Pulls of lite queues through the gateway: what the broker has deleted of them, in the broker's own offsets, or a retry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import put
from tests.kit.gatewaydesk import (
    RETRY,
    Desk,
    answered,
    asking,
    at_default_level,
    fields,
    pull,
    simple,
    too_small,
)
from tests.kit.litebroker import LiteBroker
from tests.kit.readstore import Cold, cold
from tests.kit.replacing import replace
from tiered.codec.format.edits import EditKind, batch
from tiered.codec.remoting.frame import Command
from tiered.errors import Unavailable
from tiered.gateway.knowledge.caughtup import FLOOR_SECONDS

NAME = "%LMQ%a"


class Lite:
    """A lite queue of 40 messages, all archived, of which the broker still has those from offset 30 on."""

    def __init__(self, made: Cold) -> None:
        self.made = made
        broker = made.broker = LiteBroker(made.broker.store)
        for number in range(80):
            broker.time_ms += 10
            broker.place([NAME] if number % 2 else [], queue_id=number % 4)
        made.archive()
        self.placed = list(broker.placed()[NAME].values())
        self.desk = Desk(at_default_level(made.open()), lite_queues=True)
        self.desk.begin = self.place(30) - 5

    def place(self, offset: int) -> int:
        return int.from_bytes(self.placed[offset][28:36], "big")

    def ask(self, offset: int, low: int = 30, high: int = 40, count: int = 8, **ext: str) -> Command | str:
        return self.desk.ask(pull(NAME, offset=offset, count=count, **ext), too_small(low, high))

    def got(self, offset: int, **options: int) -> list[bytes]:
        made = self.ask(offset, **options)
        assert isinstance(made, Command), made
        assert made.code == 0
        assert made.ext["maxOffset"] == "40"
        following = int(made.ext["nextBeginOffset"])
        records = self.placed[offset:following]
        assert bytes(made.body) == b"".join(records)
        return records


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Lite]:
    with cold(tmp_path, open_now=False, dispatch={"lite_queues": True}) as made:
        found = Lite(made)
        yield found
        found.desk.close()


def test_what_the_broker_deleted_comes_from_the_archive(lite: Lite) -> None:
    assert len(lite.got(0)) == 8
    assert len(lite.got(28, count=32)) == 12, "and on, into what the broker still has"
    assert lite.desk.count("pull", "archive") == 2


def test_a_filter_that_cannot_be_run_is_refused_and_skips_nothing(lite: Lite) -> None:
    made = lite.ask(0, subscription="a >", expressionType="SQL92")
    assert isinstance(made, Command)
    assert made.code == 23
    assert lite.desk.count("pull", "refused") == 1


@pytest.mark.parametrize("fields", [{"queueId": "x"}, {"maxMsgNums": "many"}])
def test_a_pull_that_makes_no_sense_is_asked_again(lite: Lite, fields: dict[str, str]) -> None:
    assert lite.ask(0, **fields) == RETRY


def test_what_the_broker_has_passes_unread(lite: Lite) -> None:
    """The records' own offsets are those of other queues, so that every answer would look like a gap."""
    body = b"".join(lite.placed[30:])
    answer = answered(0, "FOUND", 40, 30, 40, body=body)
    assert lite.desk.ask(pull(NAME, offset=30), answer) is answer


def test_a_lite_queue_that_is_not_archived_passes_once_it_is_sure_that_it_never_will_be(lite: Lite) -> None:
    answer = too_small(30, 40)
    assert lite.desk.ask(pull("%LMQ%unknown", offset=3), answer) == RETRY, "it may be what comes next"
    lite.desk.clock.advance(FLOOR_SECONDS)
    assert lite.desk.ask(pull("%LMQ%unknown", offset=3), answer) == replace(answer, code=20)
    lite.desk.begin = 1 << 60
    assert lite.desk.ask(pull("%LMQ%another", offset=3), answer) == RETRY
    lite.desk.clock.advance(FLOOR_SECONDS)
    assert lite.desk.ask(pull("%LMQ%another", offset=3), answer) == RETRY, "the archive is behind"


@pytest.mark.parametrize(
    ("low", "high"),
    [(29, 40), (31, 40), (30, 39), (20, 30)],
)
def test_numbered_otherwise_the_client_is_told_to_try_again(lite: Lite, low: int, high: int) -> None:
    assert lite.ask(0, low, high) == RETRY


def test_while_the_broker_deletes_or_says_nothing_the_client_tries_again(lite: Lite) -> None:
    lite.desk.begin = lite.place(31) - 5
    assert lite.ask(0) == RETRY
    assert lite.ask(0, low=31) != RETRY
    lite.desk.begin = None
    assert lite.ask(0) == RETRY


def test_a_broker_that_has_nothing_left(lite: Lite) -> None:
    lite.desk.begin = lite.place(39) + 500
    assert len(lite.got(35, low=40)) == 5
    assert lite.ask(35, low=39) == RETRY
    assert lite.ask(35, low=41, high=41) == RETRY
    assert lite.ask(35, low=40, high=41) != RETRY, "the last one is not archived yet"


def test_what_is_not_archived_yet_is_waited_for(lite: Lite) -> None:
    assert lite.ask(40, low=60, high=70) == RETRY


def test_a_signed_lite_pull_passes_since_no_broker_checks_it(lite: Lite) -> None:
    answer = too_small(30, 40)
    assert lite.desk.ask(pull(NAME, offset=3, code=361, AccessKey="k"), answer) == replace(answer, code=20)
    made = lite.desk.ask(pull(NAME, offset=3, code=361), answer)
    assert isinstance(made, Command)
    assert made.code == 0
    made = lite.desk.ask(pull(NAME, offset=3, AccessKey="k"), answer)
    assert isinstance(made, Command)
    assert made.code == 0, "pull 11 is checked by the broker"
    assert lite.desk.count("pull", "unchecked") == 1


def test_a_filter_that_takes_none_moves_on(lite: Lite) -> None:
    made = lite.ask(0, subscription="Nothing")
    assert isinstance(made, Command)
    assert (made.code, made.ext["nextBeginOffset"], bytes(made.body)) == (20, "8", b"")


def question(
    lite: Lite, code: int, answer: Command, low: int | None = 30, high: int = 40, **ext: str
) -> Command | str:
    """A question about the lite queue, to a broker whose queue has these bounds and that gave this answer."""
    lite.desk.minimum, lite.desk.queue_end = low, high
    return lite.desk.ask(asking(code, topic=NAME, queueId="0", **ext), answer)


def time_of(lite: Lite, offset: int) -> int:
    return int.from_bytes(lite.placed[offset][56:64], "big")


def test_questions_are_answered_for_all_that_there_is(lite: Lite) -> None:
    assert fields(question(lite, 31, simple(0, offset="30"))) == {"offset": "0"}
    assert fields(question(lite, 32, simple(0, timestamp="9999999999999"))) == {
        "timestamp": str(time_of(lite, 0))
    }
    for offset in (0, 7, 35):
        made = question(lite, 29, simple(0, offset="30"), timestamp=str(time_of(lite, offset)))
        assert fields(made) == {"offset": str(offset)}
    late = str(time_of(lite, 39) + 1)
    assert fields(question(lite, 29, simple(0, offset="40"), timestamp=late)) == {"offset": "40"}
    assert fields(question(lite, 30, simple(0, offset="40"))) == {"offset": "40"}, "the broker's, as ever"


@pytest.mark.parametrize(("low", "high"), [(29, 40), (31, 40), (30, 39)])
def test_questions_about_a_queue_that_is_numbered_otherwise_are_to_be_asked_again(
    lite: Lite, low: int, high: int
) -> None:
    assert question(lite, 31, simple(0, offset=str(low)), low, high) == RETRY
    assert question(lite, 29, simple(0, offset=str(low)), low, high, timestamp="5") == RETRY
    assert question(lite, 32, simple(0, timestamp="5"), low, high) == RETRY


def test_questions_that_pass(lite: Lite) -> None:
    answer = simple(0, offset="0")
    assert question(lite, 31, answer, 0) is answer, "nothing was deleted"
    answer = simple(0, offset="3")
    assert question(lite, 29, answer, None, timestamp="5") is answer, (
        "the broker does not say where it begins"
    )
    assert lite.desk.count("search_offset", "unchecked") == 1
    lite.desk.minimum = 30
    unknown = asking(31, topic="%LMQ%unknown", queueId="0")
    assert lite.desk.ask(unknown, answer) is answer
    lite.desk = Desk(at_default_level(lite.made.store))
    assert question(lite, 31, answer) is answer, "switched off"
    lite.desk.close()


def test_where_retention_left_less_than_the_broker_has_its_answers_stand(lite: Lite) -> None:
    for queue_id in (1, 3):
        trimmed = batch(EditKind.TRIM_QUEUE, topic="Orders", queue_id=queue_id, generation=1, first_offset=18)
        put(lite.made.daemon.log, trimmed)
    lite.made.fresh()
    lite.made.store.follow()
    answer = too_small(30, 40)
    assert lite.desk.ask(pull(NAME, offset=3), answer) == replace(answer, code=20)
    answer = simple(0, offset="30")
    assert question(lite, 31, answer) is answer


KEY = '{"brokerName":"broker-a","queueId":0,"topic":"%s"}'


def table(**value: int) -> bytes:
    """A table of the broker's, of the one lite queue."""
    return ('{"offsetTable":{' + KEY % NAME + ":" + json.dumps(value, separators=(",", ":")) + "}}").encode()


def body(answer: Command | str) -> bytes:
    assert isinstance(answer, Command), answer
    return bytes(answer.body)


def spans(first: int) -> bytes:
    queue = {"topic": NAME, "brokerName": "broker-a", "queueId": 0}
    return json.dumps(
        {"consumeTimeSpanSet": [{"messageQueue": queue, "minTimeStamp": first}]}, separators=(",", ":")
    ).encode()


def test_tables_are_filled_in(lite: Lite) -> None:
    whole = table(lastUpdateTimestamp=5, maxOffset=40, minOffset=30)
    made = question(lite, 202, simple(0, body=whole))
    assert body(made) == table(lastUpdateTimestamp=5, maxOffset=40, minOffset=0)
    gone = table(lastUpdateTimestamp=0, maxOffset=40, minOffset=40)
    lite.desk.begin = lite.place(39) + 500
    assert body(question(lite, 202, simple(0, body=gone), 40)) == table(
        lastUpdateTimestamp=time_of(lite, 39), maxOffset=40, minOffset=0
    )
    lite.desk.begin = lite.place(30) - 5
    behind = table(brokerOffset=40, consumerOffset=7, lastTimestamp=0)
    made = question(lite, 208, simple(0, body=behind), consumerGroup="G")
    assert body(made) == table(brokerOffset=40, consumerOffset=7, lastTimestamp=time_of(lite, 6))
    made = question(lite, 303, simple(0, body=spans(time_of(lite, 30))), group="G")
    assert body(made) == spans(time_of(lite, 0))


def test_tables_of_a_queue_that_is_numbered_otherwise(lite: Lite) -> None:
    """A minimum or a first time would look like the right one; a time that is missing shows by itself."""
    whole = table(lastUpdateTimestamp=5, maxOffset=40, minOffset=29)
    assert question(lite, 202, simple(0, body=whole), 29) == RETRY
    assert question(lite, 303, simple(0, body=spans(5)), 29, group="G") == RETRY
    behind = simple(0, body=table(brokerOffset=40, consumerOffset=7, lastTimestamp=0))
    assert question(lite, 208, behind, 29, consumerGroup="G") is behind
    assert lite.desk.count("consume_stats", "unchecked") == 1


def test_tables_that_pass(lite: Lite) -> None:
    whole = simple(0, body=table(lastUpdateTimestamp=5, maxOffset=40, minOffset=30))
    assert question(lite, 202, whole, None) is whole, "the broker does not say where it begins"
    assert lite.desk.count("topic_stats", "unchecked") >= 1
    lite.desk.close()
    lite.desk = Desk(at_default_level(lite.made.store))
    assert question(lite, 202, whole) is whole, "switched off"


def order(lite: Lite, offset: int, low: int = 30, answered_offset: int = 30) -> Command | str:
    reset = ('{"offsetTable":{' + KEY % NAME + f":{answered_offset}" + "}}").encode()
    ext = {"group": "G", "timestamp": str(time_of(lite, offset)), "isForce": "true"}
    return question(lite, 222, simple(0, body=reset), low, **ext)


def test_a_reset_leads_into_the_archive(lite: Lite) -> None:
    assert b":7}" in body(order(lite, 7))
    position = asking(14, topic=NAME, queueId="0", consumerGroup="G")
    assert fields(lite.desk.ask(position, simple(0, offset="30"))) == {"offset": "7"}
    moved = answered(21, "OFFSET_RESET", 30, 30, 40)
    made = lite.desk.ask(pull(NAME, offset=40), moved)
    assert fields(made)["nextBeginOffset"] == "7"
    assert lite.desk.ask(pull(NAME, offset=40), moved) is moved, "once"
    assert len(lite.got(7)) == 8


def test_a_group_that_went_back_has_had_its_reset(lite: Lite) -> None:
    order(lite, 7)
    for offset in ("39", "33"):
        commit = asking(15, topic=NAME, queueId="0", consumerGroup="G", commitOffset=offset)
        lite.desk.ask(commit, simple(0))
    position, answer = asking(14, topic=NAME, queueId="0", consumerGroup="G"), simple(0, offset="30")
    assert lite.desk.ask(position, answer) is answer


def test_a_reset_that_cannot_be_told_is_given_again(lite: Lite) -> None:
    assert order(lite, 7, low=29) == RETRY
    assert b":35}" in body(order(lite, 35, answered_offset=35)), "what the broker has itself"
    assert lite.desk.answers.wants(asking(222, topic=NAME, group="G", timestamp="5", isForce="true"))
    position, answer = asking(14, topic=NAME, queueId="0", consumerGroup="G"), simple(0, offset="30")
    assert lite.desk.ask(position, answer) is answer


def test_a_consumer_that_the_broker_tells_is_led_into_the_archive(lite: Lite) -> None:
    reset = ('{"offsetTable":{' + KEY % NAME + ":30}}").encode()
    ext = {"topic": NAME, "group": "G", "timestamp": str(time_of(lite, 7)), "isForce": "false"}
    lite.desk.minimum, lite.desk.queue_end = 30, 40
    notice = Command(220, 5, 2, None, ext, reset, 397)
    made = asyncio.run(lite.desk.answers.notice(notice, lite.desk.connection))
    assert made is not None
    assert made.body == reset.replace(b":30}", b":7}")
    lite.desk.minimum = 29
    with pytest.raises(Unavailable):
        asyncio.run(lite.desk.answers.notice(notice, lite.desk.connection))
