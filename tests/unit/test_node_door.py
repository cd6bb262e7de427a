"""What a read node says to consumers that ask it themselves, and on whose word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.gatewaydesk import BROKER, asking, heartbeat, pull
from tests.kit.replacing import replace
from tiered.clock import ManualClock
from tiered.codec.remoting.codes import PullStatus, RequestCode, ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command, decode_command, encode_command
from tiered.codec.remoting.nodebeat import (
    MOST_HOLD_MS,
    MOST_RECHECK_MS,
    NodeBeat,
    Vouch,
    beat_command,
)
from tiered.codec.remoting.nodepull import NodeAnswer, NodePull, NodeStatus
from tiered.errors import Invalid
from tiered.node.clients import MAX_BYTES, MAX_COUNT, MAX_OFFSET, MAX_QUEUES, ClientDoor, Turns
from tiered.node.crowd import Crowd

ARCHIVE = bytes(range(16))
OTHER = bytes(16)
ID = 0x4000_0001
VOUCH = Vouch(ARCHIVE, 7, ID, 1000, 5000, "")


class Door:
    """A node's door, on a clock that a test moves."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.clock = ManualClock()
        self.door = ClientDoor(self.clock, BROKER, wanted=wanted)
        self.turns = Turns()

    def hear(self, tick: str | None = None, **changed: Any) -> None:
        """A gateway's word, which has heard the node's time just now."""
        told = replace(VOUCH, tick=self.door.tick() if tick is None else tick, **changed)
        self.door.vouched(told, ARCHIVE)

    def given(self, request: Command, made: NodeAnswer) -> Command | None:
        question = self.door.question(request)
        return None if question is None else self.door.given(request, question, made, self.turns)


@pytest.fixture
def vouched() -> Door:
    made = Door()
    made.hear()
    return made


def found(following: int, high: int = 1000, low: int = 0) -> NodeAnswer:
    return NodeAnswer(NodeStatus.FOUND, 9, following, low, high, following, b"records")


# ---- the word


def over_the_wire(command: Command) -> Command:
    return decode_command(b"".join(encode_command(command))[4:])


def test_a_word_comes_as_it_was_given() -> None:
    told = replace(VOUCH, tick="life-12")
    sent = over_the_wire(beat_command(5, "secret", told))
    assert Vouch.parse(sent.ext) == told
    assert sent.ext["rtToken"] == "secret"
    assert Vouch.parse(over_the_wire(beat_command(5, "secret")).ext) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rtArchive", "00"), ("rtCommit", "-1"), ("rtCommit", "x"), ("rtBrokerId", "0"), ("rtBrokerId", "-4"),
        ("rtRecheckMs", "0"), ("rtRecheckMs", str(MOST_RECHECK_MS + 1)), ("rtHoldMs", "0"),
        ("rtHoldMs", str(MOST_HOLD_MS + 1)), ("rtHoldMs", "1e3"),
    ],
)  # fmt: skip
def test_a_word_that_makes_no_sense_is_none(field: str, value: str) -> None:
    assert Vouch.parse({**VOUCH.fields(), field: value}) is None


def test_a_beat_says_whether_consumers_may_come_and_what_time_it_is() -> None:
    for said in (NodeBeat(1, 2, clients=True, tick="life-1"), NodeBeat(1, 2)):
        answer = Command(ResponseCode.SUCCESS, 1, RESPONSE, ext=said.fields(), binary=True)
        assert NodeBeat.parse(over_the_wire(answer)) == said
    assert NodeBeat(1, 2).fields().keys() == {"rtWire", "rtWireFrom", "rtState", "rtVersion"}


def test_without_a_word_nobody_is_answered() -> None:
    door = Door()
    assert door.door.question(pull()) is None
    assert door.given(pull(), found(5)) is None


def test_a_word_ends_by_itself_from_when_the_node_said_its_time(vouched: Door) -> None:
    vouched.clock.advance(4.9)
    assert vouched.door.vouch is not None
    vouched.clock.advance(0.2)
    assert vouched.door.vouch is None
    old = vouched.door.tick()
    vouched.clock.advance(3.0)
    vouched.hear(old)
    vouched.clock.advance(1.9)
    assert vouched.door.vouch is not None, "5 s from then"
    vouched.clock.advance(0.2)
    assert vouched.door.vouch is None


def test_a_word_that_waited_while_the_node_hung_is_none(vouched: Door) -> None:
    """It lay in the socket; what it says of the broker was true a minute ago."""
    waiting = vouched.door.tick()
    vouched.clock.advance(60.0)
    vouched.hear(waiting)
    assert vouched.door.vouch is None


