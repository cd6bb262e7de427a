"""A front: one listening address, and the sessions of the clients that came through it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from tiered.errors import Unavailable
from tiered.gateway.ports import Answering, ConnectionInfo
from tiered.gateway.reply import MAX_REMARK
from tiered.gateway.transport.brokerdown import BrokerOutage
from tiered.gateway.transport.limits import Seats
from tiered.gateway.transport.listener import Listener
from tiered.gateway.transport.session import Session
from tiered.gateway.transport.side import Shared
from tiered.gateway.transport.tls import HANDSHAKE
from tiered.gateway.transport.upstream import Upstream

log = logging.getLogger("tiered.gateway")

NAMESRV, BROKER = "namesrv", "broker"
"""Kinds of fronts, as metrics call them."""

HANDSHAKE_SECONDS = 10.0
FIRST_BYTE_SECONDS = 120.0
LAST_BYTES_SECONDS = 1.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Lobby:
    """What every front of the process shares."""

    shared: Shared
    seats: Seats
    tls: ssl.SSLContext | None


class Front:
    """Accepts clients at one address and connects each with ``upstream``. ``kind`` is namesrv or broker."""

    def __init__(
        self,
        lobby: Lobby,
        kind: str,
        leads_to: str,
        upstream: Upstream,
        answers: Answering,
        name: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.kind = kind
        self.leads_to = leads_to
        self.upstream = upstream
        self.sessions: set[Session] = set()
        self._lobby = lobby
        self._answers = answers
        self._name = name
        self._listener = Listener(self._welcome)
        shared = lobby.shared
        self.outage = (  # a name server's other addresses are tried instead
            BrokerOutage(leads_to, upstream, self._listener, shared.clock, shared.metrics)
            if kind == BROKER
            else None
        )
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port bound. ``Invalid`` before ``listen`` and after ``deafen``."""
        return self._listener.port

    def listen(self, host: str, port: int) -> None:
        """Bind and accept. Raises ``OSError``: the caller knows which setting named the address."""
        self._listener.open(host, port)

    def deafen(self) -> None:
        """Accept nobody more; sessions go on."""
        if self.outage is not None:
            self.outage.close()
        self._listener.close()

    async def close(self) -> None:
        """End every session: what is written goes out, what does not go out in a moment is dropped."""
        self.deafen()
        for task in tuple(self._tasks):
            task.cancel()
        for session in tuple(self.sessions):
            session.close()
        left = [asyncio.ensure_future(session.gone.wait()) for session in self.sessions]
        if left:
            await asyncio.wait(left, timeout=LAST_BYTES_SECONDS)
        for session in tuple(self.sessions):
            session.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if left:  # a transport of uvloop's that was closed while it was being made tells nobody
            await asyncio.wait(left, timeout=LAST_BYTES_SECONDS)
        for waiting in left:
            waiting.cancel()

    def _welcome(self, client: socket.socket, address: str) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket, address: str) -> None:
        """Make a session of an accepted socket, or close it and say why."""
        shared = self._lobby.shared
        info = ConnectionInfo(next(_numbers), address, self.leads_to, self._name())
        session = Session(shared, info, self._answers, self._gone, self._left)
        if not self._lobby.seats.take(session, address.rpartition(":")[0]):
            self._turn_away(client, address, "too_many", "gateway.max_connections is reached")
            return
        self.sessions.add(session)
        shared.metrics.gateway_accepted.labels(self.kind).inc()
        shared.metrics.gateway_connections.labels(self.kind).inc()
        attached = False
        try:
            tls = self._lobby.tls
            if tls is not None and not await _begins_with_handshake(client, session.gone):
                tls = None
            if session.closed:
                return
            await self.upstream.connect(lambda: session.upstream)
            if not session.closed:
                attached = True  # from here on the transport owns the socket
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: session.client,
                    client,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
                )
        except Unavailable as error:
            if self.outage is not None:
                self.outage.begin(error)
            self._turn_away(None, address, "no_upstream", str(error))
        except (OSError, TimeoutError) as error:
            self._turn_away(None, address, "handshake", f"{type(error).__name__}: {error}")
        finally:
            if not attached:
                client.close()
            if not session.client.open:
                session.close()

    def _turn_away(self, client: socket.socket | None, address: str, reason: str, why: str) -> None:
        shared = self._lobby.shared
        shared.metrics.gateway_cut.labels(reason).inc()
        said_already = reason == "no_upstream" and self.outage is not None and self.outage.problem
        unsaid = None if said_already else shared.sparse.due(reason, shared.clock.monotonic())
        if unsaid is not None:
            said = {"reason": reason, "client": address, "broker": self.leads_to, "unsaid": unsaid}
            log.warning("client turned away: %s", why[:MAX_REMARK], extra=said)
        if client is not None:
            client.close()

    def _left(self) -> None:
        """The server behind has closed a connection of its own accord."""
        if self.outage is not None:
            self.outage.suspect()

    def _gone(self, session: Session) -> None:
        if session in self.sessions:
            self.sessions.discard(session)
            self._lobby.seats.give_back(session)
            self._lobby.shared.metrics.gateway_connections.labels(self.kind).dec()


async def _begins_with_handshake(client: socket.socket, gone: asyncio.Event) -> bool:
    """Wait for the first byte, without taking it, or until the session is ``gone``. ``TimeoutError`` when nothing comes."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(client, readable.set)
    waits = [asyncio.ensure_future(event.wait()) for event in (readable, gone)]
    try:
        done, _ = await asyncio.wait(waits, timeout=FIRST_BYTE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(client)
        for waiting in waits:
            waiting.cancel()
    if not done:
        raise TimeoutError
    return not gone.is_set() and client.recv(1, socket.MSG_PEEK) == HANDSHAKE
