"""The way to a name server or broker on the event loop: dialling, and one question of the gateway's own.

The blocking client is ``tiered.broker``'s; frames and codes are ``codec.remoting``'s for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from tiered.codec.remoting.frame import RESPONSE, Command, FrameReader, decode_command, encode_command
from tiered.errors import TieredError, Unavailable

CONNECT_SECONDS = 3.0
"""RocketMQ's own connect timeout."""


class Upstream:
    """One server that may have several addresses; the one that answered last is tried first."""

    def __init__(self, addresses: Sequence[tuple[str, int]], tls: ssl.SSLContext | None) -> None:
        self._addresses = list(addresses)
        self._tls = tls

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """A connection to the first address that answers; ``factory`` is called for it alone. ``Unavailable`` if none does."""
        reasons = []
        cause: Exception | None = None
        for address in tuple(self._addresses):
            host, port = address
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    transport, _ = await asyncio.get_running_loop().create_connection(
                        factory, host, port, ssl=self._tls, server_hostname="" if self._tls else None
                    )
            except (OSError, TimeoutError) as error:  # TLS errors are OSErrors too
                reasons.append(f"{host}:{port}: {error or type(error).__name__}")
                cause = error
                continue
            if self._addresses[0] != address:
                self._addresses.remove(address)
                self._addresses.insert(0, address)
            return transport
        raise Unavailable("no server behind the gateway answers", tried="; ".join(reasons)) from cause

    async def probe(self) -> None:
        """Connect, and hang up. ``Unavailable`` if nobody is there."""
        (await self.connect(asyncio.Protocol)).close()

    async def ask(self, request: Command, *, seconds: float, max_frame_bytes: int) -> Command:
        """One request of the gateway's own, on a connection of its own, and its answer. ``Unavailable`` without one."""
        asking = _Asking(request, max_frame_bytes)
        try:
            async with asyncio.timeout(seconds):
                transport = await self.connect(lambda: asking)
                try:
                    return await asking.answer
                finally:
                    transport.abort()
        except TimeoutError:
            raise Unavailable(
                "a server behind the gateway does not answer", code=request.code, seconds=seconds
            ) from None
        finally:
            asking.answer.cancel()


class _Asking(asyncio.Protocol):
    """Sends one request and waits for the frame that answers it."""

    def __init__(self, request: Command, max_frame_bytes: int) -> None:
        self.answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._request = request
        self._reader = FrameReader(max_frame_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No test of its class: the transports of other loops than asyncio's own have classes of their own.
        cast(asyncio.WriteTransport, transport).writelines(encode_command(self._request))

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return
        try:
            for frame in self._reader.feed(data):
                command = decode_command(frame)
                if command.flag & RESPONSE and command.opaque == self._request.opaque:
                    self.answer.set_result(command)
                    return
        except TieredError as error:
            self.answer.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answer.done():
            with contextlib.suppress(asyncio.InvalidStateError):
                self.answer.set_exception(
                    Unavailable("a server behind the gateway closed the connection", found=repr(error))
                )
