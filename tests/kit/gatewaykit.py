"""The gateway's transport on loopback inside one event loop: a fake server behind it, a client before it, answers by script."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from tiered.clock import SystemClock
from tiered.codec.remoting.frame import Bytes, Command, decode_command, encode_command
from tiered.errors import Corrupt
from tiered.gateway.app import GatewayApp
from tiered.gateway.ports import HOLD, NEED_BODY, Answering, ConnectionInfo, NewBody, Verdict
from tiered.metrics import Metrics
from tiered.settings import Gateway

SECONDS = 10.0
"""A loaded machine is no reason to fail; nothing here waits this long when all is well."""

Handler = Callable[["Peer", bytes], Awaitable[None]]


def on_loop(test: Coroutine[None, None, None]) -> None:
    """Run a test's coroutine on a loop as the product's."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test)


def frame(command: Command) -> bytes:
    """The bytes of a command."""
    return b"".join(encode_command(command))


def answer_to(request: Command, code: int = 0, body: bytes = b"", **ext: str) -> bytes:
    """The frame of an answer."""
    return frame(Command(code, request.opaque, flag=1, ext=ext, body=body, binary=request.binary))


def cluster_body(*addresses: str) -> bytes:
    """What the name server answers to 106, with its bare number keys."""
    brokers = ",".join(
        f'"broker-{n}":{{"brokerAddrs":{{0:"{a}"}},"brokerName":"broker-{n}","cluster":"c"}}'
        for n, a in enumerate(addresses)
    )
    return f'{{"brokerAddrTable":{{{brokers}}},"clusterAddrTable":{{"c":["broker-0"]}}}}'.encode()


@dataclass
class Peer:
    """One end of a connection, frame by frame."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: bool = False  # of a server's end: the gateway closed it

    async def send(self, *frames: bytes) -> None:
        """Write frames and wait until they are taken."""
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def receive(self) -> bytes:
        """The next whole frame, its length word included; IncompleteReadError at the end."""
        async with asyncio.timeout(SECONDS):
            prefix = await self.reader.readexactly(4)
            return prefix + await self.reader.readexactly(int.from_bytes(prefix, "big"))

    async def command(self) -> Command:
        """The next frame, decoded."""
        return decode_command((await self.receive())[4:])

    async def at_end(self) -> bool:
        """Wait for the other side to close; False if it sent something instead."""
        async with asyncio.timeout(SECONDS):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


class FakeServer:
    """A name server or broker: ``handle`` gets every frame; connections and frames are kept for the test."""

    def __init__(self, handle: Handler | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.peers: list[Peer] = []
        self.frames: list[bytes] = []
        self.handle = handle
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """host:port."""
        assert self._port
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen; after ``stop`` at the same port."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._tls, limit=1 << 26
        )
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> FakeServer:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """As a server that is killed: its port refuses, its connections end."""
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something that happens on this loop has happened."""
        async with asyncio.timeout(SECONDS):
            while not true():
                await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        try:
            while True:
                prefix = await reader.readexactly(4)
                data = prefix + await reader.readexactly(int.from_bytes(prefix, "big"))
                self.frames.append(data)
                if self.handle is not None:
                    await self.handle(peer, data)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError, Corrupt):
            return
        finally:
            peer.ended = True
            writer.close()
            self._tasks.discard(task)


