"""What the gateway knows of the broker: from whose answers, and what it asks when a time or a reset hangs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.kit.fakearchive import time_of
from tests.kit.gatewaydesk import RETRY, Desk, answered, asking, fields, found, pull, simple, too_small
from tests.kit.replacing import replace
from tiered.codec.remoting.frame import ONEWAY, Command
from tiered.errors import Unavailable
from tiered.gateway.knowledge.caughtup import FLOOR_SECONDS

TABLE = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:170}}'


@pytest.fixture
def desk() -> Iterator[Desk]:
    """The archive has [10, 150) of the queue."""
    made = Desk()
    made.archive.fill("T", 0, 10, 150)
    yield made
    made.close()


def search(offset: int) -> Command:
    return asking(29, topic="T", queueId="0", timestamp=str(time_of(offset)))


def order(offset: int) -> Command:
    return asking(222, topic="T", group="G", timestamp=str(time_of(offset)), isForce="true")


def nameless(request: Command) -> Command:
    """As older clients send it: without the broker's name."""
    return replace(request, ext={key: value for key, value in request.ext.items() if key != "bname"})


class TestWhoseAnswer:
    def test_clients_that_name_no_broker_tell_where_it_begins(self, desk: Desk) -> None:
        desk.ask(nameless(pull(offset=180)), found("T", 0, range(180, 181), 170, 200))
        assert desk.ask(search(160), simple(0, offset="170")) == RETRY

    def test_another_broker_is_no_evidence_whatever_its_client_says(self, desk: Desk) -> None:
        ours = desk.connection
        assert desk.ask(pull(offset=160), too_small(170, 200)) == RETRY
        desk.connection = replace(ours, broker_name="broker-b", broker_address="10.0.0.2:10911")
        desk.ask(pull(offset=180), found("T", 0, range(180, 181), 170, 200))
        desk.connection = ours
        desk.archive.reached = 1 << 50
        assert desk.ask(pull(offset=160), too_small(170, 200)) == RETRY


class TestATimeBehindTheArchive:
    """The broker says 170 for a time that no archived message has; it may begin there, or earlier."""

    def test_it_is_asked_where_it_begins(self, desk: Desk) -> None:
        answer = simple(0, offset="170")
        desk.minimum = 150
        assert desk.ask(search(160), answer) is answer
        desk.minimum = 170
        assert desk.ask(search(160), answer) == RETRY
        assert fields(desk.ask(search(40), answer)) == {"offset": "40"}, "the archive knows that one"

    def test_without_an_answer_the_client_tries_again(self, desk: Desk) -> None:
        with patch.object(desk, "queue_begin", side_effect=Unavailable("away")):
            assert desk.ask(search(160), simple(0, offset="170")) == RETRY

    def test_an_offset_inside_the_archive_needs_no_question(self, desk: Desk) -> None:
        desk.minimum = 170
        answer = simple(0, offset="150")
        assert desk.ask(search(160), answer) is answer

    def test_a_broker_that_has_nothing_says_0(self, desk: Desk) -> None:
        desk.minimum = 170
        assert desk.ask(search(160), simple(0, offset="0")) == RETRY

    def test_resets_are_asked_for_too(self, desk: Desk) -> None:
        answer = simple(0, None, TABLE)
        notice = Command(
            220, 5, ONEWAY, None, {"topic": "T", "group": "G", "timestamp": str(time_of(160))}, TABLE, 397
        )
        desk.minimum = 150
        assert desk.ask(order(160), answer) is answer
        assert asyncio.run(desk.answers.notice(notice, desk.connection)) is None
        desk.minimum = 170
        assert desk.ask(order(160), answer) == RETRY
        with pytest.raises(Unavailable):
            asyncio.run(desk.answers.notice(notice, desk.connection))


def test_light_queues_pass(desk: Desk) -> None:
    """Their records name offsets of the topic they were sent to, so that every answer would look like a gap."""
    desk.archive.fill("%LMQ%device-1", 0, 0, 5)
    answer = found("T", 0, range(100, 101), 0, 7)
    answer.ext["nextBeginOffset"] = "4"
    assert not desk.answers.wants(pull("%LMQ%device-1", offset=3))
    assert desk.ask(pull("%LMQ%device-1", offset=3), answer) is answer
    moved = answered(21, "OFFSET_TOO_SMALL", 3, 3, 7)
    assert desk.ask(pull("%LMQ%device-1", offset=1), moved) is moved


def test_many_queues_can_wait_for_proof_at_once(desk: Desk) -> None:
    """Each asks every second; none is forgotten before the start of the broker's log proves it archived."""
    queues = 6000
    for queue_id in range(queues):
        desk.archive.fill("Many", queue_id, 10, 11)
    desk.begin, desk.archive.reached = 0, 1 << 50

    async def all_ask() -> int:
        made = 0
        for queue_id in range(queues):
            try:
                request = pull("Many", queue_id, 15)
                answer = too_small(20, 30)
                verdict = desk.judge(request, answer)
                made += await desk.answers.answer(request, answer, verdict, desk.connection) is not None
            except Unavailable:
                pass
        return made

    assert asyncio.run(all_ask()) == 0
    desk.clock.advance(FLOOR_SECONDS)
    assert asyncio.run(all_ask()) == queues
