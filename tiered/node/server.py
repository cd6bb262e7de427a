"""The socket of a read node: frames in, answers out, each when it is ready. For one event loop.

Bounded are connections, reads of one connection at once (further ones stay in its socket), bytes of answers of all together,
and how long a peer may leave what waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import cast

from tiered.clock import Clock
from tiered.codec.remoting.codes import RequestCode
from tiered.codec.remoting.frame import Command, FrameReader, decode_command, encode_command
from tiered.errors import Invalid, TieredError
from tiered.gateway.knowledge.turns import fair_budget
from tiered.gateway.transport.limits import Slots, Sparse
from tiered.gateway.transport.listener import Listener
from tiered.metrics import Metrics
from tiered.node.answers import NodeAnswers
from tiered.settings import KIB, Serve, Tenants
from tiered.text.addresses import split_address

log = logging.getLogger("tiered.node")

MAX_REQUEST_BYTES = 256 * KIB
"""Of a question with its filter expression; a longer frame ends the connection."""

DRAIN_SECONDS = 5.0

QUIET_SECONDS = 2.5
"""Two beats, and a bit: gateways have heard that the node drains."""


class NodeServer:
    """Listens at ``serve.listen``."""

    def __init__(
        self,
        settings: Serve,
        answers: NodeAnswers,
        clock: Clock,
        metrics: Metrics,
        tenants: Tenants | None = None,
    ) -> None:
        """``tenants``: whose answers take turns where they wait for ``serve.answer_bytes``."""
        self.settings = settings
        self.answers = answers
        self.budget = fair_budget(settings.answer_bytes, tenants or Tenants())
        self.sessions: set[NodeSession] = set()
        self._metrics = metrics
        self._clock = clock
        self._slots = Slots(settings.max_connections)
        self._sparse = Sparse()
        self._listener = Listener(self._accept)
        self._arriving: set[asyncio.Task[object]] = set()

    @property
    def address(self) -> str:
        """Where it listens, host:port."""
        host, _ = split_address(self.settings.listen, key="serve.listen", listening=True)
        return f"{host}:{self._listener.port}"

    def open(self) -> None:
        """Bind. ``Invalid`` if the address cannot be bound."""
        host, port = split_address(self.settings.listen, key="serve.listen", listening=True)
        try:
            self._listener.open(host, port)
        except OSError as error:
            raise Invalid(
                "the read node's address cannot be bound",
                key="serve.listen",
                address=self.settings.listen,
                found=error.strerror,
                hint="choose another serve.listen, or stop what listens there",
            ) from None

    async def quiet(self, seconds: float, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Go on answering until nobody has asked for a read for ``quiet_seconds``, or no gateway is connected; at most
        ``seconds``."""
        now = self._clock.monotonic()
        deadline, reads, since = now + seconds, self.answers.reads, now
        while self.sessions and now < deadline and now - since < quiet_seconds:
            await asyncio.sleep(0.02)
            now = self._clock.monotonic()
            if self.answers.reads != reads:
                reads, since = self.answers.reads, now

    async def close(self) -> None:
        """Take nothing new, answer what was asked, hang up."""
        self._listener.close()
        for session in tuple(self.sessions):
            session.drain()
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        while self.sessions and self._clock.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for session in tuple(self.sessions):
            session.cut("the node stops")

    def gone(self, session: NodeSession) -> None:
        """A connection is over."""
        if session in self.sessions:
            self.sessions.discard(session)
            self._slots.give_back()
            self._metrics.node_connections.set(len(self.sessions))

    def ended(self, client: str, why: str) -> None:
        """A connection was ended by the node: said, not too often."""
        unsaid = self._sparse.due("ended", self._clock.monotonic())
        if unsaid is not None:
            log.warning("connection ended: %s", why, extra={"client": client, "unsaid": unsaid})

    def _accept(self, client: socket.socket, address: str) -> None:
        if not self._slots.take():
            client.close()
            self.ended(address, f"serve.max_connections is {self.settings.max_connections}")
            return
        session = NodeSession(self, address)
        self.sessions.add(session)
        self._metrics.node_connections.set(len(self.sessions))
        loop = asyncio.get_running_loop()
        task: asyncio.Task[object] = loop.create_task(loop.connect_accepted_socket(lambda: session, client))
        self._arriving.add(task)
        task.add_done_callback(lambda done: self._arrived(done, session))

    def _arrived(self, task: asyncio.Task[object], session: NodeSession) -> None:
        self._arriving.discard(task)
        if task.cancelled() or task.exception() is not None:
            self.gone(session)


class NodeSession(asyncio.Protocol):
    """One connection of a gateway."""

    def __init__(self, server: NodeServer, client: str) -> None:
        self._server = server
        self._client = client
        self._reader = FrameReader(MAX_REQUEST_BYTES)
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()  # the peer takes bytes
        self._room.set()
        self._draining = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Begin to answer each question; too many at once, and no more are read."""
        try:
            for frame in self._reader.feed(data):
                self._begin(decode_command(frame))
        except TieredError as error:
            self.cut(f"the client sent bytes that are not a question: {error}")

    def pause_writing(self) -> None:
        """Much waits for the peer."""
        self._room.clear()

    def resume_writing(self) -> None:
        """The peer takes bytes again."""
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody is there to be answered."""
        self._room.set()
        for task in tuple(self._tasks):
            task.cancel()
        self._server.gone(self)

    def cut(self, why: str) -> None:
        """End it at once."""
        self._server.ended(self._client, why)
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Hang up as soon as everything asked is answered; read nothing more."""
        self._draining = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._look()

    # ---- inside

    def _begin(self, request: Command) -> None:
        if request.is_response or request.is_oneway:
            return
        # A beat waits behind no read: who is busy is not silent. One whose peer takes nothing waits like everything.
        if request.code == RequestCode.HEART_BEAT and self._room.is_set():
            if self._transport is not None and not self._transport.is_closing():
                self._transport.writelines(encode_command(self._server.answers.beat(request)))
            return
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if len(self._tasks) >= self._server.settings.max_reads and self._transport is not None:
            self._transport.pause_reading()

    async def _answer(self, request: Command) -> None:
        """One answer. Bytes are set aside before it is read, and until the socket has taken it."""
        budget, settings = self._server.budget, self._server.settings
        aside = await budget.take(*self._server.answers.wanted(request))
        try:
            answer = await self._server.answers.answer(request)
            if self._transport is None or self._transport.is_closing():
                return
            self._transport.writelines(encode_command(answer))
            async with asyncio.timeout(settings.stall_timeout_ms / 1000):
                await self._room.wait()
        except TimeoutError:
            self.cut(f"the gateway took nothing for {settings.stall_timeout_ms} ms")
        finally:
            budget.give_back(aside)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an answer was lost", exc_info=task.exception(), extra={"client": self._client})
            self.cut("an answer was lost")
        self._look()

    def _look(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._draining:
            if not self._tasks:
                self._transport.close()
        elif len(self._tasks) < self._server.settings.max_reads and not self._transport.is_reading():
            self._transport.resume_reading()
