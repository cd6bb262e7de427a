"""Health, metrics and status over HTTP, on the standard library: GET and HEAD of four pages, one request a connection.

``/healthz`` 200 while the process is live (nothing fatal, no worker stuck), else 503. ``/readyz`` 200 while it archives.
``/metrics`` Prometheus text. ``/status`` JSON. Everything else is 404. A connection has ``REQUEST_SECONDS`` to send its
request and as long to take the answer, ``MAX_REQUEST_BYTES`` of head, and there are at most ``MAX_CONNECTIONS``: a slow
or hostile client costs a thread for a bounded time and never archiving.
"""

from __future__ import annotations

import io
import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tiered.clock import Clock
from tiered.errors import Invalid, TieredError
from tiered.metrics import CONTENT_TYPE
from tiered.service import AGAIN, Next
from tiered.settings import Web

MAX_CONNECTIONS = 16
MAX_REQUEST_BYTES = 16 * 1024
REQUEST_SECONDS = 5.0
_ACCEPT_SECONDS = 0.25
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_log = logging.getLogger("tiered.daemon.web")


@dataclass(frozen=True, slots=True)
class Pages:
    """What the pages say. ``live`` and ``ready`` return (yes, one line why); none of them may block or hold secrets."""

    live: Callable[[], tuple[bool, str]]
    ready: Callable[[], tuple[bool, str]]
    metrics: Callable[[], bytes]
    status: Callable[[], Mapping[str, object]]

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status code, content type and body of ``path`` (query ignored)."""
        match path.partition("?")[0]:
            case "/healthz":
                return _verdict(self.live())
            case "/readyz":
                return _verdict(self.ready())
            case "/metrics":
                return 200, CONTENT_TYPE, self.metrics()
            case "/status":
                return 200, _JSON, json.dumps(self.status(), indent=2, default=str).encode() + b"\n"
            case _:
                return 404, _TEXT, b"not found; there are /healthz /readyz /metrics /status\n"


def _verdict(said: tuple[bool, str]) -> tuple[int, str, bytes]:
    good, why = said
    return 200 if good else 503, _TEXT, (why.strip() + "\n").encode()


class WebServer:
    """Serves ``pages``. ``open`` binds; ``step`` accepts for a moment and is the step of a ``Service``; ``close`` ends.

    ``key``: the setting that holds the whole address, where that is not ``web.host`` and ``web.port``.
    """

    def __init__(self, settings: Web, pages: Pages, clock: Clock, *, key: str | None = None) -> None:
        self._settings = settings
        self._pages = pages
        self._clock = clock
        self._key = key
        self._server: _Server | None = None

    @property
    def enabled(self) -> bool:
        """False when ``web.port`` is -1."""
        return self._settings.port >= 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``open``."""
        if self._server is None:
            raise Invalid("the web server is not open", hint="call open first")
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def open(self) -> None:
        """Bind and listen. Raises ``Invalid`` naming the setting: ``web.port`` or ``web.host``, or the ``key``."""
        host, port = self._settings.host, self._settings.port
        try:
            self._server = _Server(host, port, self._pages, self._clock)
        except OSError as error:
            fix = "choose another web.port (0: any free one, -1: off)"
            if self._key is not None:
                fix = f"choose another {self._key} (port 0: any free one, empty: off)"
            raise Invalid(
                "the health and metrics address cannot be bound",
                key=self._key or ("web.host" if isinstance(error, socket.gaierror) else "web.port"),
                address=f"{host}:{port}",
                found=error.strerror,
                hint=f"{fix} or stop what listens there",
            ) from None

    def step(self) -> Next:
        """Accept at most one connection, waiting a moment for it."""
        if self._server is not None:
            self._server.handle_request()
        return AGAIN

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    """At most ``MAX_CONNECTIONS`` threads; one more client is turned away at once."""

    daemon_threads = True
    block_on_close = False
    timeout = _ACCEPT_SECONDS
    request_queue_size = 32

    def __init__(self, host: str, port: int, pages: Pages, clock: Clock) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages = pages
        self.clock = clock
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without the reverse name lookup of the base class, which may hang."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand the connection to a thread, or refuse it when all are busy."""
        if not self._slots.acquire(blocking=False):
            request.settimeout(0.2)
            try:
                request.sendall(
                    b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            except OSError as error:
                _log.debug("refused client went away", extra={"error": str(error)})
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection and give its slot back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or sent garbage is a debug line, never a traceback."""
        _log.debug("a connection ended badly", exc_info=True)


class _BoundedReader(io.RawIOBase):
    """The request's bytes, at most ``MAX_REQUEST_BYTES`` of them and only until the deadline."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._deadline = clock.monotonic() + REQUEST_SECONDS
        self._left = MAX_REQUEST_BYTES

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive into ``buffer``; 0 once the byte limit is reached, ``TimeoutError`` after the deadline."""
        remaining = self._deadline - self._clock.monotonic()
        if remaining <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(remaining)
        view = memoryview(buffer)[: self._left]
        got = self._connection.recv_into(view) if len(view) else 0
        self._left -= got
        return got


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "tiered"
    sys_version = ""
    protocol_version = "HTTP/1.0"
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = _TEXT

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_BoundedReader(self.connection, self.server.clock))

    def do_GET(self) -> None:
        self._reply(with_body=True)

    def do_HEAD(self) -> None:
        self._reply(with_body=False)

    def _reply(self, *, with_body: bool) -> None:
        try:
            code, kind, body = self.server.pages.answer(self.path)
        except TieredError as error:
            code, kind, body = 503, _TEXT, f"{error}\n".encode()
        except Exception:  # noqa: BLE001  (a page must not take the server down)
            _log.warning("a page failed", extra={"path": self.path.partition("?")[0]}, exc_info=True)
            code, kind, body = 500, _TEXT, b"the page failed; the log has the reason\n"
        self.connection.settimeout(REQUEST_SECONDS)
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are counted by nobody and shown at debug only."""
        _log.debug("http", extra={"client": self.client_address[0], "request": format % args})
