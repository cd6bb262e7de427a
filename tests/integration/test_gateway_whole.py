"""Answers that are collected because their first bytes do not tell, and go on because all of them do."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.gatewaykit import Peer, ScriptedAnswers, answer_to, frame, gateway, on_loop
from tiered.codec.remoting.frame import Command, decode_command
from tiered.gateway.ports import HOLD, NEED_BODY, PASS, PEEK_BYTES


async def scattered(peer: Peer, data: bytes) -> None:
    """A broker whose answers come in pieces of all sizes."""
    request = decode_command(data[4:])
    answer = answer_to(request, body=bytes([request.opaque]) * (PEEK_BYTES * 3))
    if request.opaque % 3:
        for at in range(0, len(answer), 37 * request.opaque):
            await peer.send(answer[at : at + 37 * request.opaque])
            await asyncio.sleep(0)
    else:
        await peer.send(answer)


@pytest.mark.parametrize("known", [True, False], ids=["by-its-body", "by-nothing"])
def test_what_passes_by_its_whole_body_comes_byte_for_byte(known: bool) -> None:
    async def test() -> None:
        answers = ScriptedAnswers(first=NEED_BODY, then=PASS if known else HOLD)
        async with gateway(answers, scattered) as running:
            client = await running.client()
            requests = [Command(11 if n % 2 else 10, n) for n in range(1, 40)]
            await client.send(*map(frame, requests))
            got = {}
            for _ in requests:
                data = await client.receive()
                got[decode_command(data[4:]).opaque] = data
            assert got == {r.opaque: answer_to(r, body=bytes([r.opaque]) * PEEK_BYTES * 3) for r in requests}
            assert len(answers.asked) == (0 if known else 20)
            assert running.held("passed") == len(answers.asked)
            assert answers.judged.count(PEEK_BYTES * 3) == 20  # each by all of it, once
            at_first = answers.judged.count(PEEK_BYTES)  # of those that came in pieces
            assert at_first <= 20
            assert len(answers.judged) == 20 + at_first

    on_loop(asyncio.wait_for(test(), 30))


def test_what_is_held_by_its_first_bytes_is_not_judged_again() -> None:
    async def test() -> None:
        answers = ScriptedAnswers(first=HOLD, then=PASS)
        async with gateway(answers, scattered) as running:
            client = await running.client()
            await client.send(frame(Command(11, 1)))
            await client.receive()
            assert answers.judged == [PEEK_BYTES]
            assert len(answers.asked) == 1

    on_loop(asyncio.wait_for(test(), 30))
