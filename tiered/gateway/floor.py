"""Where a broker's commitlog begins, asked of the broker and remembered for a moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from tiered.clock import Clock
from tiered.codec.remoting import Command
from tiered.errors import Unavailable
from tiered.gateway.base import ConnectionInfo

RUNTIME_INFO = 28
KEEP_SECONDS = 1.0
ASK_SECONDS = 2.5

Ask = Callable[[str, Command, float], Awaitable[Command]]
"""Broker address, request and seconds → the answer. ``Unavailable`` without one."""


class Floors:
    """The begin of each broker's commitlog: many askers of one broker within a second cost one request."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[float, asyncio.Task[int | None]]] = {}

    async def floor(self, connection: ConnectionInfo) -> int | None:
        """Physical offset where the broker's oldest commitlog file begins; ``None`` if it does not say. ``Unavailable``."""
        address, now = connection.broker_address, self._clock.monotonic()
        asked = self._known.get(address)
        if asked is None or (asked[1].done() and now - asked[0] >= KEEP_SECONDS):
            asked = self._known[address] = (now, asyncio.create_task(self._look(address)))
        return await asyncio.shield(asked[1])

    async def _look(self, address: str) -> int | None:
        try:
            answer = await self._ask(address, Command(RUNTIME_INFO), ASK_SECONDS)
        except KeyError:
            raise Unavailable("the broker is not known", address=address) from None
        return commitlog_begin(answer)


def commitlog_begin(answer: Command) -> int | None:
    """``commitLogMinOffset`` of an answer to 28; ``None`` if it is not there."""
    if answer.code != 0:
        return None
    try:
        text = json.loads(bytes(answer.body))["table"]["commitLogMinOffset"]
        return int(text) if int(text) >= 0 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
