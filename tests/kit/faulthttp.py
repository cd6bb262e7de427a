"""The fault proxy's understanding of HTTP/1.1: where a request and its answer begin and end, nothing more."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.kit.faultproxy import Action, FaultProxy, Rule, reset

_CHUNK = 1 << 16
_LISTED = re.compile(rb"<Contents>.*?<LastModified>(.*?)</LastModified>.*?</Contents>", re.DOTALL)
_REASONS = {
    500: "Internal Server Error",
    503: "Service Unavailable",
    429: "Too Many Requests",
    409: "Conflict",
}
_CODES = {500: "InternalError", 503: "SlowDown", 429: "TooManyRequests", 409: "ConditionalRequestConflict"}


class _EndedError(Exception):
    """The peer closed the connection."""


@dataclass(slots=True)
class _Reader:
    """Buffered reads from one side."""

    connection: socket.socket
    buffer: bytearray = field(default_factory=bytearray)

    def until(self, mark: bytes) -> bytes:
        """Bytes up to and with ``mark``."""
        while True:
            found = self.buffer.find(mark)
            if found >= 0:
                return self.some(found + len(mark))
            self._fill()

    def some(self, limit: int) -> bytes:
        """At least one and at most ``limit`` bytes."""
        if not self.buffer:
            self._fill()
        data = bytes(self.buffer[:limit])
        del self.buffer[:limit]
        return data

    def _fill(self) -> None:
        data = self.connection.recv(_CHUNK)
        if not data:
            raise _EndedError
        self.buffer += data


@dataclass(frozen=True, slots=True)
class _Head:
    """A start line and headers; names in lower case."""

    raw: bytes
    start: tuple[str, str, str]
    headers: dict[str, str]

    @property
    def keeps_open(self) -> bool:
        return self.headers.get("connection", "").lower() != "close" and "HTTP/1.0" not in self.start

    def body(self, reader: _Reader, *, to_end: bool) -> Iterator[bytes]:
        """The body's bytes as they are on the wire; ``to_end``: without a length it goes on until the close."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            yield from _chunked(reader)
            return
        length = self.headers.get("content-length")
        if length is not None:
            left = int(length)
            while left > 0:
                part = reader.some(min(left, _CHUNK))
                left -= len(part)
                yield part
        elif to_end:
            with contextlib.suppress(_EndedError):
                while True:
                    yield reader.some(_CHUNK)


def _chunked(reader: _Reader) -> Iterator[bytes]:
    while True:
        line = reader.until(b"\r\n")
        yield line
        left = int(line.split(b";")[0], 16)
        if left == 0:
            while line != b"\r\n":  # trailers end with an empty line
                line = reader.until(b"\r\n")
                yield line
            return
        left += 2
        while left > 0:
            part = reader.some(min(left, _CHUNK))
            left -= len(part)
            yield part


def _head(reader: _Reader) -> _Head:
    raw = reader.until(b"\r\n\r\n")
    first, *lines = raw.decode("latin-1").split("\r\n")
    start = [*first.split(" ", 2), "", ""]
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return _Head(raw, (start[0], start[1], start[2]), headers)


def serve_http(proxy: FaultProxy, client: socket.socket) -> None:
    """Serve one client connection: exchange after exchange, each under the rule that is chosen for it."""
    asks = _Reader(client)
    upstream: socket.socket | None = None
    try:
        while True:
            request = _head(asks)
            method, path, _ = request.start
            rule = proxy.choose(method, path)
            if rule.action is Action.REFUSE:
                reset(client)
                return
            if rule.action in (Action.BLACK_HOLE, Action.STATUS):
                if not _alone(client, asks, request, rule):
                    return
                continue
            if rule.action is Action.DELAY and proxy.closing.wait(rule.seconds):
                return
            if upstream is not None and _gone(upstream):
                proxy.release(upstream)
                upstream = None
            if upstream is None:
                upstream = proxy.connect()
                answers = _Reader(upstream)
            if not _Forward(client, upstream, asks, answers, rule).run(request):
                return
    except _EndedError:
        pass
    finally:
        if upstream is not None:
            proxy.release(upstream)


def _gone(upstream: socket.socket) -> bool:
    """Whether the server has closed an idle connection."""
    try:
        return upstream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _alone(client: socket.socket, asks: _Reader, request: _Head, rule: Rule) -> bool:
    """Take a request that the server never sees; true when the connection goes on."""
    if "expect" in request.headers:
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    for _ in request.body(asks, to_end=False):
        pass
    if rule.action is Action.BLACK_HOLE:
        while True:
            asks.some(_CHUNK)  # ends with the client's patience
    code = _CODES.get(rule.status, "Fault")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    head = f"HTTP/1.1 {rule.status} {_REASONS.get(rule.status, 'Fault')}\r\nContent-Type: application/xml\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + (b"" if request.start[0] == "HEAD" else body))
    return request.keeps_open


