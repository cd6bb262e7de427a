"""A small synchronous remoting client: one connection to the broker, made when it is needed and again when it broke.

``ask`` sends one request and waits for its answer; ``ask_all`` sends several at once and waits for all. Every wait has an end:
``Unavailable`` then, and whether the broker did as asked is unknown. Frames are bounded before memory is taken for them.
Not for several threads. With a key pair, requests are signed as RocketMQ's ACL wants it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiered.clock import Clock
from tiered.codec.remoting.frame import JAVA, Command, FrameReader, decode_command, encode_command
from tiered.codec.remoting.signing import Credentials, signature
from tiered.errors import Corrupt, Invalid, Refused, Unavailable

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest answer believed: one with all offsets of ten thousand groups has some megabytes."""

RECEIVE_BYTES = 256 * 1024
VERSION = 401
"""The release number we say we are, 4.9.4: nothing newer is asked for by our requests."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``ext`` values are text on the wire."""

    code: int
    ext: Mapping[str, object]
    body: bytes | memoryview = b""


class RemotingClient:
    """``address``: host:port. ``timeout_seconds``: to connect, and for each answer."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        timeout_seconds: float = 5.0,
        credentials: Credentials | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.address = address
        self.connections = 0
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._credentials = credentials
        self._max_frame_bytes = max_frame_bytes
        self._socket: socket.socket | None = None
        self._frames = FrameReader(max_frame_bytes)
        self._opaque = 0

    def ask(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> Command:
        """The answer, whatever its code. ``Unavailable`` when there is none in time."""
        return self._answered(self.ask_all([Request(code, ext or {}, body)])[0])

    def _answered(self, answer: Command | None) -> Command:
        if answer is None:
            raise self._gone("the broker did not answer in time", "timeout")
        return answer

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as was seen; the next request makes one if there is none."""
        return self._socket is not None

    def ask_all(
        self, requests: Sequence[Request], *, timeout_seconds: float | None = None
    ) -> list[Command | None]:
        """Answers in the order of the requests, sent without waiting for each other; ``None`` where none came in time.

        When an answer is missing the connection is given up: a late one cannot be taken for another's. ``timeout_seconds``:
        for these answers, instead of what is usual.
        """
        connection = self._connected()
        waiting = {}
        pieces: list[bytes | memoryview] = []
        for number, request in enumerate(requests):
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            waiting[self._opaque] = number
            pieces += encode_command(self._command(request))
        answers: list[Command | None] = [None] * len(requests)
        try:
            self._send(connection, pieces)
            self._receive(connection, waiting, answers, timeout_seconds or self._timeout_seconds)
        except (OSError, Corrupt, Refused) as error:
            self.close()
            if isinstance(error, TimeoutError) or any(answer is not None for answer in answers):
                return answers
            raise self._gone("the broker does not answer", str(error)) from error
        return answers

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            host, port = split_address(self.address)
            try:
                self._socket = socket.create_connection((host, port), self._timeout_seconds)
            except OSError as error:
                raise self._gone("the broker does not answer", str(error)) from error
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._frames = FrameReader(self._max_frame_bytes)
            self.connections += 1
        return self._socket

    def _command(self, request: Request) -> Command:
        ext = {name: _text(value) for name, value in request.ext.items()}
        if self._credentials is not None:
            ext |= signature(self._credentials, ext, request.body)
        return Command(
            request.code, opaque=self._opaque, ext=ext, body=request.body, version=VERSION, language=JAVA
        )

    def _send(self, connection: socket.socket, pieces: list[bytes | memoryview]) -> None:
        connection.settimeout(self._timeout_seconds)
        connection.sendall(b"".join(pieces))

    def _receive(
        self,
        connection: socket.socket,
        waiting: dict[int, int],
        answers: list[Command | None],
        seconds: float,
    ) -> None:
        deadline = self._clock.monotonic() + seconds
        while waiting:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            connection.settimeout(left)
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for frame in self._frames.feed(data):
                answer = decode_command(frame)
                if not answer.is_response:  # the broker asks its clients things; this one offers nothing
                    continue
                number = waiting.pop(answer.opaque, None)
                if number is not None:
                    answers[number] = answer
                    deadline = self._clock.monotonic() + seconds

    def _gone(self, what: str, found: str) -> Unavailable:
        return Unavailable(
            what,
            broker=self.address,
            found=found,
            hint="check that the broker runs and that replay.broker_address is its address",
        )


def split_address(address: str) -> tuple[str, int]:
    """Host and port. ``Invalid`` if it is no address."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise Invalid(
            "not an address",
            key="replay.broker_address",
            found=address,
            expected="host:port",
            hint='for example replay.broker_address = "127.0.0.1:10911"',
        )
    return host.strip("[]"), int(port)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
