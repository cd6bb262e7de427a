"""The few administration requests the kit needs, spoken directly: a JVM start for each would cost seconds.

A frame is length (i32), header length (i32, top byte 0 = JSON header), header, body; all big endian.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

SEND_MESSAGE = 10
PULL_MESSAGE = 11
HEART_BEAT = 34
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
GET_BROKER_CONFIG = 26
UPDATE_TOPIC = 17
UPDATE_BROKER_CONFIG = 25
RUNTIME_INFO = 28
MAX_OFFSET = 30
MIN_OFFSET = 31
VIEW_MESSAGE = 33
ROUTE = 105
CLUSTER = 106
DELETE_TOPIC = 215
UPDATE_GROUP = 200
RESET_CONSUMER_CLIENT_OFFSET = 220
INVOKE_BROKER_TO_RESET_OFFSET = 222
DELETE_EXPIRED_LOG = 329
CREATE_USER = 3001
CREATE_ACL = 3006
DELETE_ACL = 3008


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; code 0 means done."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes


def request(
    address: str,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    timeout_seconds: float = 5.0,
) -> Answer:
    """Send one request to ``host:port`` and wait for its answer; OSError when nobody answers."""
    with Connection(address, timeout_seconds=timeout_seconds) as connection:
        connection.send(code, fields, body)
        while True:
            of_its_own, answer = connection.receive()
            if not of_its_own:  # a broker tells a group's members of a new one before it answers that one
                return answer


class Connection:
    """A connection that is kept, as a client's is: what the server sends of its own accord comes here too."""

    def __init__(self, address: str, *, language: str = "JAVA", timeout_seconds: float = 5.0) -> None:
        host, port = address.rsplit(":", 1)
        self._language = language
        self._opaque = 0
        self._socket = socket.create_connection((host, int(port)), timeout_seconds)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """Whoever waits for an answer, in another thread, gets an error, and so does the server."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Send one request."""
        self._opaque += 1
        command = {
            "code": code,
            "language": self._language,
            "version": 400,
            "opaque": self._opaque,
            "flag": 0,
        }
        header = json.dumps({**command, "extFields": fields or {}}).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)

    def receive(self) -> tuple[bool, Answer]:
        """The next frame: whether it is a request of the server's own, and what it says."""
        (length,) = struct.unpack(">i", _exactly(self._socket, 4))
        frame = _exactly(self._socket, length)
        (header_length,) = struct.unpack_from(">i", frame)
        end = 4 + (header_length & 0xFFFFFF)
        header = json.loads(frame[4:end])
        fields = header.get("extFields") or {}
        return not header["flag"] & 1, Answer(header["code"], header.get("remark") or "", fields, frame[end:])


def route_addresses(name_server: str, topic: str) -> set[str]:
    """Addresses of the brokers that serve a topic, as the name server knows them; empty when it does not."""
    try:
        answer = request(name_server, ROUTE, {"topic": topic})
    except OSError:
        return set()
    if answer.code != 0:
        return set()
    # The body is JSON with bare number keys (0:"host:port"), which json.loads refuses.
    return set(re.findall(r'\d"?:"([^"]+:\d+)"', answer.body.decode()))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        data += part
    return bytes(data)
