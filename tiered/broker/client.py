"""A small blocking remoting client: one connection to a broker or name server, made when it is needed and again when it broke.

``ask`` sends one request and waits for its answer; ``ask_all`` sends several at once and waits for all; ``begin`` and ``end``
are its two halves, for one who asks several servers at the same time. Every wait has an end; whether the server did as asked
is unknown where no answer came. Frames are bounded before memory is taken for them. Not for several threads. With a key pair,
requests are signed as RocketMQ's ACL wants it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiered.clock import Clock
from tiered.codec.remoting.frame import JAVA, Command, FrameReader, decode_command, encode_command
from tiered.codec.remoting.signing import Credentials, signature
from tiered.errors import Corrupt, Refused, Unavailable
from tiered.text.addresses import split_address

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Largest answer believed: one with all offsets of ten thousand groups has some megabytes."""

RECEIVE_BYTES = 256 * 1024
VERSION = 401
"""The release number we say we are, 4.9.4: nothing newer is asked for by our requests."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``ext`` are its header fields, text on the wire."""

    code: int
    ext: Mapping[str, object]
    body: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class Dial:
    """How connections are made: ``timeout_seconds`` to connect and for each answer, TLS, a key pair, the largest answer.

    ``section``: of the settings that name address and keys, for hints; empty if there is none.
    """

    timeout_seconds: float = 5.0
    context: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    max_frame_bytes: int = MAX_FRAME_BYTES
    section: str = ""

    @property
    def address_name(self) -> str:
        """What the address is called in hints."""
        return f"{self.section}.broker_address" if self.section else "the address"

    @property
    def keys_name(self) -> str:
        """What the key pair is called in hints."""
        return f"{self.section}.access_key and {self.section}.secret_key" if self.section else "the keys"


class RemotingClient:
    """``address``: host:port. ``connections``: how many were made."""

    def __init__(self, address: str, clock: Clock, dial: Dial) -> None:
        self.address = address
        self.dial = dial
        self.connections = 0
        self.trouble = ""
        """Why the last requests were not all answered; empty if they were."""
        self._clock = clock
        self._socket: socket.socket | None = None
        self._frames = FrameReader(dial.max_frame_bytes)
        self._opaque = 0
        self._waiting: dict[int, int] = {}
        self._answers: list[Command | None] = []
        self._cut: Exception | None = None  # what ended the connection, unless it was only too slow

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as was seen; the next request makes one if there is none."""
        return self._socket is not None

    def ask(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> Command:
        """The answer, whatever its code. ``Unavailable`` when there is none in time."""
        [answer] = self.ask_all([Request(code, ext or {}, body)])
        if answer is None:
            raise self._gone("the broker did not answer in time", "timeout")
        return answer

    def ask_all(
        self, requests: Sequence[Request], *, timeout_seconds: float | None = None
    ) -> list[Command | None]:
        """Answers in the order of the requests, sent without waiting for each other; ``None`` where none came in time.

        ``Unavailable`` if the server cannot be reached, or the connection broke before any answer. ``timeout_seconds``: for
        these answers, instead of what is usual.
        """
        self.begin(requests)
        answers = self.end(timeout_seconds=timeout_seconds)
        if self._cut is not None and all(answer is None for answer in answers):
            raise self._gone("the broker does not answer", self.trouble) from self._cut
        return answers

    def begin(self, requests: Sequence[Request]) -> None:
        """Send them all. Trouble is told by ``end``. ``Invalid`` if the address is not one."""
        self._waiting, self._answers = {}, [None] * len(requests)
        self.trouble, self._cut = "", None
        pieces: list[bytes | memoryview] = []
        for number, request in enumerate(requests):
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            self._waiting[self._opaque] = number
            pieces += encode_command(self._command(request))
        try:
            connection = self._connected()
        except OSError as error:
            self._broke(error)
            self._cut = error
            return
        try:
            connection.sendall(b"".join(pieces))
        except OSError as error:
            self._broke(error)

    def end(self, *, timeout_seconds: float | None = None) -> list[Command | None]:
        """The answers, in the order of the requests of ``begin``; ``None`` where none came.

        The connection is given up then, so that a late answer cannot be taken for another's; ``trouble`` says why.
        """
        seconds = timeout_seconds or self.dial.timeout_seconds
        deadline = self._clock.monotonic() + seconds
        try:
            while self._waiting and self._socket is not None:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise TimeoutError("no answer in time")
                self._socket.settimeout(left)
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionError("the connection was closed")
                if self._take(data):
                    deadline = self._clock.monotonic() + seconds
        except (OSError, Corrupt, Refused) as error:
            self._broke(error)
        return self._answers

    def without_keys(self, text: str) -> str:
        """A peer's words, without the keys that they may repeat. Cut them afterwards: half a key is not known for one."""
        keys = self.dial.credentials
        if keys is None:
            return text
        # The longer one first: the other may be a part of it.
        for key in sorted((keys.access_key, keys.secret_key), key=len, reverse=True):
            text = text.replace(key, "***")
        return text

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _take(self, data: bytes) -> bool:
        """Whether an answer to one of ours is among the frames that ``data`` completes."""
        found = False
        for frame in self._frames.feed(data):
            answer = decode_command(frame)
            if not answer.is_response:  # brokers ask their clients things; this one offers nothing
                continue
            number = self._waiting.pop(answer.opaque, None)
            if number is not None:
                self._answers[number] = answer
                found = True
        return found

    def _broke(self, error: Exception) -> None:
        self.trouble = str(error) or type(error).__name__
        self._cut = None if isinstance(error, TimeoutError) else error
        self.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            address = split_address(self.address, key=self.dial.address_name)
            plain = socket.create_connection(address, self.dial.timeout_seconds)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                context = self.dial.context
                self._socket = plain if context is None else context.wrap_socket(plain)
            except OSError:
                plain.close()
                raise
            self._frames = FrameReader(self.dial.max_frame_bytes)
            self.connections += 1
        self._socket.settimeout(self.dial.timeout_seconds)
        return self._socket

    def _command(self, request: Request) -> Command:
        ext = {name: _text(value) for name, value in request.ext.items()}
        if self.dial.credentials is not None:
            ext |= signature(self.dial.credentials, ext, request.body)
        return Command(
            request.code, opaque=self._opaque, ext=ext, body=request.body, version=VERSION, language=JAVA
        )

    def _gone(self, what: str, found: str) -> Unavailable:
        hint = f"look whether the broker runs and {self.dial.address_name} is its address"
        return Unavailable(what, broker=self.address, found=found, hint=hint)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
