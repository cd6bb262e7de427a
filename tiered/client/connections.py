"""Connections to one HTTP server, kept between requests, and what goes over them: Python's own ``http.client``.

It is taken, and no library, because it neither tries again by itself nor changes a path (a key may be ``..``).
"""

from __future__ import annotations

import contextlib
import http.client
import select
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from tiered.clock import Clock
from tiered.errors import Invalid, Unavailable
from tiered.keyvalue import NOT_DONE, UNKNOWN

MOST_ANSWER_BYTES = 192 * 1024 * 1024
"""Largest answer: a page with one of the largest values behind it, in base64."""
IDLE_SECONDS = 20.0
"""How long an idle connection is used again: less than a server keeps it, so that a write does not meet its end."""
_PIECE_BYTES = 1 << 18
_TARGET = "give http://host:port of kv.http_listen"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, header fields (names in lower case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpConnections:
    """For any thread; each request has a connection for itself. ``seconds``: for connecting, and for each wait for bytes."""

    def __init__(self, url: str, seconds: float, clock: Clock, *, most_idle: int = 8) -> None:
        self._make, self.place, self._prefix = _parsed(url)
        self._seconds = seconds
        self._clock = clock
        self._most_idle = most_idle
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._closed = False

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str | bytes]
    ) -> HttpAnswer:
        """One request, sent once. ``Unavailable`` without an answer: its field ``outcome`` is ``not done`` if the server never
        had the request, else ``unknown``."""
        connection = self._kept() or self._connected()
        try:
            # A server that refuses a body may end the connection before it has all of it: its answer is there.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, self._prefix + target, body, dict(headers))
            with connection.getresponse() as answer:
                names = {name.lower(): value for name, value in answer.getheaders()}
                read = HttpAnswer(answer.status, names, _body(answer))
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise Unavailable(
                "the key-value server did not answer",
                server=self.place,
                found=f"{type(error).__name__} {str(error)[:120]}".strip(),
                outcome=UNKNOWN,
                hint="of a write: read the key to see whether it took effect",
            ) from error
        except BaseException:
            connection.close()
            raise
        self._keep(connection, reusable=not answer.will_close)
        return read

    def close(self) -> None:
        """End idle connections; those in use end with their request."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        made = self._make(self._seconds)
        try:
            made.connect()
        except (OSError, ValueError) as error:
            made.close()
            raise Unavailable(
                "the key-value server cannot be reached",
                server=self.place,
                found=str(error)[:120] or type(error).__name__,
                outcome=NOT_DONE,
                hint="start tiered kv serve, or name another server",
            ) from error
        return made

    def _kept(self) -> http.client.HTTPConnection | None:
        """An idle connection that the server has not ended."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                since, connection = self._idle.pop()
            if self._clock.monotonic() - since < IDLE_SECONDS and _is_quiet(connection):
                return connection
            connection.close()

    def _keep(self, connection: http.client.HTTPConnection, *, reusable: bool) -> None:
        with self._lock:
            if reusable and not self._closed and len(self._idle) < self._most_idle:
                self._idle.append((self._clock.monotonic(), connection))
                return
        connection.close()


class _Connect:
    """Makes connections to one place."""

    def __init__(self, host: str, port: int | None, *, secure: bool) -> None:
        self._host = host
        self._port = port
        self._secure = secure

    def __call__(self, seconds: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=seconds)


def _parsed(url: str) -> tuple[_Connect, str, str]:
    """What makes connections, the place without secrets, and what every path begins with."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise Invalid(
            "this is not the address of a key-value server", value=url.rpartition("@")[2][:120], hint=_TARGET
        )
    shown = f"{parts.scheme}://{parts.netloc}"
    return _Connect(host, port, secure=parts.scheme == "https"), shown, parts.path.rstrip("/")


def _body(answer: http.client.HTTPResponse) -> bytes:
    """The whole body, which must be known to be whole."""
    if answer.length is None and not answer.chunked:
        raise http.client.HTTPException("it cannot be seen where the answer ends")
    if answer.length is not None and answer.length > MOST_ANSWER_BYTES:
        raise http.client.HTTPException(f"the answer is too large: {answer.length} bytes")
    if not answer.chunked:
        return answer.read()
    read = bytearray()
    while piece := answer.read(_PIECE_BYTES):
        read += piece
        if len(read) > MOST_ANSWER_BYTES:
            raise http.client.HTTPException("the answer is too large")
    return bytes(read)


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing has come since the last answer: neither the connection's end nor bytes that nobody asked for."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)
