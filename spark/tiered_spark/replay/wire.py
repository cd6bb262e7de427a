"""One connection to a name server or a broker: several requests go out, then their answers are waited for.

Every wait has an end. What comes is bounded before memory is taken for it (``FrameReader``). With a key pair, requests are
signed as RocketMQ's ACL wants it. Not for several threads.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiered.clock import Clock
from tiered.codec.remoting.frame import (
    JAVA,
    Command,
    FrameReader,
    decode_command,
    encode_command,
)
from tiered.errors import Corrupt, Invalid, Refused

VERSION = 401
"""The release number we say we are, 4.9.4: nothing newer is asked for by our requests."""

RECEIVE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair of RocketMQ's ACL. Printing it shows neither."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``ext`` are its header fields, as text."""

    code: int
    ext: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Dial:
    """How connections are made: time to connect and for each answer, TLS, and a key pair."""

    timeout_seconds: float
    context: ssl.SSLContext | None = None
    credentials: Credentials | None = None


def tls_context(ca_file: str) -> ssl.SSLContext:
    """A context that checks certificates, against ``ca_file`` or, if that is empty, what the machine trusts. Names are not
    checked: brokers are known by address, and RocketMQ's certificates carry none."""
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(
            "the certificates in tlsCa cannot be read on this executor", file=ca_file,
            found=error.strerror or str(error), hint="option('tlsCa', …) names a PEM file that every executor has",
        ) from None  # fmt: skip
    context.check_hostname = False
    return context


class Connection:
    """Made when it is first needed, and again after it broke. ``address``: host:port."""

    def __init__(self, address: str, clock: Clock, dial: Dial) -> None:
        self.address = address
        self._clock, self._dial = clock, dial
        self._socket: socket.socket | None = None
        self._frames = FrameReader()
        self._opaque = 0
        self._waiting: dict[int, int] = {}
        self._answers: list[Command | None] = []
        self.trouble = ""
        """Why the last requests were not all answered; empty if they were."""

    def begin(self, requests: Sequence[Request]) -> None:
        """Send them all. Trouble is told by ``end``."""
        self._waiting, self._answers, self.trouble = {}, [None] * len(requests), ""
        pieces: list[bytes | memoryview] = []
        for number, request in enumerate(requests):
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            self._waiting[self._opaque] = number
            pieces += encode_command(self._command(request))
        try:
            self._connected().sendall(b"".join(pieces))
        except OSError as error:
            self._broke(error)

    def end(self) -> list[Command | None]:
        """The answers, in the order of the requests; ``None`` where none came, then it is unknown whether the peer did as asked
        and the connection is given up: a late answer cannot be taken for another's."""
        deadline = self._clock.monotonic() + self._dial.timeout_seconds
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
                    deadline = self._clock.monotonic() + self._dial.timeout_seconds
        except (OSError, Corrupt, Refused) as error:
            self._broke(error)
        return self._answers

    def ask(self, request: Request) -> Command | None:
        """One request and its answer."""
        self.begin([request])
        return self.end()[0]

    def without_keys(self, text: str) -> str:
        """A peer's words, without the keys that they may repeat. Cut them afterwards: half a key is not known for one."""
        keys = self._dial.credentials
        if keys is None:
            return text
        # The longer one first: the other may be a part of it.
        for key in sorted((keys.access_key, keys.secret_key), key=len, reverse=True):
            text = text.replace(key, "***")
        return text

    def close(self) -> None:
        """Close it; the next request makes another."""
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
        self.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            host, _, port = self.address.rpartition(":")
            timeout = self._dial.timeout_seconds
            plain = socket.create_connection((host.strip("[]"), int(port)), timeout)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                context = self._dial.context
                self._socket = plain if context is None else context.wrap_socket(plain)
            except OSError:
                plain.close()
                raise
            self._frames = FrameReader()
        self._socket.settimeout(self._dial.timeout_seconds)
        return self._socket

    def _command(self, request: Request) -> Command:
        ext = dict(request.ext)
        if self._dial.credentials is not None:
            ext |= signature(self._dial.credentials, ext, request.body)
        return Command(
            request.code, opaque=self._opaque, ext=ext, body=request.body, version=VERSION, language=JAVA
        )


def signature(keys: Credentials, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
    """The fields that RocketMQ's ACL adds: HMAC-SHA1 over all values in the order of their names, and the body."""
    signed = {**ext, "AccessKey": keys.access_key}
    content = "".join(signed[name] for name in sorted(signed)).encode() + body
    digest = hmac.digest(keys.secret_key.encode(), content, "sha1")
    return {"AccessKey": keys.access_key, "Signature": base64.b64encode(digest).decode()}
