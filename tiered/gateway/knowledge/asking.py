"""How the answers ask the archive: only for the broker that it is of, and never longer than a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Protocol, TypeVar

from tiered.codec.remoting.frame import Bytes
from tiered.errors import TieredError, Unavailable
from tiered.gateway.ports import ConnectionInfo

T = TypeVar("T")

CALL_SECONDS = 2.5
"""Most time for a question other than a pull, unless a setting says otherwise: clients give up on those after three seconds."""

AGAIN_SECONDS = 0.25

PULL_LIMIT = "gateway.read_timeout_ms is the limit"
CALL_LIMIT = "gateway.call_timeout_ms is the limit"


class KnowsBroker(Protocol):
    """Whether a connection leads to the broker whose messages are archived; see ``SameBroker``."""

    def agrees(self, connection: ConnectionInfo) -> bool: ...

    async def require(self, connection: ConnectionInfo) -> None: ...

    @property
    def listens(self) -> bool: ...

    def heard(self, connection: ConnectionInfo, head: Bytes) -> None: ...

    def closed(self, connection: ConnectionInfo) -> None: ...


class Asking:
    """Questions to the archive from the event loop. One that takes too long is ``Unavailable`` and goes on in the background,
    so that the next one finds its blocks in the cache."""

    def __init__(
        self,
        pool: Executor,
        pull_seconds: float,
        again_seconds: float = AGAIN_SECONDS,
        *,
        call_seconds: float = CALL_SECONDS,
        broker: KnowsBroker | None = None,
    ) -> None:
        self._pool = pool
        self._again_seconds = again_seconds
        self._broker = broker
        self.pull_seconds = pull_seconds
        self.call_seconds = min(pull_seconds, call_seconds)
        self._limit = CALL_LIMIT if call_seconds <= pull_seconds else PULL_LIMIT

    def is_same(self, connection: ConnectionInfo) -> bool:
        """Whether the connection is known to lead to the broker that was archived."""
        return self._broker is None or self._broker.agrees(connection)

    async def require_same(self, connection: ConnectionInfo, seconds: float, limit: str = PULL_LIMIT) -> None:
        """``Unavailable`` unless the connection leads to the broker that was archived, and that is known in time."""
        if self._broker is None or self.is_same(connection):
            return
        try:
            async with asyncio.timeout(seconds):
                await self._broker.require(connection)
        except TimeoutError:
            raise Unavailable(
                "it was not known in time whether the archive is of this broker", seconds=seconds, hint=limit
            ) from None

    async def call(
        self, connection: ConnectionInfo, function: Callable[[], T], *, until: float | None = None
    ) -> T:
        """``function``, which may block, run in the pool; tried again while there is time if the archive is ``Unavailable``.
        ``until``: of the event loop's clock, where one answer takes several calls.

        Consumers that pull try again by themselves, those who call this for an application do not.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self.call_seconds if until is None else until
        await self.require_same(connection, max(end - loop.time(), 0.0), self._limit)
        while True:
            try:
                return await self.wait(
                    self._pool.submit(function), max(end - loop.time(), 0.0), limit=self._limit
                )
            except Unavailable:
                if loop.time() + self._again_seconds >= end:
                    raise
            await asyncio.sleep(self._again_seconds)

    async def finish(self, function: Callable[[], T]) -> T:
        """``function`` run in the pool, however long it takes: what it makes is wanted by those who ask later."""
        return await asyncio.wrap_future(self._pool.submit(function))

    def aside(self, function: Callable[[], object]) -> None:
        """Run ``function`` for its own sake; nobody waits, and an error of its own is its own."""
        with suppress(RuntimeError):  # the pool is closed
            self._pool.submit(_quietly, function)

    async def wait(self, future: Future[T], seconds: float, limit: str = PULL_LIMIT) -> T:
        """The future's result, or ``Unavailable`` after ``seconds``. A cancelled caller leaves the future alone.

        What the cache had is there at once, and costs no turn of the event loop and no wake-up across threads. ``limit`` is the
        hint that names the setting.
        """
        if future.done():
            return future.result()
        waiter = asyncio.wrap_future(future)
        done, _ = await asyncio.wait((waiter,), timeout=seconds)
        if done:
            return waiter.result()
        waiter.add_done_callback(_seen)
        raise Unavailable("the archive did not answer in time", seconds=round(seconds, 3), hint=limit)


def _quietly(function: Callable[[], object]) -> None:
    with suppress(TieredError):
        function()


def _seen(future: asyncio.Future[T]) -> None:
    """An outcome that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
