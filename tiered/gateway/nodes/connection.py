"""One connection to a read node: many questions at once, each answered in its own time. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from tiered.codec.remoting.frame import Command, FrameReader, decode_command, encode_command
from tiered.codec.remoting.nodebeat import NodeBeat, beat_command
from tiered.codec.remoting.nodepull import NodeAnswer, NodePull
from tiered.errors import TieredError, Unavailable
from tiered.gateway.transport.upstream import Upstream

MOST_UNANSWERED = 1024
"""Questions of one connection without an answer; one more is refused."""


class NodeConnection:
    """Made when it is needed, and again when it broke."""

    def __init__(self, upstream: Upstream, token: str, max_frame_bytes: int) -> None:
        """``token``: what the node wants to be shown; empty: nothing. A longer frame than ``max_frame_bytes`` ends it."""
        self._upstream = upstream
        self._token = token
        self._max_frame_bytes = max_frame_bytes
        self._link: _Link | None = None
        self._dialling = asyncio.Lock()

    async def ask(self, pull: NodePull, seconds: float) -> NodeAnswer:
        """``Unavailable`` without an answer in time; ``Corrupt`` for one that is damaged."""
        try:
            async with asyncio.timeout(seconds):
                link = await self._linked()
                return NodeAnswer.parse(await link.ask(lambda opaque: pull.command(opaque, self._token)))
        except TimeoutError:
            raise Unavailable("a read node does not answer", seconds=round(seconds, 3)) from None

    async def beat(self, seconds: float) -> NodeBeat | None:
        """What the node says of itself; ``None`` without an answer in time. ``Unavailable`` if it cannot be reached."""
        try:
            async with asyncio.timeout(seconds):
                link = await self._linked()
                return NodeBeat.parse(await link.ask(lambda opaque: beat_command(opaque, self._token)))
        except TimeoutError:
            return None

    def close(self) -> None:
        """End it; whoever waits hears it."""
        if self._link is not None:
            self._link.close()

    async def _linked(self) -> _Link:
        async with self._dialling:
            if self._link is None or self._link.over:
                link = _Link(self._max_frame_bytes)
                await self._upstream.connect(lambda: link)
                self._link = link
            return self._link


class _Link(asyncio.Protocol):
    """One socket, and who waits for answers on it."""

    def __init__(self, max_frame_bytes: int) -> None:
        self.over = False
        self._reader = FrameReader(max_frame_bytes)
        self._transport: asyncio.WriteTransport | None = None
        self._unanswered: dict[int, asyncio.Future[Command]] = {}
        self._opaque = 0

    async def ask(self, question: Callable[[int], Command]) -> Command:
        if self._transport is None or self.over:
            raise Unavailable("a read node closed the connection")
        if len(self._unanswered) >= MOST_UNANSWERED:
            raise Unavailable("too many questions to a read node have no answer", questions=MOST_UNANSWERED)
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        waiter: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._unanswered[opaque] = waiter
        try:
            self._transport.writelines(encode_command(question(opaque)))
            return await waiter
        finally:
            self._unanswered.pop(opaque, None)

    def close(self) -> None:
        self.over = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Give each answer to who waits for it; one that nobody waits for any more is dropped."""
        if self.over:
            return
        try:
            for frame in self._reader.feed(data):
                command = decode_command(frame)
                waiter = self._unanswered.pop(command.opaque, None) if command.is_response else None
                if waiter is not None and not waiter.done():
                    waiter.set_result(command)
        except TieredError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.over = True
        self._fail(Unavailable("a read node closed the connection", found=repr(error)))

    def _fail(self, error: TieredError) -> None:
        waiting, self._unanswered = self._unanswered, {}
        for waiter in waiting.values():
            with contextlib.suppress(asyncio.InvalidStateError):
                waiter.set_exception(error)
