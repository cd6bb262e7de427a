"""Pulls deep below the broker's begin: for how long, and for whom, what the broker said stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.kit.gatewaydesk import BROKER, Desk, found, heartbeat, offsets_of, pull, simple, too_small
from tests.kit.replacing import replace
from tiered.codec.remoting.frame import Command, encode_command
from tiered.errors import Unavailable
from tiered.gateway.ports import PASS, ConnectionInfo
from tiered.gateway.pull.recheck import DEEP_ANSWERS, MAX_CHARACTERS
from tiered.gateway.transport.frames import FrameWalk
from tiered.gateway.transport.limits import Traffic
from tiered.gateway.transport.pending import HeldAnswer, Pending, RequestJudge

BEGIN = 108
"""Of the broker's queue: pulls of 4 below 100 are deep."""
REFUSED = too_small(BEGIN, BEGIN + 100)


def made_desk(**settings: object) -> Desk:
    desk = Desk(**settings)  # type: ignore[arg-type]
    desk.archive.fill("T", 0, 0, BEGIN + 100)
    return desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = made_desk()
    yield made
    made.close()


def again(desk: Desk, request: Command) -> list[int] | None:
    """Offsets that the client gets without the broker; ``None``: the broker is asked."""
    known = desk.answers.stand_in(request, desk.connection)
    if known is None:
        return None
    answer, verdict = known
    assert answer.opaque == request.opaque
    made = asyncio.run(desk.answers.answer(request, answer, verdict, desk.connection))
    assert isinstance(made, Command)
    assert made.opaque == request.opaque
    assert desk.answers.at_once(request, answer, verdict, desk.connection) == made
    return offsets_of(made)


def test_the_next_pulls_are_answered_at_once(desk: Desk) -> None:
    assert again(desk, pull(offset=0, count=4)) is None
    assert offsets_of(desk.ask(pull(offset=0, count=4), REFUSED)) == [0, 1, 2, 3]
    assert again(desk, replace(pull(offset=4, count=4), opaque=99)) == [4, 5, 6, 7]
    assert again(desk, pull(offset=50, count=4, commitOffset="8")) == [
        50,
        51,
        52,
        53,
    ]  # that commit the broker gets later


def test_what_the_broker_said_stands_for_a_second_however_often_it_is_used(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    desk.clock.advance(0.6)
    assert again(desk, pull(offset=4, count=4)) == [4, 5, 6, 7]
    desk.clock.advance(0.39)
    assert again(desk, pull(offset=8, count=4)) == [8, 9, 10, 11]
    desk.clock.advance(0.02)
    assert again(desk, pull(offset=12, count=4)) is None
    desk.ask(pull(offset=12, count=4), REFUSED)
    assert again(desk, pull(offset=16, count=4)) == [16, 17, 18, 19]


def test_near_the_border_every_pull_goes_to_the_broker(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    assert again(desk, pull(offset=BEGIN - DEEP_ANSWERS * 4 - 1, count=4)) == [99, 100, 101, 102]
    assert again(desk, pull(offset=BEGIN - DEEP_ANSWERS * 4, count=4)) is None
    assert again(desk, pull(offset=BEGIN, count=4)) is None
    assert again(desk, pull(offset=-1, count=4)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "U"}, {"consumerGroup": "H"}, {"queueId": "1"}, {"subscription": "tag"}, {"subVersion": "2"},
        {"sysFlag": "4"},
        {"AccessKey": "other"}, {"AccessKey": "reader", "SecurityToken": "x"}, {"maxMsgNums": "5"}, {"lo": "true"},
    ],
)  # fmt: skip
def test_for_nothing_else_than_what_the_broker_has_judged(desk: Desk, other: dict[str, str]) -> None:
    mine = {"AccessKey": "reader", "Signature": "one"}
    desk.ask(pull(offset=0, count=4, **mine), REFUSED)
    assert again(desk, pull(offset=4, count=4, **mine | {"Signature": "two"})) == [4, 5, 6, 7]
    request = pull(offset=4, count=4, **mine)
    assert again(desk, replace(request, ext=request.ext | other)) is None


