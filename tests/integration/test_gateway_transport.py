"""The gateway's transport between a client and a fake broker on loopback."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.kit.gatewaykit import (
    Peer,
    ScriptedAnswers,
    answer_to,
    cluster_body,
    frame,
    gateway,
    on_loop,
)
from tests.kit.ports import BLOCK, free_block
from tiered.codec.remoting.frame import Command, decode_command
from tiered.errors import Unavailable
from tiered.gateway.ports import HOLD, PASS, NewBody

WIRE = Path(__file__).parent.parent / "data" / "wire"
PULL = Command(11, 7, ext={"topic": "T", "queueId": "0", "queueOffset": "0"})


async def echo(peer: Peer, data: bytes) -> None:
    """A broker that answers every request that waits for one with its own body; code 11 with *offset moved*."""
    request = decode_command(data[4:])
    if request.is_response or request.is_oneway:
        return
    if request.code == 11:
        await peer.send(answer_to(request, 21, nextBeginOffset="100"))
    else:
        await peer.send(answer_to(request, body=bytes(request.body)))


async def silent(peer: Peer, data: bytes) -> None:
    """A broker that answers nothing."""


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_frames_pass_unchanged_and_in_order(binary: bool) -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            client = await running.client()
            sent = [
                frame(Command(10, n, flag=0, ext={"a": "b"}, body=bytes([n % 251]) * (n * 37), binary=binary))
                for n in range(200)
            ]
            await client.send(*sent)
            got = [await client.command() for _ in sent]
            assert running.broker.frames == sent
            assert [answer.opaque for answer in got] == list(range(200))
            assert [len(answer.body) for answer in got] == [n * 37 for n in range(200)]
            assert {answer.binary for answer in got} == {binary}

    on_loop(test())


def test_a_frame_in_single_bytes() -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            client = await running.client()
            whole = frame(Command(10, 1, body=b"hello"))
            for byte in whole:
                await client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.command()).body == b"hello"
            assert running.broker.frames == [whole]

    on_loop(test())


def test_a_large_frame_is_streamed() -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            client = await running.client()
            body = bytes(range(256)) * (15 * 4096)
            sending = asyncio.create_task(client.send(frame(Command(10, 1, body=body))))
            answer = await client.command()
            await sending
            assert answer.body == body

    on_loop(test())


def test_one_way_requests_and_requests_of_the_broker() -> None:
    """Both directions have opaque spaces of their own: a broker's request with a pending opaque is no answer to it."""

    async def test() -> None:
        answers = ScriptedAnswers()
        async with gateway(answers, broker=silent) as running:
            client = await running.client()
            oneway = frame(Command(11, 7, flag=2))
            await client.send(frame(PULL), oneway)
            await running.broker.until(lambda: len(running.broker.frames) == 2)
            server = running.broker.peers[-1]
            request = frame(Command(40, 7, ext={"consumerGroup": "g"}))
            await server.send(request)
            assert await client.receive() == request
            reply = frame(Command(0, 7, flag=1))
            await client.send(reply)
            await running.broker.until(lambda: running.broker.frames[-1] == reply)
            late = answer_to(PULL, 19)
            await server.send(late)
            assert await client.receive() == late
            assert [request.opaque for request, _ in answers.asked] == [7]
            assert len(answers.observed) == 2

    on_loop(test())


def test_answers_are_replaced_and_others_overtake_them() -> None:
    async def test() -> None:
        release = asyncio.Event()

        async def make(request: Command, answer: Command) -> Command:
            await release.wait()
            return Command(0, answer.opaque, flag=1, remark="FOUND", body=b"old")

        async with gateway(ScriptedAnswers(make), broker=echo) as running:
            client = await running.client()
            await client.send(frame(PULL), frame(Command(10, 8, body=b"new")))
            assert (await client.command()).opaque == 8
            release.set()
            replaced = await client.command()
            assert (replaced.opaque, replaced.body, replaced.remark) == (7, b"old", "FOUND")
            assert running.held("replaced") == 1

    on_loop(test())


def test_what_answers_leave_alone_comes_byte_for_byte() -> None:
    async def test() -> None:
        recorded = (WIRE / "pull-11-found.answer.bin").read_bytes()
        request = Command(11, decode_command(recorded[4:]).opaque)

        async def broker(peer: Peer, data: bytes) -> None:
            await peer.send(recorded)

        for hot in (False, True):
            answers = ScriptedAnswers(first=PASS if hot else HOLD)
            async with gateway(answers, broker=broker) as running:
                client = await running.client()
                await client.send(frame(request))
                assert await client.receive() == recorded
                assert len(answers.asked) == (not hot)

    on_loop(test())


