"""A listening socket that can refuse for a while, as a server does that is down, without letting go of its port."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from tiered.errors import Invalid

log = logging.getLogger("tiered.gateway")

BACKLOG = 1024
ACCEPTS_AT_ONCE = 64
FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors that speak of this machine, not of the other side."""

_FULL_SECONDS = 1.0


class Listener:
    """Accepts at one address and hands every socket to ``on_client``, with the address it came from. For one event loop."""

    def __init__(self, on_client: Callable[[socket.socket, str], None]) -> None:
        self._on_client = on_client
        self._socket: socket.socket | None = None
        self._place: tuple[str, int] | None = None

    @property
    def port(self) -> int:
        """The port; also while it refuses. ``Invalid`` when it was not opened."""
        if self._place is None:
            raise Invalid("the front does not listen")
        return self._place[1]

    def open(self, host: str, port: int) -> None:
        """Bind and accept; port 0 is any free one. Raises ``OSError``: the caller knows which setting named the address."""
        bound = _bound(host, port)
        try:
            bound.listen(BACKLOG)
        except BaseException:
            bound.close()
            raise
        self._socket = bound
        self._place = (host, int(bound.getsockname()[1]))
        asyncio.get_running_loop().add_reader(bound, self._accept)

    def refuse(self) -> None:
        """Refuse new connections from now on, and reset those that wait to be accepted."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # Linux: no longer listening, still bound
        except OSError:  # elsewhere the port must be given up
            self._socket.close()
            self._socket = None

    def accept(self) -> None:
        """Accept again at the same port. Raises ``OSError`` when somebody else has it now."""
        if self._place is None:
            return
        if self._socket is None:
            self._socket = _bound(*self._place)
        self._socket.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Give the port up."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._socket = self._place = None

    def _accept(self) -> None:
        """Take what connections there are; out of descriptors: look again in a moment."""
        for _ in range(ACCEPTS_AT_ONCE):
            listening = self._socket
            if listening is None:
                return
            try:
                client, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno == errno.EINVAL:  # it refuses by now
                    return
                if error.errno not in FULL:
                    raise
                log.error("no connection can be accepted", extra={"error": error.strerror})
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_FULL_SECONDS, self._look_again, listening)
                return
            client.setblocking(False)
            self._on_client(client, f"{address[0]}:{address[1]}")

    def _look_again(self, listening: socket.socket) -> None:
        if self._socket is listening and listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            asyncio.get_running_loop().add_reader(listening, self._accept)


def _bound(host: str, port: int) -> socket.socket:
    """A socket bound to the port by its number: the system takes a port back that it chose itself, when listening ends."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind((host, port))
        if port == 0:
            # Two sockets that do not listen may share a port, so nobody can come between.
            chosen, bound_by_number = bound, _bound(host, int(bound.getsockname()[1]))
            chosen.close()
            return bound_by_number
    except BaseException:
        bound.close()
        raise
    return bound
