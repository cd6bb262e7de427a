"""A front: one listening socket, and the sessions of the clients that came through it."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from tiered.errors import Invalid, Unavailable
from tiered.gateway.base import Answering, ConnectionInfo
from tiered.gateway.limits import Slots
from tiered.gateway.session import Session, Shared
from tiered.gateway.tls import HANDSHAKE
from tiered.gateway.upstream import Upstream

log = logging.getLogger("tiered.gateway")

BACKLOG = 1024
ACCEPTS_AT_ONCE = 64
HANDSHAKE_SECONDS = 10.0
FIRST_BYTE_SECONDS = 120.0
LAST_BYTES_SECONDS = 1.0
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_FULL_SECONDS = 1.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Lobby:
    """What every front of the process shares."""

    shared: Shared
    slots: Slots
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
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port bound; only while listening."""
        if self._socket is None:
            raise Invalid("the front does not listen", front=self.kind)
        return int(self._socket.getsockname()[1])

    def listen(self, host: str, port: int) -> None:
        """Bind and accept. Raises ``OSError``: the caller knows which setting named the address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        self._socket = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def deafen(self) -> None:
        """Accept nobody more; sessions go on."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

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
        await asyncio.gather(*left, *self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        """Take what connections there are; out of descriptors: look again in a moment."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_AT_ONCE):
            if self._socket is None:
                return
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                log.error("no connection can be accepted", extra={"error": error.strerror})
                loop.remove_reader(self._socket)
                loop.call_later(_FULL_SECONDS, self._listen_again)
                return
            client.setblocking(False)
            task = loop.create_task(self._serve(client, f"{address[0]}:{address[1]}"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _listen_again(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    async def _serve(self, client: socket.socket, address: str) -> None:
        """Make a session of an accepted socket, or close it and say why."""
        shared = self._lobby.shared
        if not self._lobby.slots.take():
            self._turn_away(client, address, "too_many", "gateway.max_connections is reached")
            return
        info = ConnectionInfo(next(_numbers), address, self.leads_to, self._name())
        session = Session(shared, info, self._answers, self._gone)
        self.sessions.add(session)
        shared.metrics.gateway_accepted.labels(self.kind).inc()
        shared.metrics.gateway_connections.labels(self.kind).inc()
        attached = False
        try:
            tls = self._lobby.tls
            if tls is not None and not await _begins_with_handshake(client):
                tls = None
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
            self._turn_away(None, address, "no_upstream", str(error))
        except (OSError, TimeoutError) as error:
            self._turn_away(None, address, "handshake", f"{type(error).__name__}: {error}")
        finally:
            if not attached:
                client.close()
            if not session.client.open:
                session.close()

    def _turn_away(self, client: socket.socket | None, address: str, reason: str, why: str) -> None:
        self._lobby.shared.metrics.gateway_cut.labels(reason).inc()
        log.warning(
            "client turned away: %s",
            why,
            extra={"reason": reason, "client": address, "broker": self.leads_to},
        )
        if client is not None:
            client.close()

    def _gone(self, session: Session) -> None:
        if session in self.sessions:
            self.sessions.discard(session)
            self._lobby.slots.give_back()
            self._lobby.shared.metrics.gateway_connections.labels(self.kind).dec()


async def _begins_with_handshake(client: socket.socket) -> bool:
    """Wait for the first byte, without taking it. ``TimeoutError`` when nothing comes."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(client, readable.set)
    try:
        async with asyncio.timeout(FIRST_BYTE_SECONDS):
            await readable.wait()
    finally:
        loop.remove_reader(client)
    return client.recv(1, socket.MSG_PEEK) == HANDSHAKE