@dataclass
class ScriptedAnswers:
    """``Answering`` by script: ``make`` gets request and answer; requests and connections are kept.

    ``first`` and ``then`` are the verdicts by an answer's first bytes and by its whole body; ``stands`` gives what stands in
    for the broker's answer, held, and ``ready`` what is made of that at once.
    """

    make: Callable[[Command, Command], Awaitable[Command | NewBody | None]] | None = None
    codes: frozenset[int] = frozenset({11, 34})
    wanted: frozenset[int] = frozenset({11})
    first: Verdict = HOLD
    then: Verdict = HOLD
    observed: list[Command] = field(default_factory=list)
    learnt: list[tuple[Command, Command]] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)  # bytes of the body that were seen
    asked: list[tuple[Command, Command]] = field(default_factory=list)
    gone: list[ConnectionInfo] = field(default_factory=list)
    notices: frozenset[int] = frozenset()
    own: frozenset[int] = frozenset()
    served: Callable[[Command], Awaitable[Command]] | None = None
    stands: Callable[[Command], Command | None] | None = None
    ready: Callable[[Command, Command], Command | None] | None = None

    async def serve(self, request: Command, connection: ConnectionInfo) -> Command:
        assert self.served is not None
        return await self.served(request)

    def wants(self, request: Command) -> bool:
        return request.code in self.wanted

    def stand_in(self, request: Command, connection: ConnectionInfo) -> tuple[Command, Verdict] | None:
        known = None if self.stands is None else self.stands(request)
        return None if known is None else (known, HOLD)

    def at_once(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Command | None:
        return None if self.ready is None else self.ready(request, answer)

    def learn(self, request: Command, answer: Command, first: Bytes, connection: ConnectionInfo) -> None:
        self.learnt.append((request, answer))

    def judge(self, request: Command, answer: Command, body: Bytes, *, whole: bool = False) -> Verdict:
        self.judged.append(len(body))
        return self.then if whole and self.first is NEED_BODY else self.first

    async def answer(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Command | NewBody | None:
        self.asked.append((request, answer))
        return await self.make(request, answer) if self.make is not None else None

    async def notice(self, notice: Command, connection: ConnectionInfo) -> NewBody | None:
        made = await self.make(notice, notice) if self.make is not None else None
        return made if isinstance(made, NewBody) else None

    def observe(self, request: Command, connection: ConnectionInfo) -> None:
        self.observed.append(request)

    def closed(self, connection: ConnectionInfo) -> None:
        self.gone.append(connection)


@dataclass
class Running:
    """A gateway that serves, with its fake servers."""

    app: GatewayApp
    metrics: Metrics
    namesrv: FakeServer
    broker: FakeServer
    answers: ScriptedAnswers
    _clients: list[Peer] = field(default_factory=list)

    async def client(self, *, namesrv: bool = False, tls: ssl.SSLContext | None = None) -> Peer:
        """A client of the broker front, or of the name-server front."""
        front = self.app.namesrv if namesrv else self.app.brokers.fronts[self.broker.address]
        name = "" if tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", front.port, ssl=tls, server_hostname=name, limit=1 << 26
        )
        peer = Peer(reader, writer)
        self._clients.append(peer)
        return peer

    def cut(self, reason: str) -> float:
        """Connections ended for ``reason``."""
        return self.metrics.value("tiered_gateway_cut_total", reason=reason) or 0.0

    def held(self, outcome: str) -> float:
        """Answers looked at, by outcome."""
        return self.metrics.value("tiered_gateway_held_total", outcome=outcome) or 0.0

    @property
    def sessions(self) -> int:
        """Connections the gateway has now."""
        return sum(len(front.sessions) for front in (self.app.namesrv, *self.app.brokers.fronts.values()))


@asynccontextmanager
async def gateway(
    answers: ScriptedAnswers | None = None,
    broker: Handler | None = None,
    namesrv: Handler | None = None,
    *,
    state: Path | None = None,
    upstream_tls: ssl.SSLContext | None = None,
    others: Iterable[str] = (),
    **settings: object,
) -> AsyncIterator[Running]:
    """A gateway before a fake name server and a fake broker. ``others``: more broker addresses the name server knows."""
    scripted = answers or ScriptedAnswers(codes=frozenset(), wanted=frozenset())
    async with FakeServer(broker, upstream_tls) as behind, FakeServer(tls=upstream_tls) as names:

        async def routes(peer: Peer, data: bytes) -> None:
            request = decode_command(data[4:])
            if request.code in (105, 106):
                await peer.send(answer_to(request, body=cluster_body(behind.address, *others)))

        names.handle = namesrv or routes
        chosen = {
            "namesrv_upstream": names.address,
            "namesrv_listen": "127.0.0.1:0",
            "broker_listen_ports": "0",
            **settings,
        }
        metrics = Metrics()
        port: Answering = scripted
        app = GatewayApp(Gateway(**chosen), SystemClock(), metrics, port, state)  # type: ignore[arg-type]
        app.open()
        stop = asyncio.Event()
        running = asyncio.create_task(app.run(stop))
        made = Running(app, metrics, names, behind, scripted)
        try:
            if namesrv is None:
                await names.until(lambda: behind.address in app.brokers.fronts or running.done())
            yield made
        finally:
            stop.set()
            for client in made._clients:
                client.writer.transport.abort()
            await running
