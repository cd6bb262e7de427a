"""The channel between the workers of a gateway and the process that looks after them: frames of JSON on a Unix socket pair.

Each frame is its length (4 bytes, big-endian) and an object. One with ``id`` wants an answer, which has that number as ``re``.
Frames are taken in the order in which they were sent. Both sides are the same program, started together.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tiered.errors import Unavailable

log = logging.getLogger("tiered.gateway")

MAX_FRAME_BYTES = 64 << 20
MAX_WAITING_BYTES = 128 << 20
"""Bytes that the other side has not taken: beyond that it stands still, and the channel is closed."""

Message = Mapping[str, Any]
Taking = Callable[[Message], "Message | Coroutine[Any, Any, Message] | None"]
"""Takes a frame; what it returns, now or later, is the answer to one that wants an answer."""


class Wire:
    """One end. On one event loop; ``run`` until the other end is gone."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, take: Taking, name: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._take = take
        self._name = name
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.open = True

    def send(self, message: Message) -> None:
        """Send, and wait for nothing. Nothing happens when the other end is gone."""
        if not self.open:
            return
        data = json.dumps(message, separators=(",", ":")).encode()
        waiting = self._writer.transport.get_write_buffer_size()
        if len(data) > MAX_FRAME_BYTES or waiting > MAX_WAITING_BYTES:
            log.error(
                "a channel between workers is closed: the other end takes nothing", extra={"end": self._name}
            )
            self.close()
            return
        self._writer.write(len(data).to_bytes(4, "big") + data)

    def asked(self, message: Message) -> asyncio.Future[Message]:
        """Send, and have the answer come; ``Unavailable`` when the other end goes before."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        number = next(self._numbers)
        self._asked[number] = future
        future.add_done_callback(lambda _: self._asked.pop(number, None))
        self.send({**message, "id": number})
        if not self.open and not future.done():
            future.set_exception(self._gone())
        return future

    async def ask(self, message: Message, seconds: float) -> Message:
        """The answer; ``Unavailable`` without one in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self.asked(message)
        except TimeoutError:
            raise Unavailable(
                "the other end of the workers' channel does not answer", end=self._name, seconds=seconds
            ) from None

    async def run(self) -> None:
        """Take frames until the other end is gone."""
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > MAX_FRAME_BYTES:
                    log.error("a frame between workers is too long", extra={"end": self._name, "bytes": size})
                    return
                self._got(json.loads(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self.close()

    def close(self) -> None:
        """Close; who waits for an answer hears it."""
        self.open = False
        self._writer.close()
        for future in tuple(self._asked.values()):
            if not future.done():
                future.set_exception(self._gone())

    def _got(self, message: Message) -> None:
        if (number := message.get("re")) is not None:
            future = self._asked.get(number)
            if future is not None and not future.done():
                future.set_result(message)
            return
        made = self._take(message)
        if (number := message.get("id")) is None:
            return
        if isinstance(made, Coroutine):
            task = asyncio.get_running_loop().create_task(self._answer(made, number))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            self.send({**(made or {}), "re": number})

    async def _answer(self, making: Coroutine[Any, Any, Message], number: int) -> None:
        self.send({**await making, "re": number})

    def _gone(self) -> Unavailable:
        return Unavailable("the other end of the workers' channel is gone", end=self._name)
