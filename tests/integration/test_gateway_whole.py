"""Answers that are collected because their first bytes do not tell, and go on because all of them do."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.gatewaykit import Peer, ScriptedAnswers, answer_to, frame, gateway, on_loop
from tiered.codec.remoting.frame import Command, decode_command
from tiered.gateway.ports import PEEK_BYTES


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
        answers = ScriptedAnswers(hot=lambda answer: known and len(answer.body) > PEEK_BYTES)
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

    on_loop(asyncio.wait_for(test(), 30))
