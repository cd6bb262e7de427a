"""Where a broker's commitlog begins, asked of the broker: remembered for a moment, or as it is now; where a queue ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tiered.clock import Clock
from tiered.codec.record.layout import physical_offset_of
from tiered.codec.remoting.codes import RequestCode, ResponseCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt, Refused, Unavailable
from tiered.gateway.knowledge.stored import is_not_found
from tiered.gateway.ports import KEYS_HINT, ConnectionInfo, clipped
from tiered.model import MessageQueue

KEEP_SECONDS = 1.0
FRESH_SECONDS = 0.1
"""Between two questions of those who want the answer as it is now: a broker's runtime information costs it 10 ms."""
VIEW_SECONDS = 0.002
"""Between two views of a record; and more after one of a large record."""
VIEW_BYTES_PER_SECOND = 10_000_000

ASK_SECONDS = 2.5

Ask = Callable[[str, Command, float], Awaitable[Command]]
"""Broker address, request and seconds → the answer. ``Unavailable`` without one."""


class BrokerRefuses(Refused):
    """The broker does not let the gateway ask. Of its own, so that what the archive refuses is never taken for it."""


class Floors:
    """The begin of each broker's commitlog: many askers of one broker within a second cost one request, those who want to
    know it as it is now at most ten a second."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[float, asyncio.Task[int | None]]] = {}
        self._soon: dict[str, asyncio.Task[int | None]] = {}  # not asked yet
        self._next_view: dict[str, float] = {}  # when the next view may be asked for
        self._views: dict[tuple[str, int], asyncio.Task[bool]] = {}  # not asked yet

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

    async def has(self, connection: ConnectionInfo, physical_offset: int) -> bool:
        """Whether the broker, asked after this call, still has the record at ``physical_offset``: then it has all behind it,
        since it deletes the oldest file first. False too if no record begins there. ``Unavailable``.

        A view costs a broker a tenth of what its runtime information does, which while several files are deleted at once tells
        of the first of them only.
        """
        key = connection.broker_address, physical_offset
        if key not in self._views:
            self._views[key] = asyncio.create_task(self._view_soon(*key))
        return await asyncio.shield(self._views[key])

    async def record_at(self, connection: ConnectionInfo, physical_offset: int) -> bytes | None:
        """What the broker answers to a view of ``physical_offset``: its record, or for 0 the first one that it still has;
        ``None`` if it has none there. A broker asked for a place where no record begins may answer with anything.

        ``Unavailable`` without an answer, ``BrokerRefuses`` if the broker does not let the gateway ask.
        """
        request = Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": str(physical_offset)})
        answer = await self._asked(connection.broker_address, request)
        if answer.code == ResponseCode.SUCCESS:
            return bytes(answer.body)
        if is_not_found(answer):
            return None
        raise BrokerRefuses(
            "the broker does not answer the gateway's own question",
            code=answer.code,
            remark=clipped(answer.remark or ""),
            hint=None if answer.code == ResponseCode.SYSTEM_BUSY else KEYS_HINT,
        )

    async def log_end(self, connection: ConnectionInfo) -> int | None:
        """Where the broker's commitlog ends, asked after this call; ``None`` if it does not say. ``Unavailable``."""
        answer = await self._asked(connection.broker_address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        return _of_runtime(answer, "commitLogMaxOffset")

    async def _view_soon(self, address: str, physical_offset: int) -> bool:
        now = self._clock.monotonic()
        turn = max(now, self._next_view.get(address, now))
        self._next_view[address] = turn + VIEW_SECONDS
        await asyncio.sleep(turn - now)
        del self._views[address, physical_offset]
        request = Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": str(physical_offset)})
        answer = await self._asked(address, request)
        self._next_view[address] += len(answer.body) / VIEW_BYTES_PER_SECOND
        # A broker whose first file is gone takes offset 0 for the start of its oldest file: the record says where it lies.
        return answer.code == ResponseCode.SUCCESS and physical_offset_of(answer.body) == physical_offset

    async def end(self, connection: ConnectionInfo, queue: MessageQueue) -> int:
        """Where the broker's queue ends, asked after this call. ``Unavailable``."""
        answer = await self._asked_of_queue(connection, queue, RequestCode.GET_MAX_OFFSET)
        if answer.code != ResponseCode.SUCCESS:
            raise Unavailable("the broker does not say where a queue ends", queue=queue, code=answer.code)
        return number_field(answer.ext, "offset")

    async def queue_begin(self, connection: ConnectionInfo, queue: MessageQueue) -> int | None:
        """Where the broker's queue begins, asked after this call; ``None``: it does not tell. ``Unavailable``."""
        answer = await self._asked_of_queue(connection, queue, RequestCode.GET_MIN_OFFSET)
        return number_field(answer.ext, "offset") if answer.code == ResponseCode.SUCCESS else None

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
        return commitlog_begin(await self._asked(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)))

    async def _asked_of_queue(self, connection: ConnectionInfo, queue: MessageQueue, code: int) -> Command:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id)}
        return await self._asked(connection.broker_address, Command(code, ext=fields))

    async def _asked(self, address: str, request: Command) -> Command:
        try:
            return await self._ask(address, request, ASK_SECONDS)
        except KeyError:
            raise Unavailable("the broker is not known", address=address) from None


def commitlog_begin(answer: Command) -> int | None:
    """``commitLogMinOffset`` of an answer to 28; ``None`` if it is not there."""
    return _of_runtime(answer, "commitLogMinOffset")


def _of_runtime(answer: Command, name: str) -> int | None:
    """A number in the table of an answer to 28; ``None`` if it is not there."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        text = decode_json(answer.body)["table"][name]
        return int(text) if int(text) >= 0 else None
    except (Corrupt, ValueError, KeyError, TypeError):
        return None
