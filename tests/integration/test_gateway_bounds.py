"""What the gateway may hold and open, however much its clients and brokers make of it."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.kit.gatewaykit import Peer, ScriptedAnswers, answer_to, frame, gateway, on_loop
from tests.kit.ports import free_block
from tiered.codec.remoting.frame import Command, decode_command
from tiered.errors import Unavailable
from tiered.gateway.app import UNSEEN_MS

KIB, MIB = 1 << 10, 1 << 20


async def large(peer: Peer, data: bytes) -> None:
    """A broker that answers every request with 256 KiB."""
    request = decode_command(data[4:])
    await peer.send(answer_to(request, body=bytes(256 * KIB)))


def test_a_broker_is_not_read_while_many_of_its_answers_are_held() -> None:
    """The archive hangs: answers that wait for it are few; all come when it wakes up."""

    async def test() -> None:
        awake = asyncio.Event()

        async def make(request: Command, answer: Command) -> None:
            await awake.wait()

        async with gateway(ScriptedAnswers(make), broker=large, max_pending_bytes=4 * MIB) as running:
            client = await running.client()
            await client.send(*(frame(Command(11, n)) for n in range(200)))
            front = running.app.brokers.fronts[running.broker.address]
            await running.broker.until(lambda: any(s.holds_much for s in front.sessions))
            (session,) = front.sessions
            await asyncio.sleep(0.3)
            assert session.upstream.received < 8 * MIB
            awake.set()
            got = [await client.command() for _ in range(200)]
            assert {answer.opaque for answer in got} == set(range(200))
            assert {len(answer.body) for answer in got} == {256 * KIB}
            assert not session.holds_much

    on_loop(test())


def test_answers_of_all_connections_share_one_budget() -> None:
    """Room for an answer is set aside before the archive is asked for it, and is free again when it went out or failed."""

    async def test() -> None:
        asked, awake = list[int](), asyncio.Event()

        async def make(request: Command, answer: Command) -> None:
            asked.append(request.opaque)
            await awake.wait()
            if request.opaque % 2:
                raise Unavailable("away")

        scripted = ScriptedAnswers(make)
        async with gateway(scripted, broker=large, answer_bytes=MIB, max_pull_bytes=256 * KIB) as running:
            clients = [await running.client() for _ in range(6)]
            for number, client in enumerate(clients):
                await client.send(frame(Command(11, number)))
            await running.broker.until(lambda: len(asked) == 4)
            (session, *_) = running.app.brokers.fronts[running.broker.address].sessions
            budget = session.shared.budget
            await asyncio.sleep(0.2)
            assert (len(asked), budget.taken) == (4, MIB), "the other two wait for room"
            awake.set()
            got = [await client.command() for client in clients]
            assert [answer.opaque for answer in got] == list(range(6))
            await running.broker.until(lambda: budget.taken == 0)

    on_loop(test())


def test_a_broker_that_keeps_changing_its_address_never_runs_out_of_ports() -> None:
    """Of five ports the one that no name server has named for hours, and that nobody is connected to, is given away."""

    async def test() -> None:
        first = free_block()
        async with gateway(broker=large, broker_listen_ports=f"{first}-{first + 2}") as running:
            brokers, book = running.app.brokers, running.app.brokers._book
            client = await running.client()
            await client.send(frame(Command(10, 1)))
            await client.command()
            for number in range(1, 7):
                for place in book.places.values():
                    place.seen_ms -= UNSEEN_MS + 1
                address = f"10.0.0.{number}:10911"
                listening = brokers.ensure(address, "broker-a")
                assert re.fullmatch(r"127\.0\.0\.1:\d+", listening)
                assert len(brokers.fronts) <= 3
                assert running.broker.address in brokers.fronts, "somebody is connected there"
            await client.send(frame(Command(10, 2)))
            assert (await client.command()).opaque == 2

    on_loop(test())


def test_a_broker_seen_lately_keeps_its_port() -> None:
    async def test() -> None:
        first = free_block()
        async with gateway(broker=large, broker_listen_ports=f"{first}-{first}") as running:
            with pytest.raises(Unavailable, match="no port is left"):
                running.app.brokers.ensure("10.0.0.9:10911", "broker-b")
            assert list(running.app.brokers.fronts) == [running.broker.address]

    on_loop(test())
