"""Stores that misbehave on purpose: wrappers of a provider, and a small HTTP server that speaks enough S3.

``Scripted`` loses answers or requests, ``Ignoring`` and ``Racing`` break create-only in the two ways seen in the wild, and
``ToyS3`` does on the wire what no real server here can be made to do (409, early closes, cut answers).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tiered.clock import Clock, ManualClock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, NotFound, TieredError, Unavailable
from tiered.provider.base import Provider, Stored
from tiered.provider.deleting import delete_each
from tiered.provider.memory import MemoryProvider
from tiered.provider.wrap import Wrapped
from tiered.settings import Store


class Scripted(Wrapped):
    """Before each verb the next word of the script decides: ``ok``, ``lost`` (it happens, the answer does not come),
    ``dropped`` (it does not happen), or an error to raise. After the script everything is ``ok``. ``calls`` tells what came."""

    def __init__(self, inner: Provider, script: Sequence[str | TieredError]) -> None:
        super().__init__(inner)
        self._script = deque(script)
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []

    def _do(self, verb: str, key: str, act: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append((verb, key))
            word = self._script.popleft() if self._script else "ok"
        if isinstance(word, TieredError):
            raise word
        if word == "dropped":
            raise Unavailable("dropped", key=key)
        if word == "lost":
            with suppress(TieredError):  # whatever it was, nobody hears of it
                act()
            raise Unavailable("lost", key=key)
        return act()

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """By the script."""
        stored: Stored = self._do("put", key, lambda: self.inner.put(key, parts, create_only=create_only))
        return stored

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        """By the script."""
        return self._do("get", key, lambda: self.inner.get(key, start, length))

    def head(self, key: str) -> Stored:
        """By the script."""
        stored: Stored = self._do("head", key, lambda: self.inner.head(key))
        return stored

    def delete(self, key: str) -> None:
        """By the script."""
        self._do("delete", key, lambda: self.inner.delete(key))

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        """Each by the script."""
        return delete_each(self.delete, keys)


class Ignoring(Wrapped):
    """Ignores create-only, as some S3 servers ignore the header: every put wins."""

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """Always overwrites."""
        return self.inner.put(key, parts, create_only=False)


class Racing(Wrapped):
    """Honours create-only for puts that come one after another, and lets all of a race win: it looks, then writes.

    The gap is a rendezvous of two racers that looked; a lone one goes on after ``patience`` seconds.
    """

    def __init__(self, inner: Provider, patience: float = 0.05) -> None:
        super().__init__(inner)
        self._patience = patience
        self._waiting: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """Look, let another one look too, write."""
        if create_only:
            try:
                self.inner.head(key)
            except NotFound:
                self._meet(key)
            else:
                raise Conflict("the key exists", key=key)
        return self.inner.put(key, parts, create_only=False)

    def _meet(self, key: str) -> None:
        with self._lock:
            other = self._waiting.pop(key, None)
            if other is None:
                mine = self._waiting[key] = threading.Event()
        if other is not None:
            other.set()
        else:
            mine.wait(self._patience)


class ToyS3:
    """Enough of S3 over HTTP for one bucket, and a script of mischief for its PUTs (or all verbs, see ``script_all``).

    Words: ``ok``; ``lost`` (stored, connection closed without an answer); ``early`` (closed before the body is read, not
    stored); ``412-early`` (refused from the headers alone, then closed); ``409``, ``503``, ``500`` … (that status with S3's
    code for it, not stored); ``503-stored`` (stored, then 503); ``ignore`` (as a server that does not know If-None-Match);
    ``short`` (a GET's body breaks off half way).
    """

    CODES: ClassVar[dict[int, str]] = {
        301: "PermanentRedirect",
        400: "AuthorizationHeaderMalformed",
        403: "SignatureDoesNotMatch",
        404: "NoSuchBucket",
        409: "ConditionalRequestConflict",
        412: "PreconditionFailed",
        500: "InternalError",
        503: "SlowDown",
    }

    def __init__(self, clock: Clock | None = None) -> None:
        self.objects = MemoryProvider("toy", clock or ManualClock())
        self.clock = clock
        self.script: deque[str] = deque()
        self.script_all: deque[str] = deque()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies_read = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def store(self, **changes: Any) -> Store:
        """The ``store`` section that reaches it, patient for two seconds."""
        options = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "toy",
            "secret_access_key": "toy-secret",
        }
        return Store(**{**options, "read_timeout_ms": 2000, **changes})

    @contextmanager
    def running(self) -> Iterator[ToyS3]:
        """Serve until the end of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _handler(toy) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 5

            def log_message(self, *_: Any) -> None:
                pass

            def handle_expect_100(self) -> bool:
                return (
                    True
                    if toy.next_word(self, peek=True) in ("early", "412-early")
                    else super().handle_expect_100()
                )

            def do_PUT(self) -> None:
                toy.serve(self)

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self.do_PUT
                raise AttributeError(name)

        return Handler

    def next_word(self, handler: BaseHTTPRequestHandler, *, peek: bool = False) -> str:
        """What to do with this request."""
        for script in (self.script_all, self.script if handler.command in ("PUT", "POST") else deque[str]()):
            if script:
                return script[0] if peek else script.popleft()
        return "ok"

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """One request."""
        url = urlsplit(handler.path)
        key = unquote(url.path.lstrip("/").partition("/")[2])
        self.requests.append(
            (handler.command, key, {name.lower(): value for name, value in handler.headers.items()})
        )
        word = self.next_word(handler)
        if word == "early":
            handler.close_connection = True
            return
        if word == "412-early":
            # As versitygw sometimes does: refuse from the headers alone and close over the unread body.
            handler.close_connection = True
            self.answer(handler, 412)
            return
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.bodies_read += 1
        if word.isdigit():
            self.answer(handler, int(word))
            return
        answer = self.act(handler, key, parse_qs(url.query), body, word)
        if word == "lost":
            handler.close_connection = True
        elif word.endswith("-stored"):
            self.answer(handler, int(word.removesuffix("-stored")))
        else:
            self.answer(handler, *answer, short=word == "short")

    def act(
        self, handler: BaseHTTPRequestHandler, key: str, query: dict[str, list[str]], body: bytes, word: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """The verb on the objects: status, body, headers."""
        try:
            if handler.command == "PUT":
                create_only = handler.headers.get("If-None-Match") == "*" and word != "ignore"
                self.objects.put(key, [body], create_only=create_only)
                return 200, b"", {"ETag": '"toy"'}
            if handler.command == "DELETE":
                self.objects.delete(key)
                return 204, b"", {}
            if not key:
                found = list(self.objects.list(query.get("prefix", [""])[0]))
                rows = "".join(
                    f"<Contents><Key>{escape(o.key)}</Key><Size>{o.length}</Size></Contents>" for o in found
                )
                return (
                    200,
                    f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode(),
                    {},
                )
            fetched = self.objects.get(key)
            wanted = handler.headers.get("Range")
            if not wanted:
                return 200, fetched.data, {"Last-Modified": formatdate(0, usegmt=True)}
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            size = len(fetched.data)
            begin, end = (
                (int(first), min(int(last or size - 1) + 1, size))
                if first
                else (max(0, size - int(last)), size)
            )
            return 206, fetched.data[begin:end], {"Content-Range": f"bytes {begin}-{end - 1}/{size}"}
        except Conflict:
            return 412, b"", {}
        except NotFound:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}

    def answer(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        short: bool = False,
    ) -> None:
        """Send an answer; error statuses without a body get S3's code."""
        if status >= 300 and not body:
            body = (
                f"<Error><Code>{self.CODES.get(status, 'Odd')}</Code><Message>toy</Message></Error>".encode()
            )
        now = None if self.clock is None else self.clock.now_ms() / 1000
        handler.send_response_only(status)
        handler.send_header("Date", formatdate(now, usegmt=True))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD" and status != 204:
            handler.wfile.write(body[: len(body) // 2] if short else body)
        if short:
            handler.close_connection = True