@pytest.mark.parametrize(
    "tick", ["", "x", "-", "0-0", "{life}-", "{life}-x", "{life}--5", "{life}-9999999", "{life}-²"]
)
def test_a_time_that_the_node_never_said_is_none(tick: str) -> None:
    door = Door()
    door.clock.advance(100.0)
    door.hear(tick.replace("{life}", door.door.tick().partition("-")[0]))
    assert door.door.vouch is None


def test_what_another_life_of_the_node_said_is_none(vouched: Door) -> None:
    again = Door()
    again.hear(vouched.door.tick())
    assert again.door.vouch is None


def test_a_word_of_another_archive_is_none_and_takes_nothing_back(vouched: Door) -> None:
    vouched.hear(archive_id=OTHER, commit=99)
    assert vouched.door.vouch is not None
    assert vouched.door.vouch.archive_id == ARCHIVE
    door = Door()
    door.door.vouched(replace(VOUCH, tick=door.door.tick()), None)
    assert door.door.vouch is None, "its own is not open"


def test_of_two_gateways_the_one_that_knows_more_counts(vouched: Door) -> None:
    vouched.hear(commit=20)
    vouched.clock.advance(4.0)
    vouched.hear(commit=10)
    assert vouched.door.vouch is not None
    assert vouched.door.vouch.commit == 20
    vouched.clock.advance(4.0)
    assert vouched.door.vouch is not None, "the other one's word holds"
    vouched.clock.advance(1.1)
    assert vouched.door.vouch is None
    vouched.hear(commit=10)
    assert vouched.door.vouch is not None
    assert vouched.door.vouch.commit == 10


def test_a_gateway_that_says_nothing_takes_nothing_back(vouched: Door) -> None:
    vouched.door.vouched(None, ARCHIVE)
    assert vouched.door.vouch is not None


def test_a_node_that_is_not_to_answer_consumers_does_not_whatever_it_is_told() -> None:
    door = Door(wanted=False)
    door.hear()
    assert door.door.vouch is None
    assert not door.door.asks(pull())
    assert not door.door.open


# ---- the question


def test_a_pull_is_asked_as_a_gateway_would(vouched: Door) -> None:
    assert vouched.door.question(pull(queue_id=3, offset=50, count=16, subscription="a || b")) == NodePull(
        ARCHIVE, 7, "T", 3, 50, 16, MAX_BYTES, "G", expression="a || b"
    )
    large = vouched.door.question(pull(count=100_000, maxMsgBytes=str(1 << 30)))
    assert large is not None
    assert (large.max_count, large.max_bytes) == (MAX_COUNT, MAX_BYTES)


@pytest.mark.parametrize(
    "changed",
    [
        {"bname": "broker-b"}, {"lo": "true"}, {"expressionType": "SQL92"}, {"sysFlag": "14"}, {"queueOffset": "-1"},
        {"queueId": "-1"}, {"maxMsgNums": "0"}, {"topic": "%LMQ%q"}, {"sysFlag": "7", "commitOffset": "40"},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_what_a_node_does_not_judge_goes_back(vouched: Door, changed: dict[str, str]) -> None:
    request = pull(offset=50)
    assert vouched.door.question(request) is not None
    assert vouched.door.question(replace(request, ext=request.ext | changed)) is None


@pytest.mark.parametrize("field", ["topic", "queueId", "queueOffset", "consumerGroup", "maxMsgNums"])
def test_a_pull_that_makes_no_sense(vouched: Door, field: str) -> None:
    request = pull()
    del request.ext[field]
    with pytest.raises(Invalid):
        vouched.door.question(request)
    assert vouched.door.most_bytes(request) == (0, "", "")


def test_only_pulls_and_heartbeats_are_consumers_questions(vouched: Door) -> None:
    asks = vouched.door.asks
    assert asks(pull())
    assert asks(pull(code=361))
    assert asks(heartbeat("G", "T"))
    assert asks(asking(RequestCode.UNREGISTER_CLIENT))
    for code in (
        RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.SEND_MESSAGE,
        RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    ):  # fmt: skip
        assert not asks(asking(code)), code
    assert not asks(NodePull(ARCHIVE, 7, "T", 3, 50, 16, 100, "G").command(1, "")), "a gateway's"
    assert not asks(beat_command(1, ""))


# ---- the answer


def test_messages_and_whom_to_ask_the_next_time(vouched: Door) -> None:
    answer = vouched.given(pull(offset=2), found(5))
    assert answer is not None
    assert (answer.code, answer.remark, answer.body) == (
        ResponseCode.SUCCESS,
        PullStatus.FOUND.value,
        b"records",
    )
    assert answer.opaque == 77
    assert answer.ext == {
        "suggestWhichBrokerId": str(ID), "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "1000",
    }  # fmt: skip


def test_up_to_where_a_filter_took_none(vouched: Door) -> None:
    made = NodeAnswer(NodeStatus.NO_MATCHED_MESSAGE, 9, 40, 0, 1000)
    answer = vouched.given(pull(offset=2), made)
    assert answer is not None
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "40")


@pytest.mark.parametrize(
    "made",
    [
        NodeAnswer(NodeStatus.ELSEWHERE, 9, 50, 0, 1000),
        NodeAnswer(NodeStatus.OTHER_ARCHIVE),
        NodeAnswer(NodeStatus.BEHIND, 3),
        NodeAnswer(NodeStatus.OVER_BUDGET, 9, wait_ms=50),
        NodeAnswer(NodeStatus.FOUND, 9, 5, 0, 1000, 0, b""),
        NodeAnswer(NodeStatus.NO_MATCHED_MESSAGE, 9, 2, 0, 1000),
        found(2),
        found(1),
    ],
    ids=lambda made: f"{made.status.value} {made.next_offset}",
)
def test_whatever_is_no_progress_is_no_answer(vouched: Door, made: NodeAnswer) -> None:
    assert vouched.given(pull(offset=2), made) is None


def test_the_end_of_what_is_archived_is_nobodys_end(vouched: Door) -> None:
    """A program that reads until ``nextBeginOffset`` is ``maxOffset`` would stop there, and the broker has more."""
    assert vouched.given(pull(offset=990), found(999, 1000)) is not None
    assert vouched.given(pull(offset=990), found(1000, 1000)) is None


@pytest.mark.parametrize("offset", [0, 50, -1, MAX_OFFSET])
def test_who_is_sent_back_loses_nothing_and_takes_nothing_for_the_end(offset: int) -> None:
    answer = Door().door.sent_back(pull(offset=offset))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (answer.ext["suggestWhichBrokerId"], answer.ext["nextBeginOffset"]) == ("0", str(offset))
    low, high = int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])
    assert low <= offset <= high <= MAX_OFFSET
    assert offset < high or offset == MAX_OFFSET
    assert answer.body == b""


