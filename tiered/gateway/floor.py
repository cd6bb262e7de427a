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
FRESH_SECONDS = 0.1
"""Between two questions of those who want the answer as it is now."""

ASK_SECONDS = 2.5

Ask = Callable[[str, Command, float], Awaitable[Command]]
"""Broker address, request and seconds → the answer. ``Unavailable`` without one."""


class Floors:
    """The begin of each broker's commitlog: many askers of one broker within a second cost one request, those who want to
    know it as it is now at most ten a second."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[float, asyncio.Task[int | None]]] = {}
        self._soon: dict[str, asyncio.Task[int | None]] = {}  # not asked yet

    async def floor(self, connection: ConnectionInfo, *, fresh: bool = False) -> int | None:
        """Physical offset where the broker's oldest commitlog file begins; ``None`` if it does not say. ``Unavailable``.

        ``fresh``: the broker is asked after this call, not a moment before.
        """
        address = connection.broker_address
        if fresh:
            if address not in self._soon:
                self._soon[address] = asyncio.create_task(self._ask_soon(address))
            return await asyncio.shield(self._soon[address])
        asked = self._known.get(address)
        if asked is not None and not (asked[1].done() and self._clock.monotonic() - asked[0] >= KEEP_SECONDS):
            return await asyncio.shield(asked[1])
        return await asyncio.shield(self._ask_now(address))

    async def _ask_soon(self, address: str) -> int | None:
        """Ask when the last question is old enough, for all who have come until then."""
        asked = self._known.get(address)
        if asked is not None:
            await asyncio.sleep(max(0.0, asked[0] + FRESH_SECONDS - self._clock.monotonic()))
        del self._soon[address]
        return await self._ask_now(address)

    def _ask_now(self, address: str) -> asyncio.Task[int | None]:
        task = asyncio.create_task(self._look(address))
        self._known[address] = (self._clock.monotonic(), task)
        return task

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