@pytest.mark.parametrize(
    "trouble", [Unavailable("the store is away"), RuntimeError("a bug"), None], ids=["away", "bug", "slow"]
)
def test_trouble_makes_the_client_try_again(trouble: Exception | None) -> None:
    """Never the broker's *offset moved*."""

    async def test() -> None:
        async def make(request: Command, answer: Command) -> None:
            if trouble is not None:
                raise trouble
            await asyncio.sleep(60)

        async with gateway(ScriptedAnswers(make), broker=echo, read_timeout_ms=100) as running:
            client = await running.client()
            await client.send(frame(PULL))
            busy = await client.command()
            assert (busy.code, busy.opaque, busy.is_response) == (2, 7, True)
            assert busy.remark is not None
            assert "try again" in busy.remark
            assert running.held("failed_closed") == 1
            await client.send(frame(Command(10, 9)))
            assert (await client.command()).opaque == 9

    on_loop(test())


def test_a_header_as_it_came_with_a_new_body() -> None:
    async def test() -> None:
        async def make(request: Command, answer: Command) -> NewBody:
            return NewBody(b"other")

        odd = b'{ "opaque":7, "flag":1,"code":0}'
        head = (4 + len(odd) + 3).to_bytes(4, "big") + len(odd).to_bytes(4, "big") + odd

        async def broker(peer: Peer, data: bytes) -> None:
            await peer.send(head + b"old")

        async with gateway(ScriptedAnswers(make), broker=broker) as running:
            client = await running.client()
            await client.send(frame(PULL))
            assert (
                await client.receive()
                == (int.from_bytes(head[:4], "big") + 2).to_bytes(4, "big") + head[4:] + b"other"
            )

    on_loop(test())


def test_heartbeats_are_seen_whole_and_pass() -> None:
    async def test() -> None:
        answers = ScriptedAnswers()
        heartbeat = (WIRE / "heartbeat-34.request.bin").read_bytes()
        async with gateway(answers, broker=silent) as running:
            client = await running.client()
            await client.send(heartbeat[:100])
            await asyncio.sleep(0.01)
            await client.send(heartbeat[100:])
            await running.broker.until(lambda: running.broker.frames == [heartbeat])
            assert bytes(answers.observed[0].body) == decode_command(heartbeat[4:]).body

    on_loop(test())


@pytest.mark.parametrize("hot", [True, False], ids=["passed", "held"])
def test_a_wanted_request_and_its_answer_are_told_together_once(hot: bool) -> None:
    async def test() -> None:
        answers = ScriptedAnswers(wanted=frozenset({34}), first=PASS if hot else HOLD)
        heartbeat = (WIRE / "heartbeat-34.request.bin").read_bytes()
        request = decode_command(heartbeat[4:])
        async with gateway(answers, broker=silent) as running:
            client = await running.client()
            await client.send(heartbeat)
            await running.broker.until(lambda: running.broker.frames == [heartbeat])
            assert answers.learnt == []
            refusal = frame(Command(1, request.opaque, flag=1, remark="no right", body=bytes(100)))
            for piece in (refusal[:-80], refusal[-80:]):
                await running.broker.peers[-1].send(piece)
                await asyncio.sleep(0.01)
            assert await client.receive() == refusal
            ((asked, answer),) = answers.learnt
            assert (bytes(asked.body), answer.code) == (request.body, 1)

    on_loop(test())


def test_either_side_closes_the_other() -> None:
    async def test() -> None:
        answers = ScriptedAnswers()
        async with gateway(answers, broker=silent) as running:
            client = await running.client()
            await client.send(frame(PULL))
            await running.broker.until(lambda: bool(running.broker.frames))
            await client.close()
            await running.broker.until(lambda: running.broker.peers[-1].ended)
            await running.broker.until(lambda: len(answers.gone) == 1)

            client = await running.client()
            await client.send(frame(PULL))
            await running.broker.until(lambda: len(running.broker.frames) == 2)
            last = frame(Command(0, 7, flag=1, body=b"x" * 100))
            await running.broker.peers[-1].send(last)
            await running.broker.peers[-1].close()
            assert await client.receive() == last
            assert await client.at_end()
            await running.broker.until(lambda: running.sessions == 0)

    on_loop(test())


