"""A TCP proxy that breaks things on purpose, for tests.

::

    with FaultProxy("127.0.0.1:7070", seed=1) as proxy:
        proxy.add(Rule(Action.STATUS, status=503, times=2, method="PUT"))      # the next two PUTs
        proxy.add(Rule(Action.CUT_BEFORE_ANSWER, probability=0.1))             # one exchange in ten
        client(endpoint=proxy.url)

With ``http=True`` (the default) the unit is one *exchange*, a request with its answer, also on a connection that is
kept alive; the first rule that matches and whose dice fall decides. With ``http=False`` the unit is one connection
and only bytes are seen: ``STATUS``, ``CORRUPT`` and the filters by method and path then have no meaning. ``exchanges``
tells what was asked and what was done about it. ``down()`` closes the listening socket, so that a connect is refused by the
kernel; ``up()`` opens it again on the same port.

One thread accepts; each connection has one (bytes mode: two). All of them end with ``close()``.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self


class Action(Enum):
    """What happens to an exchange (or, in bytes mode, to a connection)."""

    PASS = "pass"
    DELAY = "delay"
    """Wait ``seconds`` before anything is forwarded, then pass."""
    THROTTLE = "throttle"
    """Pass, at ``bytes_per_second`` each way."""
    CUT_BEFORE_ANSWER = "cut before answer"
    """Forward the request, wait for the server's answer, drop it and close: the client cannot know."""
    CUT_REQUEST = "cut request"
    """Forward ``after_bytes`` of the request's body, then close both sides."""
    CUT_ANSWER = "cut answer"
    """Forward ``after_bytes`` of the answer's body, then close."""
    BLACK_HOLE = "black hole"
    """Take the request, forward nothing, answer nothing, until the client gives up."""
    SWALLOW = "swallow"
    """Forward the request, drop the answer and keep the connection open until the client gives up."""
    REFUSE = "refuse"
    """Reset the connection before anything is forwarded."""
    CORRUPT = "corrupt"
    """Pass, with one bit changed of the byte that is ``after_bytes`` into the answer's body (none in shorter ones)."""
    LAG = "lag"
    """Pass, but leave out of S3's listings what was put within the last ``seconds``."""
    STATUS = "status"
    """Take the request and answer ``status`` without asking the server."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When to do what. ``skip`` matching exchanges pass first, then ``times`` (None: any number) are hit."""

    action: Action
    probability: float = 1.0
    times: int | None = None
    skip: int = 0
    method: str | None = None
    path_contains: str = ""
    seconds: float = 0.0
    bytes_per_second: float = 1e6
    after_bytes: int = 0
    status: int = 503


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request (bytes mode: one connection, method and path empty) and what was done about it."""

    method: str
    path: str
    action: Action


@dataclass(slots=True)
class _Counted:
    rule: Rule
    skipped: int = 0
    hits: int = 0

    def wants(self, method: str, path: str, chance: random.Random) -> bool:
        rule = self.rule
        if rule.times is not None and self.hits >= rule.times:
            return False
        if rule.method is not None and rule.method != method:
            return False
        if rule.path_contains not in path:
            return False
        if rule.probability < 1.0 and chance.random() >= rule.probability:
            return False
        if self.skipped < rule.skip:
            self.skipped += 1
            return False
        self.hits += 1
        return True


PASS = Rule(Action.PASS)


class FaultProxy:
    """Listens on a loopback port and forwards to ``upstream`` (``host:port``). Start with ``with`` or ``start()``."""

    def __init__(
        self, upstream: str, rules: Sequence[Rule] = (), *, http: bool = True, seed: int = 0
    ) -> None:
        host, port = upstream.rsplit(":", 1)
        self.upstream = (host, int(port))
        self.http = http
        self.port = 0
        self.closing = threading.Event()
        self._chance = random.Random(seed)
        self._rules = [_Counted(rule) for rule in rules]
        self._exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()

    # ---- what a test uses

    @property
    def address(self) -> str:
        """``127.0.0.1:port`` to connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://{self.address}"

    @property
    def exchanges(self) -> list[Exchange]:
        """All exchanges so far, oldest first."""
        with self._lock:
            return list(self._exchanges)

    def add(self, *rules: Rule) -> None:
        """Append rules; earlier ones are asked first."""
        with self._lock:
            self._rules += [_Counted(rule) for rule in rules]

    def set(self, *rules: Rule) -> None:
        """Replace all rules; none means pass."""
        with self._lock:
            self._rules = [_Counted(rule) for rule in rules]

    def count(self, action: Action | None = None, method: str | None = None) -> int:
        """How many exchanges were treated with ``action`` and asked with ``method``; None means any."""
        return sum(
            (action is None or exchange.action is action) and (method is None or exchange.method == method)
            for exchange in self.exchanges
        )

    def start(self) -> Self:
        """Listen; the first start chooses the port."""
        self.up()
        return self

    def up(self) -> None:
        """Listen (again) on the port; nothing happens if it does."""
        if self._listener is not None:
            return
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._spawn(self._accept, listener)

    def down(self, *, drop_connections: bool = True) -> None:
        """Stop listening: connects are refused; open connections are reset unless told otherwise."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if drop_connections:
            with self._lock:
                sockets = list(self._sockets)
            for connection in sockets:
                reset(connection)

    def close(self) -> None:
        """Stop listening, drop every connection and wait for the threads."""
        self.closing.set()
        self.down()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- inside

    def choose(self, method: str = "", path: str = "") -> Rule:
        """The rule for the next exchange; it is counted and written down."""
        with self._lock:
            wanted = (counted.rule for counted in self._rules if counted.wants(method, path, self._chance))
            rule = next(wanted, PASS)
            self._exchanges.append(Exchange(method, path, rule.action))
        return rule

    def connect(self) -> socket.socket:
        """A new connection to the server."""
        upstream = socket.create_connection(self.upstream, 10)
        upstream.settimeout(None)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._track(upstream)
        return upstream

    def release(self, *connections: socket.socket) -> None:
        """Close connections politely and forget them."""
        for connection in connections:
            with self._lock:
                self._sockets.discard(connection)
            # Shut down first: another thread may be blocked in recv() on it, and close() alone does not wake that.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _track(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.add(connection)
        if self.closing.is_set():
            reset(connection)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._track(client)
            self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        # Late imports: both modules need the names above.
        from tests.kit.faultbytes import serve_bytes
        from tests.kit.faulthttp import serve_http

        serve = serve_http if self.http else serve_bytes
        try:
            serve(self, client)
        except OSError:
            pass  # a side went away; that is everyday life here
        finally:
            self.release(client)

    def _spawn(self, work: object, argument: socket.socket) -> None:
        assert callable(work)

        def run() -> None:
            try:
                work(argument)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=f"fault-proxy-{self.port}", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()


def reset(connection: socket.socket) -> None:
    """Close with a reset instead of a polite end, so that the peer sees an error and not an end of file."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)  # wakes a thread that is blocked in recv()
    with contextlib.suppress(OSError):
        connection.close()
