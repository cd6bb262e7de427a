"""A receiver of posted messages, on a thread of its own: keeps what came, and answers as it is told to."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.kit.certificates import Certificate
from tiered.sink.contract.feeding import Interrupted


@dataclass
class Posted:
    """One request as it came."""

    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """``answers``: (status, headers) of the next requests, in their order; then 200. ``taken``: what was answered with 2xx, or
    would have been."""

    port: int = 0
    scheme: str = "http"
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    asked: list[Posted] = field(default_factory=list)
    taken: list[Posted] = field(default_factory=list)
    refuse_with: bytes = b""
    """Requests with these bytes in them are answered with 422."""
    largest: int = 1 << 40
    left: int | None = None
    done: bool = False
    here: bool = True
    cut: Interrupted = field(default_factory=Interrupted)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/in?token=hidden"

    @contextlib.contextmanager
    def broken(self, request: int, *, done: bool) -> Iterator[Interrupted]:
        self.left, self.done, self.cut = request, done, Interrupted()
        yield self.cut
        self.left = None

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.here = False
        yield
        self.here = True

    def take(self, posted: Posted) -> tuple[int, dict[str, str]] | None:
        """The answer; ``None``: none, the connection ends."""
        if not self.here:
            return None
        cut = self.left == 0
        if self.left is not None:
            self.left -= 1
        self.cut.happened |= cut
        if cut and not self.done:
            return None
        self.asked.append(posted)
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        if self.refuse_with and self.refuse_with in posted.body:
            status = 422
        if len(posted.body) > self.largest:
            status = 413
        if status < 300:
            self.taken.append(posted)
        return None if cut else (status, headers)


@contextlib.contextmanager
def receiver(certificate: Certificate | None = None) -> Iterator[Receiver]:
    """A receiver that runs until the end; with a certificate it speaks TLS."""
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = state.take(Posted(dict(self.headers), body))
            if answer is None:
                self.close_connection = True
                return
            status, headers = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            said = b"no: " + b"x" * 1000 if status >= 300 else b"ok"
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        state.scheme = "https"
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
