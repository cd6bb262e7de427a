"""The question to a read node and its answer, as header fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command, decode_command, encode_command
from tiered.codec.remoting.nodepull import BODY_SUM, COUNT, STATUS, NodeAnswer, NodePull, NodeStatus
from tiered.errors import Corrupt, Invalid, Unavailable

PULL = NodePull(bytes(range(16)), 7, "Tópic", 3, 2**62, 32, 65_536, "group", "client@1", "a || b", "TAG")
ANSWER = NodeAnswer(NodeStatus.FOUND, 9, 12, 2, 40, 1, b"record")


def over_the_wire(command: Command) -> Command:
    return decode_command(b"".join(encode_command(command))[4:])


def answered(answer: NodeAnswer, **changed: str) -> Command:
    return Command(
        ResponseCode.SUCCESS, 1, RESPONSE, ext={**answer.fields(), **changed}, body=answer.body, binary=True
    )


def test_a_question_comes_as_it_was_asked() -> None:
    for pull in (PULL, replace(PULL, client="", expression="")):
        command = over_the_wire(pull.command(5, "secret"))
        assert NodePull.parse(command.ext) == pull
        assert (command.opaque, command.ext["rtToken"]) == (5, "secret")
    assert "rtToken" not in PULL.command(5, "").ext


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rtArchive", "00"),
        ("rtArchive", "zz" * 16),
        ("rtArchive", " " + "0" * 31),
        ("rtCommit", "-1"),
        ("rtCommit", "1e3"),
        ("topic", ""),
        ("queueId", "-1"),
        ("queueId", str(2**31)),
        ("queueOffset", "-1"),
        ("maxMsgNums", "0"),
        ("maxMsgNums", "65537"),
        ("maxMsgBytes", "0"),
        ("consumerGroup", ""),
    ],
)
def test_a_question_that_makes_no_sense_names_the_field(field: str, value: str) -> None:
    with pytest.raises(Invalid) as caught:
        NodePull.parse({**PULL.command(1, "").ext, field: value})
    assert caught.value.fields["field"] == field


def test_an_answer_comes_as_it_was_given() -> None:
    assert NodeAnswer.parse(over_the_wire(answered(ANSWER))) == ANSWER
    for status in NodeStatus:
        assert NodeAnswer.parse(over_the_wire(answered(NodeAnswer(status)))).status is status


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (BODY_SUM, "00000000"),
        (BODY_SUM, ""),
        (STATUS, "LOST"),
        (COUNT, "-1"),
        ("nextBeginOffset", "x"),
        ("rtCommit", ""),
    ],
)
def test_a_damaged_answer_is_not_believed(field: str, value: str) -> None:
    with pytest.raises(Corrupt):
        NodeAnswer.parse(answered(ANSWER, **{field: value}))


def test_every_flipped_bit_of_a_body_is_found() -> None:
    for at in range(8 * len(ANSWER.body)):
        body = bytearray(ANSWER.body)
        body[at // 8] ^= 1 << at % 8
        damaged = answered(ANSWER)
        damaged.body = bytes(body)
        with pytest.raises(Corrupt, match="checksum"):
            NodeAnswer.parse(damaged)


def test_a_node_that_is_busy_and_one_that_refuses() -> None:
    with pytest.raises(Unavailable, match="busy"):
        NodeAnswer.parse(Command(ResponseCode.SYSTEM_BUSY, 1, RESPONSE, "later"))
    with pytest.raises(Corrupt) as caught:
        NodeAnswer.parse(Command(ResponseCode.NO_PERMISSION, 1, RESPONSE, "the token is not serve.token"))
    assert "serve.token" in str(caught.value)