def _opened(answer: _Head, body: Iterator[bytes]) -> Iterator[bytes]:
    """A body without the lines that frame its chunks."""
    if answer.headers.get("transfer-encoding", "").lower() != "chunked":
        yield from body
        return
    framed = b"".join(body)
    while (length := int(framed[: (at := framed.index(b"\r\n"))].split(b";")[0], 16)) > 0:
        yield framed[at + 2 : at + 2 + length]
        framed = framed[at + 4 + length :]


def _lagging(answer: _Head, listing: bytes, seconds: float) -> tuple[_Head, Iterator[bytes]]:
    """The answer as it would have been so long ago, but for what was deleted since."""
    before = datetime.now(UTC) - timedelta(seconds=seconds)

    def shown(entry: re.Match[bytes]) -> bytes:
        return entry[0] if datetime.fromisoformat(entry[1].decode()) <= before else b""

    made = _LISTED.sub(shown, listing)
    first, *lines = answer.raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    framing = ("content-length:", "transfer-encoding:")
    kept = [line for line in lines if not line.lower().startswith(framing)]
    raw = "\r\n".join([first, *kept, f"Content-Length: {len(made)}", "", ""]).encode("latin-1")
    sized = {**answer.headers, "content-length": str(len(made))}
    return _Head(raw, answer.start, sized), iter((made,))


@dataclass(slots=True)
class _Forward:
    """One exchange that reaches the server."""

    client: socket.socket
    upstream: socket.socket
    asks: _Reader
    answers: _Reader
    rule: Rule

    def run(self, request: _Head) -> bool:
        """Forward the request and its answer; true when both connections can be used again."""
        whole, early = self._request(request)
        if whole is None:
            return False
        answer = early
        while answer is None or answer.start[1].startswith("1"):
            answer = _head(self.answers)
            if answer.start[1].startswith("1"):
                self.client.sendall(answer.raw)
        return self._answer(request, answer) and whole

    def _request(self, request: _Head) -> tuple[bool | None, _Head | None]:
        """(whole request forwarded, or None when it was cut on purpose; the answer's head if it came early)."""
        self.upstream.sendall(request.raw)
        if "100-continue" in request.headers.get("expect", "").lower():
            interim = _head(self.answers)
            if not interim.start[1].startswith("1"):
                return False, interim
            self.client.sendall(interim.raw)
        left = self.rule.after_bytes if self.rule.action is Action.CUT_REQUEST else None
        whole = True
        for part in request.body(self.asks, to_end=False):
            try:
                if whole:
                    self._send(self.upstream, part if left is None else part[:left])
            except (BrokenPipeError, ConnectionResetError):
                # The server answers before it has read everything. Unread bytes here would turn our close into a
                # reset that destroys that answer on its way, so take the rest from the client all the same.
                whole = False
            if left is not None:
                left -= len(part)
                if left <= 0:
                    break
        if left is not None:
            reset(self.client)
            reset(self.upstream)
            return None, None
        return whole, None

    def _answer(self, request: _Head, answer: _Head) -> bool:
        if self.rule.action is Action.CUT_BEFORE_ANSWER:
            reset(self.client)
            return False
        empty = request.start[0] == "HEAD" or answer.start[1] in ("204", "304")
        body: Iterator[bytes] = iter(()) if empty else answer.body(self.answers, to_end=True)
        if self.rule.action is Action.SWALLOW:
            while True:
                self.asks.some(_CHUNK)  # ends with the client's patience
        if self.rule.action is Action.LAG and not empty:
            answer, body = _lagging(answer, b"".join(_opened(answer, body)), self.rule.seconds)
        self.client.sendall(answer.raw)
        left = self.rule.after_bytes if self.rule.action is Action.CUT_ANSWER else None
        if left == 0:
            # What is already sent must arrive, so end politely; the missing bytes are the fault.
            return False
        for part in self._damaged(body):
            self._send(self.client, part if left is None else part[:left])
            if left is not None:
                left -= len(part)
                if left <= 0:
                    return False
        sized = empty or "content-length" in answer.headers or "transfer-encoding" in answer.headers
        return sized and answer.keeps_open and request.keeps_open

    def _damaged(self, body: Iterator[bytes]) -> Iterator[bytes]:
        """The body, with a bit changed where the rule says so."""
        at = self.rule.after_bytes if self.rule.action is Action.CORRUPT else -1
        for part in body:
            if 0 <= at < len(part):
                part = part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]
            at -= len(part)
            yield part

    def _send(self, to: socket.socket, data: bytes) -> None:
        if self.rule.action is not Action.THROTTLE:
            to.sendall(data)
            return
        step = max(1, int(self.rule.bytes_per_second / 20))
        for position in range(0, len(data), step):
            piece = data[position : position + step]
            time.sleep(len(piece) / self.rule.bytes_per_second)
            to.sendall(piece)