def test_a_word_that_ends_while_it_is_read_takes_the_answer_along(vouched: Door) -> None:
    question = vouched.door.question(pull(offset=2))
    assert question is not None
    vouched.clock.advance(6.0)
    assert vouched.door.given(pull(offset=2), question, found(5), vouched.turns) is None


# ---- turns


def test_everybody_is_back_at_the_gateway_once_in_a_while(vouched: Door) -> None:
    """There the broker is asked: a reset, a right that is gone, a topic that is none are seen no later."""
    suggested = []
    for step in range(40):
        vouched.hear()
        answer = vouched.given(pull(offset=step), found(step + 1))
        assert answer is not None
        suggested.append(answer.ext["suggestWhichBrokerId"] == "0")
        vouched.clock.advance(0.125)
    assert [step for step, back in enumerate(suggested) if back] == [8, 17, 26, 35]


def test_groups_of_one_process_take_no_turn_from_each_other() -> None:
    """However they come: each is back in time."""
    turns = Turns()
    one, two = (NodePull(ARCHIVE, 7, "T", 0, 0, 1, 1, group) for group in "GH")
    assert not turns.is_over(one, 0.0, 1.0)
    assert not turns.is_over(two, 0.5, 1.0)
    assert turns.is_over(two, 1.5, 1.0)
    assert turns.is_over(one, 1.6, 1.0)


def test_turns_are_bounded() -> None:
    turns = Turns()
    for queue in range(MAX_QUEUES):
        assert not turns.is_over(NodePull(ARCHIVE, 7, "T", queue, 0, 1, 1, "G"), 0.0, 1.0)
    more = NodePull(ARCHIVE, 7, "U", 0, 0, 1, 1, "G")
    assert turns.is_over(more, 0.5, 1.0), "no room: back to the gateway"
    assert not turns.is_over(more, 1.5, 1.0), "the others' turns are over"
    assert len(turns._since) == 1


# ---- places


def test_places_are_counted_by_host_and_together() -> None:
    crowd = Crowd(3, 2)
    assert [crowd.admit(host) for host in ("a", "a")] == [None, None]
    assert "serve.max_clients_per_host is 2" in str(crowd.admit("a"))
    assert crowd.admit("b") is None
    assert "serve.max_clients is 3" in str(crowd.admit("c"))
    crowd.leave("a")
    assert crowd.admit("c") is None
    for host in ("a", "b", "c"):
        crowd.leave(host)
    assert crowd.taken == 0
    assert not crowd._hosts


def test_without_room_it_is_not_open() -> None:
    door = Door()
    assert door.door.open
    door.door.room = lambda: False
    assert not door.door.open
