"""What anybody can send before any login must not fill the log: lines are few, and what they repeat is short."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.kit.gatewaydesk import Desk, asking, pull, too_small
from tests.kit.gatewaykit import Peer, ScriptedAnswers, answer_to, gateway, on_loop
from tiered.codec.remoting.frame import Command, decode_command, encode_command
from tiered.errors import Unavailable
from tiered.gateway.ports import clipped

REQUESTS = 2000
LONG = 100_000


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 10, 150, holes=[(20, 120)])
    yield made
    made.close()


def written(caplog: pytest.LogCaptureFixture) -> int:
    """About how many bytes the lines take, their fields included."""
    return sum(len(record.getMessage()) + len(str(vars(record))) for record in caplog.records)


def test_other_brokers_names(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A name in a request costs its sender nothing, a line for each costs the disk."""
    for number in range(REQUESTS):
        request = asking(31, topic="T", queueId="0")
        request.ext["bname"] = f"{number}" + "x" * LONG
        assert not desk.answers.wants(request)
    assert len(caplog.records) == 1
    assert written(caplog) < 5000
    desk.clock.advance(60)
    other = asking(31, topic="T", queueId="0")
    other.ext["bname"] = "one more"
    desk.answers.wants(other)
    assert vars(caplog.records[-1])["unsaid"] == REQUESTS - 1, "how many there were is said"


def test_one_hole_is_one_line_wherever_it_is_asked_for(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for offset in range(20, 120):
        made = desk.ask(pull(offset=offset), too_small(130, 200))
        assert isinstance(made, Command)
        assert made.code == 20
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_answers_that_say_try_again(caplog: pytest.LogCaptureFixture) -> None:
    async def make(request: Command, answer: Command) -> None:
        raise Unavailable("away", topic=request.ext["topic"])

    async def test() -> None:
        async with gateway(ScriptedAnswers(make), broker=answering) as running:
            client = await running.client()
            for opaque in range(50):
                request = Command(11, opaque, ext={"topic": "T" * LONG})
                await client.send(b"".join(encode_command(request)))
                assert len((await client.command()).remark or "") <= 1000

    async def answering(peer: Peer, data: bytes) -> None:
        await peer.send(answer_to(decode_command(data[4:])))

    on_loop(test())
    lines = [record for record in caplog.records if "try again" in record.getMessage()]
    assert 1 <= len(lines) < 10
    assert written(caplog) < 50_000


def test_long_texts_say_how_long_they_were() -> None:
    assert clipped("short") == "short"
    assert clipped("x" * LONG) == "x" * 200 + f"… ({LONG} characters)"
