"""Both fronts under arbitrary and mutated frames: no crash, nothing left behind, and no connection sees another's bytes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.gatewaykit import Peer, Running, ScriptedAnswers, answer_to, frame, gateway
from tiered.codec.remoting.frame import Command, decode_command
from tiered.errors import Unavailable
from tiered.gateway.ports import NewBody

WIRE = Path(__file__).parent.parent / "data" / "wire"
RECORDED = [path.read_bytes() for path in sorted(WIRE.glob("*.bin")) if path.stat().st_size < 5000]
MAX_FRAME = 64 * 1024
FEW = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A recorded frame with some bytes changed, cut or doubled."""
    data = bytearray(draw(st.sampled_from(RECORDED)))
    for _ in range(draw(st.integers(0, 4))):
        position = draw(st.integers(0, min(len(data) - 1, draw(st.sampled_from([8, 60, 5000])))))
        data[position] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(data)))
    return bytes(data) if draw(st.booleans()) else bytes(data[:cut])


chunks = st.lists(st.one_of(st.binary(max_size=80), mutated(), st.sampled_from(RECORDED)), max_size=6)


async def made(request: Command, answer: Command) -> Command | NewBody | None:
    """Whatever a request asks for: an answer of its own, another body, the broker's, or trouble."""
    wish = request.ext.get("wish")
    await asyncio.sleep(0)
    if wish == "own":
        return Command(0, answer.opaque, flag=1, body=b"own:" + bytes(answer.body))
    if wish == "body":
        return NewBody(b"new:" + bytes(answer.body))
    if wish == "trouble":
        raise Unavailable("the store is away")
    return None


class Scene:
    """One gateway for many examples, on a loop of its own."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.errors: list[dict[str, Any]] = []
        self.sent_by_broker = b""
        self._exit = contextlib.AsyncExitStack()
        self.loop = self.runner.get_loop()
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        answers = ScriptedAnswers(made, codes=frozenset({11, 31, 34}), wanted=frozenset({11, 31}))
        opening = gateway(answers, broker=self.broker, max_frame_bytes=MAX_FRAME)
        self.running: Running = self.runner.run(self._exit.enter_async_context(opening))

    async def broker(self, peer: Peer, data: bytes) -> None:
        """Echoes; a request with code 666 gets what the example wants a broker to say."""
        with contextlib.suppress(Exception):
            request = decode_command(data[4:])
            if request.code == 666:
                await peer.send(self.sent_by_broker)
            elif not request.is_response and not request.is_oneway:
                await peer.send(answer_to(request, body=bytes(request.body)))

    async def good(self, namesrv: bool) -> tuple[Peer, int]:
        client = await self.running.client(namesrv=namesrv)
        return client, client.writer.transport.get_extra_info("sockname")[1]

    def run(self, example: Coroutine[Any, Any, None]) -> None:
        """Run an example; nothing is left of its connections when they are gone."""
        self.errors.clear()
        try:
            self.runner.run(example)
        finally:
            for client in self.running._clients:
                client.writer.transport.abort()
            self._check()

    def _check(self) -> None:
        self.runner.run(self.running.broker.until(lambda: self.running.sessions == 0))
        self.running._clients.clear()
        self.running.broker.peers.clear()
        self.running.broker.frames.clear()
        self.running.answers.asked.clear()
        self.running.answers.observed.clear()
        assert self.errors == []
        budget = self.running.app._budget
        assert budget.taken == 0
        assert self.running.app._seats.taken == 0

    def close(self) -> None:
        self.runner.run(self._exit.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


async def attack(scene: Scene, namesrv: bool, data: list[bytes]) -> None:
    """One hostile connection: everything it has, and then its end."""
    client, _ = await scene.good(namesrv)
    with contextlib.suppress(ConnectionError):
        for piece in data:
            await client.send(piece)
            await asyncio.sleep(0)
    client.writer.transport.abort()


async def converse(scene: Scene, namesrv: bool) -> None:
    """A client beside it, whose answers are its own."""
    client, port = await scene.good(namesrv)
    for number in range(3):
        if namesrv:
            await client.send(frame(Command(106, number)))
            answer = await client.command()
            assert b"broker-0" in bytes(answer.body)
        else:
            body = f"{port}-{number}".encode()
            await client.send(frame(Command(11, number, ext={"wish": "own"}, body=body)))
            answer = await client.command()
            assert bytes(answer.body) == b"own:" + body
        assert answer.opaque == number
    client.writer.transport.abort()


@FEW
@given(st.booleans(), st.lists(chunks, min_size=1, max_size=3))
def test_hostile_clients(scene: Scene, namesrv: bool, attacks: list[list[bytes]]) -> None:
    async def example() -> None:
        await asyncio.gather(converse(scene, namesrv), *(attack(scene, namesrv, data) for data in attacks))

    scene.run(example())


@FEW
@given(chunks)
def test_a_broker_that_answers_anything(scene: Scene, data: list[bytes]) -> None:
    async def example() -> None:
        scene.sent_by_broker = b"".join(data)
        victim, _ = await scene.good(False)
        pulls = [frame(Command(11, opaque, ext={"wish": "own"})) for opaque in range(3)]
        await victim.send(*pulls, frame(Command(666, 9)))
        await scene.running.broker.until(lambda: len(scene.running.broker.frames) >= 4)
        await converse(scene, False)
        victim.writer.transport.abort()

    scene.run(example())


wishes = st.sampled_from(["own", "body", "trouble", "broker's"])
sessions = st.lists(
    st.lists(st.tuples(st.sampled_from([10, 11, 31, 34, 200050]), wishes, st.integers(0, 3000)), max_size=12),
    min_size=2,
    max_size=4,
)


@FEW
@given(sessions, st.lists(st.sampled_from([1, 7, 100, 1000, 10_000]), min_size=1, max_size=9))
def test_no_cross_talk(scene: Scene, plans: list[list[tuple[int, str, int]]], sizes: list[int]) -> None:
    """Clients with the same opaques at the same time: each gets exactly its own answers, once, in pieces of any size."""

    async def client(plan: list[tuple[int, str, int]]) -> None:
        peer, port = await scene.good(False)
        expected = {}
        stream = b""
        for opaque, (code, wish, size) in enumerate(plan):
            body = f"{port}/{opaque}/".encode() + bytes(size)
            stream += frame(Command(code, opaque, ext={"wish": wish}, body=body, binary=code == 31))
            looked_at = code in (11, 31)
            prefix = {"own": b"own:", "body": b"new:"}.get(wish, b"") if looked_at else b""
            expected[opaque] = None if looked_at and wish == "trouble" else prefix + body
        got = {}

        async def receive() -> None:
            for _ in plan:
                answer = await peer.command()
                assert answer.opaque not in got
                got[answer.opaque] = bytes(answer.body) if answer.code == 0 else None

        async def send(stream: bytes) -> None:
            turns = itertools.cycle(sizes)
            while stream:
                size = next(turns)
                await peer.send(stream[:size])
                stream = stream[size:]
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as both:
            both.create_task(send(stream))
            both.create_task(receive())
        assert got == expected
        peer.writer.transport.abort()

    async def example() -> None:
        async with asyncio.TaskGroup() as all_of_them:
            for plan in plans:
                all_of_them.create_task(client(plan))

    scene.run(example())
