"""A connection on which requests are signed, over sockets: what cuts it, and what does not."""

from __future__ import annotations

import logging

import pytest

from tests.kit.gatewaykit import Peer, ScriptedAnswers, answer_to, frame, gateway, on_loop
from tiered.codec.remoting.frame import Command, decode_command

SIGNED = {"AccessKey": "own-01", "Signature": "c2lnbmVk"}


async def quiet_about_38(peer: Peer, data: bytes) -> None:
    """A broker that answers everything but code 38."""
    request = decode_command(data[4:])
    if request.code != 38:
        await peer.send(answer_to(request))


def test_a_second_use_of_an_opaque_cuts_the_connection_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        answers = ScriptedAnswers()
        async with gateway(answers, broker=quiet_about_38) as running:
            client, other = await running.client(), await running.client()
            await client.send(frame(Command(38, 7, ext=dict(SIGNED))))
            await running.broker.until(lambda: len(running.broker.frames) == 1)
            await client.send(frame(Command(11, 7, ext={"topic": "Secret", **SIGNED})))
            assert await client.at_end()
            assert running.cut("bad_frame") == 1
            assert len(running.broker.frames) == 1
            assert answers.asked == []
            await other.send(frame(Command(10, 7)))
            assert (await other.command()).opaque == 7

    with caplog.at_level(logging.WARNING, "tiered.gateway"):
        on_loop(test())
    assert "an opaque is used again before its answer came" in caplog.text


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_signed_requests_and_their_answers_pass(binary: bool) -> None:
    """One after the other with the same opaque, and many at once with opaques of their own."""

    async def test() -> None:
        async with gateway(broker=quiet_about_38) as running:
            client = await running.client()
            for code in (10, 11, 34, 10):
                await client.send(frame(Command(code, 1, ext=dict(SIGNED), binary=binary)))
                assert (await client.command()).opaque == 1
            many = [frame(Command(310, n, ext={"i": "a\x01b", **SIGNED}, binary=binary)) for n in range(100)]
            await client.send(b"".join(many))
            assert [(await client.command()).opaque for _ in range(100)] == list(range(100))
            assert running.cut("bad_frame") == 0

    on_loop(test())
