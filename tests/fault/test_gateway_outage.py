"""The broker behind the gateway goes away and comes back: its clients meet what they would meet without a gateway."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine

import pytest

from tests.kit.gatewaykit import Peer, Running, answer_to, frame, gateway
from tiered.clock import SystemClock
from tiered.codec.remoting.frame import Command, decode_command
from tiered.errors import Unavailable
from tiered.gateway.transport.brokerdown import BrokerOutage
from tiered.gateway.transport.listener import Listener
from tiered.gateway.transport.upstream import Upstream
from tiered.metrics import Metrics


async def echo(peer: Peer, data: bytes) -> None:
    """A broker that answers everything."""
    request = decode_command(data[4:])
    await peer.send(answer_to(request, body=bytes(request.body)))


def run(test: Coroutine[object, object, None]) -> None:
    """With a limit: a front that never listens again must not hang the suite."""
    asyncio.run(asyncio.wait_for(test, 30))


def away(running: Running) -> bool:
    """Whether the gateway knows that its broker is away."""
    return running.metrics.value("tiered_gateway_brokers_away") == 1


async def refused(port: int) -> bool:
    """Whether nobody listens."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def served(running: Running) -> None:
    """One question through the broker front."""
    client = await running.client()
    await client.send(frame(Command(10, 5)))
    assert (await client.command()).opaque == 5


def test_clients_of_a_broker_that_is_away_are_refused_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            front = running.app.brokers.fronts[running.broker.address]
            client, port = await running.client(), front.port
            await client.send(frame(Command(10, 1)))
            await client.command()
            await running.broker.stop()
            assert await client.at_end()
            await running.broker.until(lambda: away(running))
            assert all([await refused(port) for _ in range(50)])
            assert front.port == port
            assert (await running.client(namesrv=True)).writer, "the name-server front goes on"
            assert running.app.ready() == (True, f"ready; brokers away: {running.broker.address}")
            assert "no server behind" in str(running.app.status()["brokers"])
            await running.broker.start()
            await running.broker.until(lambda: not away(running))
            await served(running)
            assert running.app.ready() == (True, "ready")
            assert front.port == port
        assert running.metrics.value("tiered_gateway_brokers_away") == 0

    with caplog.at_level(logging.INFO, "tiered.gateway"):
        run(test())
    said = [record.levelname for record in caplog.records if "a broker is" in record.getMessage()]
    assert said == ["WARNING", "INFO"]


def test_a_crowd_that_connects_while_the_broker_dies_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            await running.broker.stop()
            port = running.app.brokers.fronts[running.broker.address].port
            await asyncio.gather(*(refused(port) for _ in range(100)))
            await running.broker.until(lambda: away(running) and running.sessions == 0)
            assert await refused(port)

    with caplog.at_level(logging.WARNING, "tiered.gateway"):
        run(test())
    assert [r.levelname for r in caplog.records if "127.0.0.1" in r.getMessage()] == ["WARNING"]


def test_connections_that_are_open_stay_while_new_ones_are_refused() -> None:
    """The broker accepts nobody more, as one that starts to stop: who is connected goes on."""

    async def test() -> None:
        async with gateway(broker=echo) as running:
            client = await running.client()
            await client.send(frame(Command(10, 1)))
            await client.command()
            server = running.broker._server
            assert server is not None
            server.close()
            front = running.app.brokers.fronts[running.broker.address]
            _, late = await asyncio.open_connection("127.0.0.1", front.port)
            await running.broker.until(lambda: away(running))
            await client.send(frame(Command(10, 2)))
            assert (await client.command()).opaque == 2
            late.close()

    run(test())


def test_a_client_that_ends_its_own_connection_costs_no_look_at_the_broker() -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            client = await running.client()
            await client.send(frame(Command(10, 1)))
            await client.command()
            await client.close()
            await running.broker.until(lambda: running.sessions == 0)
            await served(running)
            assert len(running.broker.peers) == 2

    run(test())


def test_a_broker_that_only_ends_a_connection_is_not_away() -> None:
    async def test() -> None:
        async with gateway(broker=echo) as running:
            client = await running.client()
            await client.send(frame(Command(10, 1)))
            await client.command()
            running.broker.peers[0].writer.transport.abort()
            assert await client.at_end()
            await running.broker.until(lambda: len(running.broker.peers) == 2)  # the look
            await served(running)
            assert not away(running)

    run(test())


def test_a_stopping_gateway_leaves_no_watch_behind() -> None:
    async def test() -> None:
        before = asyncio.all_tasks()
        async with gateway(broker=echo) as running:
            await running.broker.stop()
            front = running.app.brokers.fronts[running.broker.address]
            await refused(front.port)
            await running.broker.until(lambda: away(running))
        assert front.outage is not None
        front.outage.begin(Unavailable("too late"))
        front.outage.suspect()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        assert running.metrics.value("tiered_gateway_brokers_away") == 0

    run(test())


def test_a_port_that_somebody_took_meanwhile_is_an_error_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        place = server.sockets[0].getsockname()
        accepted: list[socket.socket] = []
        listener = Listener(lambda client, address: accepted.append(client))
        listener.open("127.0.0.1", 0)
        metrics = Metrics()
        outage = BrokerOutage("b:1", Upstream([place], None), listener, SystemClock(), metrics)
        outage.begin(Unavailable("away"))
        thief = socket.socket()
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", listener.port))
        thief.listen()
        while "cannot be listened at" not in str(outage.problem):
            await asyncio.sleep(0.01)
        thief.close()
        while outage.problem is not None:
            await asyncio.sleep(0.01)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while not accepted:
            await asyncio.sleep(0.001)
        writer.close()
        accepted[0].close()
        outage.close()
        listener.close()
        server.close()

    with caplog.at_level(logging.ERROR, "tiered.gateway"):
        run(test())
    assert len(caplog.records) == 1
    assert "cannot be listened at" in caplog.text


def test_a_port_that_is_refusing_cannot_be_taken_by_accident() -> None:
    async def test() -> None:
        listener = Listener(lambda client, address: client.close())
        listener.open("127.0.0.1", 0)
        listener.refuse()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", listener.port))
        listener.close()

    run(test())


def test_no_descriptor_left_is_no_outage_of_the_broker() -> None:
    async def test() -> None:
        listener = Listener(lambda client, address: client.close())
        outage = BrokerOutage("b:1", Upstream([("127.0.0.1", 1)], None), listener, SystemClock(), Metrics())
        error = Unavailable("no server behind the gateway answers")
        error.__cause__ = OSError(24, "Too many open files")
        outage.begin(error)
        assert outage.problem is None

    run(test())
