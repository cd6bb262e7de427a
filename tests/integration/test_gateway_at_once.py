"""Answers that stand in and need not be waited for: made on the way, without the broker, and not without bounds."""

from __future__ import annotations

import asyncio

from tests.kit.gatewaykit import Peer, ScriptedAnswers, frame, gateway, on_loop
from tests.kit.replacing import replace
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command
from tiered.errors import Unavailable
from tiered.gateway.transport.limits import ANSWERING_PER_CONNECTION
from tiered.gateway.transport.session import Session
from tiered.gateway.transport.side import HIGH_WATER_BYTES

KIB = 1 << 10


def stands(request: Command) -> Command:
    """What the broker is known to say."""
    return Command(ResponseCode.PULL_OFFSET_MOVED, request.opaque, RESPONSE)


def made(request: Command, answer: Command) -> Command:
    """32 KiB that tell whose they are."""
    return replace(answer, code=0, body=request.opaque.to_bytes(4, "big") * (8 * KIB))


async def nobody(peer: Peer, data: bytes) -> None:
    """A broker that must not be asked."""
    raise AssertionError("the broker was asked")


def budget_taken(session: Session) -> int:
    return session.shared.budget.taken


async def rests(session: Session) -> None:
    """Nothing is read, made or sent any more."""
    before, same = None, 0
    while same < 8:
        now = (session.client.received, session.client.delivered, session.answering)
        before, same = now, same + 1 if now == before else 0
        await asyncio.sleep(0.05)


def test_they_come_without_the_broker_and_without_a_task() -> None:
    async def test() -> None:
        async with gateway(ScriptedAnswers(stands=stands, ready=made), broker=nobody) as running:
            client = await running.client()
            got = []
            for first in range(0, 50, 5):  # less than would have to wait for the client
                await client.send(*(frame(Command(11, n)) for n in range(first, first + 5)))
                got += [await client.command() for _ in range(5)]
            assert [(answer.opaque, bytes(answer.body[:4])) for answer in got] == [
                (n, n.to_bytes(4, "big")) for n in range(50)
            ]
            (session,) = running.app.brokers.fronts[running.broker.address].sessions
            assert running.answers.asked == [], "nothing was left to a task"
            assert running.broker.frames == []
            await running.broker.until(lambda: budget_taken(session) == 0)

    on_loop(test())


def test_what_cannot_be_said_at_once_is_left_to_who_may_wait() -> None:
    def ready(request: Command, answer: Command) -> Command | None:
        if request.opaque == 2:
            raise ValueError("what was not thought of")
        return made(request, answer) if request.opaque == 3 else None

    async def later(request: Command, answer: Command) -> Command:
        await asyncio.sleep(0.01)
        if request.opaque == 2:
            raise Unavailable("nor later")
        return made(request, answer)

    async def test() -> None:
        async with gateway(ScriptedAnswers(later, stands=stands, ready=ready), broker=nobody) as running:
            client = await running.client()
            await client.send(*(frame(Command(11, n)) for n in (1, 2, 3)))
            got = {answer.opaque: answer for answer in [await client.command() for _ in range(3)]}
            assert (got[1].code, len(got[1].body)) == (0, 32 * KIB)
            assert got[2].code == ResponseCode.SYSTEM_BUSY
            assert "nor later" in (got[2].remark or "")
            assert (got[3].code, len(got[3].body)) == (0, 32 * KIB)
            assert {request.opaque for request, _ in running.answers.asked} == {1, 2}
            (session,) = running.app.brokers.fronts[running.broker.address].sessions
            await running.broker.until(lambda: budget_taken(session) == 0)

    on_loop(test())


def test_a_client_that_takes_nothing_is_made_a_few_and_read_no_further() -> None:
    """Neither answers nor requests gather: both go on when it takes bytes again."""
    count = 4 * ANSWERING_PER_CONNECTION
    made_at_once = list[int]()

    def ready(request: Command, answer: Command) -> Command:
        made_at_once.append(request.opaque)
        return made(request, answer)

    async def later(request: Command, answer: Command) -> Command:
        return made(request, answer)

    async def test() -> None:
        async with gateway(ScriptedAnswers(later, stands=stands, ready=ready), broker=nobody) as running:
            client = await running.client()
            client.writer.transport.pause_reading()
            client.writer.write(b"".join(frame(Command(11, n, ext={"k": "v" * 1000})) for n in range(count)))
            front = running.app.brokers.fronts[running.broker.address]
            await running.broker.until(
                lambda: any(s.answering >= ANSWERING_PER_CONNECTION for s in front.sessions)
            )
            (session,) = front.sessions
            await rests(session)
            assert session.client.waiting < HIGH_WATER_BYTES + 64 * KIB
            assert len(session.upstream.walk._inserts) <= 4, "made, and not sent yet"
            before = len(made_at_once)
            assert session.answering < ANSWERING_PER_CONNECTION + 256, "one chunk more than the bound"
            client.writer.transport.resume_reading()
            got = [await client.command() for _ in range(count)]
            assert {answer.opaque for answer in got} == set(range(count))
            assert before < count
            await running.broker.until(lambda: session.answering == 0 and budget_taken(session) == 0)

    on_loop(test())
