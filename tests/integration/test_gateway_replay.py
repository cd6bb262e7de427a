"""Recorded frames of a real client and a real broker, replayed through the gateway byte by byte and all at once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.kit.gatewaykit import Peer, ScriptedAnswers, frame, gateway, on_loop
from tiered.codec.remoting.frame import Command, decode_command

WIRE = Path(__file__).parent.parent / "data" / "wire"
PAIRS = sorted(
    path.name.removesuffix(".request.bin")
    for path in WIRE.glob("*.request.bin")
    if path.with_name(path.name.replace(".request.", ".answer.")).exists()
)
BROKER_PAIRS = [name for name in PAIRS if not re.search(r"route-105|cluster-106", name)]
LONELY = sorted(
    path.name for path in WIRE.glob("*.answer.bin") if path.name.removesuffix(".answer.bin") not in PAIRS
)


def load(name: str) -> bytes:
    return (WIRE / name).read_bytes()


def test_there_is_something_to_replay() -> None:
    assert len(BROKER_PAIRS) > 15
    assert len(LONELY) > 5


@pytest.mark.parametrize("piece", [1, 61, 1 << 20])
@pytest.mark.parametrize("looked_at", [False, True], ids=["passing", "looked at"])
def test_a_whole_conversation(piece: int, looked_at: bool) -> None:
    """Every recorded pair on one connection, every answer as it was recorded: also those that were held and looked at."""
    requests = {name: load(f"{name}.request.bin") for name in BROKER_PAIRS}
    answers = {requests[name]: load(f"{name}.answer.bin") for name in BROKER_PAIRS}

    async def broker(peer: Peer, data: bytes) -> None:
        answer = answers[data]
        for position in range(0, len(answer), max(piece, 1000)):
            await peer.send(answer[position : position + max(piece, 1000)])
            await asyncio.sleep(0)

    codes = frozenset(decode_command(data[4:]).code for data in requests.values())
    looking = ScriptedAnswers(codes=codes if looked_at else frozenset(), wanted=codes)

    async def test() -> None:
        async with gateway(looking, broker=broker) as running:
            client = await running.client()
            for request in requests.values():
                for position in range(0, len(request), piece):
                    await client.send(request[position : position + piece])
                    if piece < 100:
                        await asyncio.sleep(0)
                assert await client.receive() == answers[request]
            assert running.broker.frames == list(requests.values())
            assert len(looking.asked) == (len(requests) if looked_at else 0)
            for (asked, answer), data in zip(looking.asked, requests.values(), strict=False):
                assert asked == decode_command(data[4:])
                assert answer == decode_command(answers[data][4:])

    on_loop(test())


def test_answers_whose_request_was_not_recorded() -> None:
    async def test() -> None:
        for name in LONELY:
            recorded = load(name)

            async def broker(peer: Peer, data: bytes, recorded: bytes = recorded) -> None:
                await peer.send(recorded)

            async with gateway(ScriptedAnswers(), broker=broker) as running:
                client = await running.client()
                await client.send(frame(Command(11, decode_command(recorded[4:]).opaque)))
                assert await client.receive() == recorded, name

    on_loop(test())


def test_one_way_offset_commit() -> None:
    recorded = load("update-consumer-offset-15-oneway.request.bin")

    async def test() -> None:
        looking = ScriptedAnswers(codes=frozenset({15}), wanted=frozenset({15}))
        async with gateway(looking) as running:
            client = await running.client()
            await client.send(recorded)
            await running.broker.until(lambda: running.broker.frames == [recorded])
            (session,) = running.app.brokers.fronts[running.broker.address].sessions
            assert len(session._pending) == 0
            assert looking.observed[0].ext["commitOffset"] == "1667"

    on_loop(test())
