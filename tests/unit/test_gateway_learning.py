"""What is learnt from requests: only what the broker has accepted; from one-way ones nothing that others would feel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.kit.fakearchive import FIRST_TIME, STEP_MS
from tests.kit.gatewaydesk import (
    Desk,
    answered,
    asking,
    found,
    heartbeat,
    offsets_of,
    pull,
    simple,
    too_small,
)
from tiered.codec.remoting.frame import ONEWAY, Command
from tiered.fetch.base import ReaderId
from tiered.gateway.ports import HOLD, ConnectionInfo

KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
TABLE = f'{{"offsetTable":{{{KEY}:100}}}}'.encode()
REFUSED = simple(1, "AclException: Check signature failed for accessKey=reader-01")
REFUSED_IN_5 = simple(16, "no permission")
BUSY = simple(2, "[REJECTREQUEST]system busy, start flow control for a while")
refusals = pytest.mark.parametrize("refusal", [REFUSED, REFUSED_IN_5, BUSY], ids=["acl", "5.x", "busy"])


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 10, 150, properties={offset: {"TAGS": "a"} for offset in range(10, 150)})
    yield made
    made.close()


def commit(offset: int, flag: int = 0) -> Command:
    made = asking(15, consumerGroup="G", topic="T", queueId="0", commitOffset=str(offset))
    made.flag = flag
    return made


def reset(desk: Desk) -> None:
    """The operator puts the group on 40; the broker, which begins at 100, puts it there."""
    time_ms = str(FIRST_TIME + 40 * STEP_MS)
    desk.ask(asking(222, topic="T", group="G", timestamp=time_ms, isForce="true"), simple(0, None, TABLE))


def delivered(desk: Desk) -> str:
    """Where the group's next pull is sent."""
    made = desk.ask(pull(offset=170), answered(21, "OFFSET_RESET", 100, 100, 200))
    assert isinstance(made, Command)
    return made.ext["nextBeginOffset"]


def position(desk: Desk, offset: int) -> None:
    """The broker is asked where the group stands."""
    desk.ask(asking(14, consumerGroup="G", topic="T", queueId="0"), simple(0, offset=str(offset)))


class TestHeartbeats:
    @refusals
    def test_a_refused_one_chooses_nothing_for_the_group(self, desk: Desk, refusal: Command) -> None:
        desk.heartbeat("G", "T", "a", version=5)
        bogus = heartbeat("G", "T", "nobody-has-this-tag", version=1 << 61)
        assert desk.ask(bogus, refusal) is refusal
        made = desk.ask(pull(offset=40, count=2, subscription=None), too_small(100, 200))
        assert offsets_of(made) == [40, 41]

    @refusals
    def test_a_refused_one_makes_nobody_known_or_alive(self, desk: Desk, refusal: Command) -> None:
        desk.ask(heartbeat("G", "T", "a", broadcast=True), refusal)
        assert desk.answers.clients.subscription("G", "T") is None
        assert desk.archive.living == set()
        assert desk.answers.clients.reader(desk.connection, "G") == ReaderId("G")

    def test_a_refused_short_one_is_refused_as_the_broker_does(self, desk: Desk) -> None:
        assert desk.ask(heartbeat("G", "T", short=True), REFUSED) is REFUSED

    def test_a_one_way_one_says_nothing(self, desk: Desk) -> None:
        bogus = heartbeat("G", "T", "a")
        bogus.flag = ONEWAY
        desk.answers.observe(bogus, desk.connection)
        assert desk.answers.clients.subscription("G", "T") is None

    def test_a_pull_that_overtakes_the_answer_waits_or_gets_everything(self, desk: Desk) -> None:
        """Its own expression counts first; by tag the client compares; SQL that is not known yet makes it ask again."""
        desk.answers.observe(heartbeat("G", "T", "a"), desk.connection)
        cold = too_small(100, 200)
        assert offsets_of(desk.ask(pull(offset=40, count=2, subscription=None), cold)) == [40, 41]
        assert desk.ask(pull(offset=40, subscription=None, kind="SQL92"), cold) == "retry"
        made = desk.ask(pull(offset=40, count=2, subscription="TAGS = 'a'", kind="SQL92"), cold)
        assert offsets_of(made) == [40, 41]

    def test_one_that_another_broker_took_is_not_ours(self, desk: Desk) -> None:
        other = ConnectionInfo(2, "c", "10.0.0.2:10911", "broker-b")
        desk.answers.learn(heartbeat("G", "T", "a"), simple(0), b"", other)
        assert desk.answers.clients.subscription("G", "T") is None


class TestReaders:
    @refusals
    def test_a_refused_pull_says_nothing_of_where_the_group_is(self, desk: Desk, refusal: Command) -> None:
        desk.ask(pull(offset=10**15), refusal)
        assert desk.archive.positions == {}
        desk.ask(pull(offset=120), found("T", 0, range(120, 122), 100, 200))
        assert desk.archive.positions == {(ReaderId("G"), "T", 0): 120}, "and takes nobody's turn"

    @refusals
    def test_a_refused_commit_says_nothing(self, desk: Desk, refusal: Command) -> None:
        assert desk.ask(commit(10**15), refusal) is refusal
        assert desk.archive.positions == {}
        desk.ask(commit(120), simple(0))
        assert desk.archive.positions == {(ReaderId("G"), "T", 0): 120}

    @refusals
    def test_a_refused_goodbye_sends_nobody_away(self, desk: Desk, refusal: Command) -> None:
        desk.heartbeat("G", "T")
        leave = asking(35, clientID="client-1", consumerGroup="G")
        assert desk.ask(leave, refusal) is refusal
        assert desk.archive.living == {ReaderId("G")}
        desk.ask(leave, simple(0))
        assert desk.archive.living == set()


class TestResets:
    @refusals
    def test_refused_commits_do_not_settle_a_reset(self, desk: Desk, refusal: Command) -> None:
        reset(desk)
        for offset in (10**15, 120):
            desk.ask(commit(offset), refusal)
        assert delivered(desk) == "40"

    def test_one_way_commits_do_not_settle_it_either(self, desk: Desk) -> None:
        """Anybody may send them. They only tell the cache."""
        reset(desk)
        for offset in (10**15, 120):
            desk.answers.observe(commit(offset, ONEWAY), desk.connection)
        assert desk.archive.positions == {(ReaderId("G"), "T", 0): 120}
        assert delivered(desk) == "40"

    def test_commits_that_the_broker_did_not_keep_settle_nothing(self, desk: Desk) -> None:
        reset(desk)
        for offset in (170, 120):
            desk.ask(commit(offset), simple(0, "Offset has been previously reset"))
        assert delivered(desk) == "40"

    def test_a_group_that_the_broker_itself_knows_to_have_gone_back_has_had_its_reset(
        self, desk: Desk
    ) -> None:
        reset(desk)
        position(desk, 170)
        position(desk, 120)
        assert delivered(desk) == "100"

    def test_where_the_broker_put_it_is_not_gone_back_yet(self, desk: Desk) -> None:
        reset(desk)
        for offset in (170, 100, 170, 175):
            position(desk, offset)
        assert delivered(desk) == "40"

    def test_an_answer_that_comes_late_is_no_step_back(self, desk: Desk) -> None:
        reset(desk)
        early, later = (asking(14, consumerGroup="G", topic="T", queueId="0") for _ in range(2))
        desk.answers.observe(early, desk.connection)
        desk.ask(later, simple(0, offset="175"))
        late = simple(0, offset="170")
        assert asyncio.run(desk.answers.answer(early, late, HOLD, desk.connection)) is None
        assert delivered(desk) == "40"
