"""A TCP proxy before Kafka that knows where its requests begin and end: the connection breaks at a request of a chosen number,
before it is passed on, or after Kafka has carried it out and before its answer comes through."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from tiered.sink.contract.feeding import Interrupted

COUNTED = {0: "Produce", 22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn"}
"""Kinds of request that change something; what a client only asks is not counted."""
_MOST_BYTES = 64 << 20
_SIZE, _HEAD = struct.Struct(">i"), struct.Struct(">hhi")


class KafkaCuts:
    """``address`` is what Kafka has to advertise to those who come from outside. Any number of connections, a thread each."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._left: int | None = None
        self._done = False
        self._cut = Interrupted()

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    @contextlib.contextmanager
    def at(self, request: int, *, done: bool) -> Iterator[Interrupted]:
        """Break at the counted request of this number, from now on."""
        with self._lock:
            self._left, self._done, self._cut = request, done, Interrupted()
        yield self._cut
        with self._lock:
            self._left = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self._upstream.rpartition(":")
        with client, contextlib.suppress(OSError), socket.create_connection((host, int(port))) as broker:
            lost: set[int] = set()
            threading.Thread(target=self._answers, args=(broker, client, lost), daemon=True).start()
            while (frame := _frame(client)) is not None:
                kind, _, correlation = _HEAD.unpack_from(frame)
                if self._breaks(kind):
                    if not self._done:
                        return
                    lost.add(correlation)
                broker.sendall(_SIZE.pack(len(frame)) + frame)

    def _answers(self, broker: socket.socket, client: socket.socket, lost: set[int]) -> None:
        with contextlib.suppress(OSError):
            while (frame := _frame(broker)) is not None:
                if _SIZE.unpack_from(frame)[0] in lost:
                    break
                client.sendall(_SIZE.pack(len(frame)) + frame)
        for connection in (client, broker):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _breaks(self, kind: int) -> bool:
        with self._lock:
            if self._left is None or kind not in COUNTED:
                return False
            self._left -= 1
            if self._left != -1:
                return False
            self._cut.happened = True
            return True


def _frame(connection: socket.socket) -> bytes | None:
    """The next request or answer, without its length; ``None`` at the end."""
    head = _exactly(connection, _SIZE.size)
    if head is None:
        return None
    (size,) = _SIZE.unpack(head)
    if not 0 < size <= _MOST_BYTES:
        raise OSError(f"a frame of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