def test_a_broker_that_is_away_closes_the_client() -> None:
    async def test() -> None:
        async with gateway(others=["127.0.0.1:1"]) as running:
            front = running.app.brokers.fronts["127.0.0.1:1"]
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            assert await Peer(reader, writer).at_end()
            writer.close()
            assert running.cut("no_upstream") == 1
            assert running.sessions == 0

    on_loop(test())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\0\0\0\0\0\0\0\0",
        (1 << 24).to_bytes(4, "big"),
    ],
)
def test_garbage_ends_its_own_connection_only(garbage: bytes) -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            good, bad = await running.client(), await running.client()
            await bad.send(garbage)
            assert await bad.at_end()
            assert running.cut("bad_frame") == 1
            await good.send(frame(Command(10, 1)))
            assert (await good.command()).opaque == 1

    on_loop(test())


def test_connections_are_limited() -> None:
    async def test() -> None:
        async with gateway(broker=echo, max_connections=2) as running:
            silent = await running.client()

            async def speaks() -> Peer:
                client = await running.client()
                await client.send(frame(Command(10, 1)))
                assert (await client.command()).opaque == 1
                return client

            first, second = await speaks(), await speaks()
            assert await silent.at_end()
            assert running.cut("never_spoke") == 1
            third = await running.client()
            assert await third.at_end()
            assert running.cut("too_many") == 1
            await first.close()
            await running.broker.until(lambda: running.sessions < 2)
            await speaks()
            await second.send(frame(Command(10, 2)))
            assert (await second.command()).opaque == 2

    on_loop(test())


def test_a_slow_reader_holds_back_the_broker_and_is_cut() -> None:
    async def test() -> None:
        async def flood(peer: Peer, data: bytes) -> None:
            for _ in range(64):
                await peer.send(frame(Command(0, 1, flag=1, body=bytes(1 << 20))))

        async with gateway(broker=flood, stall_timeout_ms=300) as running:
            client = await running.client()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(frame(Command(10, 1)))
            front = running.app.brokers.fronts[running.broker.address]
            await running.broker.until(lambda: any(s.client.paused for s in front.sessions))
            (session,) = front.sessions
            assert session.client.waiting < 2 << 20
            await running.broker.until(lambda: running.cut("slow_reader") == 1)
            assert session.upstream.received < 32 << 20

    on_loop(test())


def test_answers_wait_for_a_client_that_does_not_read() -> None:
    """A thousand pulls of a client that reads nothing: what is made for it stays small, and others are served."""

    async def test() -> None:
        async def make(request: Command, answer: Command) -> Command:
            return Command(0, answer.opaque, flag=1, body=bytes(1 << 20))

        answers = ScriptedAnswers(make)
        async with gateway(answers, broker=echo, answer_bytes=32 << 20) as running:
            greedy, modest = await running.client(), await running.client()
            greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await greedy.send(*(frame(Command(11, n)) for n in range(300)))
            await running.broker.until(lambda: len(running.broker.frames) == 300)
            await modest.send(frame(Command(11, 1)))
            assert len((await modest.command()).body) == 1 << 20
            assert len(answers.asked) < 40
            greedy.writer.transport.resume_reading()  # type: ignore[attr-defined]
            opaques = {(await greedy.command()).opaque for _ in range(300)}
            assert opaques == set(range(300))

    on_loop(test())


def test_idle_connections_end() -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            await running.client()
            front = running.app.brokers.fronts[running.broker.address]
            await running.broker.until(lambda: len(front.sessions) == 1)
            (session,) = front.sessions
            now = session.shared.clock.monotonic()
            session.look(now + 170)
            assert not session.closed
            session.look(now + 400)
            assert running.cut("idle") == 1

    on_loop(test())


def test_routes_name_the_gateway() -> None:
    async def test() -> None:
        async with gateway(broker=echo, others=["10.9.9.9:10911"]) as running:
            client = await running.client(namesrv=True)
            for code in (105, 106):
                await client.send(frame(Command(code, code)))
                answer = await client.command()
                fronts = running.app.brokers.fronts
                assert bytes(answer.body) == cluster_body(
                    f"127.0.0.1:{fronts[running.broker.address].port}",
                    f"127.0.0.1:{fronts['10.9.9.9:10911'].port}",
                )
            assert running.app.ready() == (True, "ready")
            assert len({entry["port"] for entry in running.app.status()["brokers"]}) == 2  # type: ignore[index,attr-defined]

    on_loop(test())