def test_not_on_another_connection(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    other = ConnectionInfo(2, "10.0.0.9:50000", "10.0.0.1:10911", BROKER)
    assert desk.answers.stand_in(pull(offset=4, count=4), other) is None


@pytest.mark.parametrize("change", ["code", "body", "oneway"])
def test_only_for_plain_pulls(desk: Desk, change: str) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    request = pull(offset=4, count=4)
    changed = {
        "code": replace(request, code=361),
        "body": replace(request, body=b"x"),
        "oneway": replace(request, flag=2),
    }
    assert again(desk, request) is not None
    assert again(desk, changed[change]) is None


def test_a_field_that_is_no_number_is_for_the_broker_to_judge(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    request = pull(offset=4, count=4)
    request.ext["queueOffset"] = "four"
    assert again(desk, request) is None


def test_after_the_archive_had_nothing_the_broker_is_asked(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    known = desk.answers.stand_in(pull(offset=4, count=4), desk.connection)
    assert known is not None
    desk.archive.error = Unavailable("the store is away")
    with pytest.raises(Unavailable):
        asyncio.run(desk.answers.answer(pull(offset=4, count=4), *known, desk.connection))
    desk.archive.error = None
    assert again(desk, pull(offset=4, count=4)) is None


def test_a_pull_that_the_broker_refuses_for_another_reason_proves_nothing(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), simple(16, "no permission"))
    assert again(desk, pull(offset=4, count=4)) is None
    desk.ask(pull(offset=BEGIN, count=4), found("T", 0, range(BEGIN, BEGIN + 4), BEGIN, BEGIN + 100))
    assert again(desk, pull(offset=4, count=4)) is None


def test_a_refusal_that_was_not_replaced_yet_proves_nothing(desk: Desk) -> None:
    request = pull(offset=0, count=4)
    desk.answers.learn(request, REFUSED, b"", desk.connection)
    assert desk.answers.judge(request, REFUSED, b"") is not PASS
    assert again(desk, pull(offset=4, count=4)) is None


def test_they_are_counted(desk: Desk) -> None:
    desk.ask(pull(offset=0, count=4), REFUSED)
    assert not desk.metrics.value("tiered_cold_unasked_total")
    again(desk, pull(offset=4, count=4))
    again(desk, pull(offset=BEGIN, count=4))
    assert desk.metrics.value("tiered_cold_unasked_total") == 1


def test_a_greedy_count_is_never_deep(desk: Desk) -> None:
    """An answer as full as the client wants would reach the border."""
    greedy = pull(offset=0, count=54)
    desk.ask(greedy, REFUSED)
    assert again(desk, greedy) is None


def test_off_by_setting() -> None:
    desk = made_desk(cold_recheck_ms=0)
    assert offsets_of(desk.ask(pull(offset=0, count=4), REFUSED)) == [0, 1, 2, 3]
    assert again(desk, pull(offset=4, count=4)) is None
    desk.close()


def test_requests_of_much_text_are_not_kept(desk: Desk) -> None:
    long = pull(offset=0, count=4, more="x" * MAX_CHARACTERS)
    assert offsets_of(desk.ask(long, REFUSED)) == [0, 1, 2, 3]
    assert again(desk, long) is None


def test_the_broker_does_not_see_them(desk: Desk) -> None:
    """Also of a connection that signs, and beside requests that go on."""
    for extra in ({}, {"AccessKey": "reader", "Signature": "one"}):
        held: list[HeldAnswer] = []
        judge = RequestJudge(
            desk.answers, desk.connection, Pending(desk.clock.monotonic), Traffic(), on_known=held.append
        )
        walk = FrameWalk(judge, 1 << 20)
        first = replace(pull(offset=0, count=4, **extra), opaque=1)
        assert b"".join(walk.feed(b"".join(encode_command(first)))) == b"".join(encode_command(first))
        desk.ask(first, REFUSED)
        between = replace(heartbeat("G", "T"), opaque=2)
        next_one = replace(pull(offset=4, count=4, **extra), opaque=3)
        sent = [b"".join(encode_command(one)) for one in (next_one, between, next_one)]
        assert b"".join(walk.feed(b"".join(sent))) == sent[1]
        assert [(one.request.opaque, one.answer.opaque, one.head) for one in held] == [(3, 3, b"")] * 2
