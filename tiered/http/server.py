"""A listening HTTP server on an event loop, and the same on a loop of its own for a thread that turns it.

``HttpServer`` is uvicorn's protocol (``connection``) under asyncio's own server: nothing of it listens to signals, writes an
access log or wakes up when nothing happens.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from tiered.errors import Invalid
from tiered.http.connection import Connection, Door
from tiered.http.limits import MAX_HEAD_BYTES
from tiered.service import AGAIN, Next

_TURN_SECONDS = 0.25


class HttpServer:
    """Serves ``app`` on ``host`` and ``port`` (0: any free one). ``start`` and ``close`` on the event loop.

    ``one_socket``: a name is the first of its addresses and not all, and ``::`` is every address of IPv4, too.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, door: Door, *, one_socket: bool = False) -> None:
        self._host = host
        self._port = port
        self._door = door
        self._one_socket = one_socket
        self._state = ServerState()
        self._config = Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``start``."""
        if self._server is None:
            raise Invalid("the HTTP server is not started", hint="await start() first")
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Bind and listen. ``OSError`` if the address cannot be bound."""
        loop = asyncio.get_running_loop()
        self._config.load()
        made = partial(Connection, self._config, self._state, self._door, loop)
        backlog = self._door.limits.connections
        if not self._one_socket:
            self._server = await loop.create_server(made, self._host, self._port, backlog=backlog)
            return
        bound = _bound(self._host, self._port)
        try:
            self._server = await loop.create_server(made, sock=bound, backlog=backlog)
        except BaseException:
            bound.close()
            raise

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        while self._state.connections:  # each hears of its end in the loop's next turn
            await asyncio.sleep(0)
        tasks = tuple(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Listening(Protocol):
    """A server as ``OwnLoop`` turns it."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class OwnLoop:
    """A server on an event loop of its own: whatever hangs elsewhere, it answers.

    ``open`` binds, ``step`` turns the loop for a moment and is the step of a ``Service``, ``close`` ends, after the service.
    """

    def __init__(
        self,
        server: Listening,
        make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._server = server
        self._make_loop = make_loop
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``open``."""
        return self._server.address

    def open(self) -> None:
        """Bind and listen. ``OSError`` if the address cannot be bound."""
        loop = self._make_loop()
        try:
            loop.run_until_complete(self._server.start())
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    def step(self) -> Next:
        """Serve for a moment."""
        if self._loop is not None:
            self._loop.run_until_complete(asyncio.sleep(_TURN_SECONDS))
        return AGAIN

    def close(self) -> None:
        """Stop listening and cut every connection; nothing while a step that does not come back holds the loop."""
        loop, self._loop = self._loop, None
        if loop is None or loop.is_running():
            return
        loop.run_until_complete(self._server.close())
        loop.close()


def _bound(host: str, port: int) -> socket.socket:
    """One socket; asyncio's own for ``::`` would not take IPv4."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made


def why_not_bound(error: OSError) -> str:
    """The system's own words for an address that cannot be bound."""
    number = error.errno or 0  # below 0: getaddrinfo's
    return os.strerror(number) if number > 0 else error.strerror or str(error)