def test_recorded_routes_are_patched_byte_wise() -> None:
    names = ["route-105", "raw-route-105-standard-json", "raw-route-105-no-flag", "cluster-106"]

    async def test(name: str) -> None:
        recorded = (WIRE / f"{name}.answer.bin").read_bytes()
        request = (WIRE / f"{name}.request.bin").read_bytes()

        async def namesrv(peer: Peer, data: bytes) -> None:
            if data == request:
                await peer.send(recorded)

        async with gateway(namesrv=namesrv) as running:
            client = await running.client(namesrv=True)
            await client.send(request)
            got = await client.receive()
            port = running.app.brokers.fronts["127.0.0.1:10911"].port
            expected = recorded.replace(b"127.0.0.1:10911", b"127.0.0.1:%d" % port)
            assert got[4:] == expected[4:]
            assert int.from_bytes(got[:4], "big") == len(got) - 4
            session = next(iter(running.app.namesrv.sessions))
            assert session.info.broker_address == running.namesrv.address

    for name in names:
        on_loop(test(name))


def test_unknown_topics_and_errors_pass() -> None:
    async def test() -> None:
        recorded = (WIRE / "route-105-unknown-topic.answer.bin").read_bytes()

        async def namesrv(peer: Peer, data: bytes) -> None:
            await peer.send(recorded)

        async with gateway(namesrv=namesrv) as running:
            client = await running.client(namesrv=True)
            await client.send(frame(Command(105, 0)))
            assert await client.receive() == recorded

    on_loop(test())


def test_no_port_left_is_no_way_around_the_gateway() -> None:
    """The client is told to ask again; it never gets the broker's own address."""

    async def test() -> None:
        async with gateway(broker=echo) as first:
            taken = first.app.namesrv.port
            async with gateway(
                namesrv=first.namesrv.handle, broker_listen_ports=f"{taken}-{taken}"
            ) as running:
                client = await running.client(namesrv=True)
                await client.send(frame(Command(105, 3)))
                answer = await client.command()
                assert (answer.code, answer.opaque) == (2, 3)
                assert "no port is left" in (answer.remark or "")
                assert not running.app.ready()[0]

    on_loop(test())


def test_ports_are_remembered(tmp_path: Path) -> None:
    async def test() -> None:
        first = free_block()
        ports = f"{first}-{first + BLOCK - 1}"
        seen = []
        for _ in range(2):
            async with gateway(
                state=tmp_path, others=["10.0.0.1:1", "10.0.0.2:1"], broker_listen_ports=ports
            ) as running:
                fronts = running.app.brokers.fronts
                seen.append({name: fronts[name].port for name in ("10.0.0.1:1", "10.0.0.2:1")})
        assert seen[0] == seen[1]

        async def away(peer: Peer, data: bytes) -> None:
            await peer.close()

        async with gateway(state=tmp_path, namesrv=away, broker_listen_ports=ports) as running:
            fronts = running.app.brokers.fronts
            assert {name: fronts[name].port for name in seen[0]} == seen[0]

    on_loop(test())


def test_metrics_and_graceful_stop() -> None:
    async def test() -> None:
        async def make(request: Command, answer: Command) -> Command:
            await asyncio.sleep(0.2)
            return Command(0, answer.opaque, flag=1, body=b"late")

        async with gateway(ScriptedAnswers(make), broker=echo) as running:
            client = await running.client()
            await client.send(frame(Command(10, 1)), frame(Command(9999, 2)), frame(PULL))
            assert [(await client.command()).opaque for _ in range(2)] == [1, 2]
            stopping = asyncio.create_task(running.app._close())
            assert (await client.command()).body == b"late"
            assert await client.at_end()
            await stopping
            running.app.publish()
            running.app.publish()
            said = running.metrics.expose().decode()
            assert re.search(r'gateway_requests_total\{kind="send"\} 1.0', said)
            assert re.search(r'gateway_requests_total\{kind="other"\} 1.0', said)
            assert re.search(r'gateway_requests_total\{kind="pull"\} 1.0', said)
            assert 'gateway_connections{front="broker"} 0.0' in said

    on_loop(test())
