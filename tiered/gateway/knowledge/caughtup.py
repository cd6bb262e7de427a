"""Whether the archive is past all that the broker has deleted, so that what it does not have now it never gets."""

from __future__ import annotations

from typing import Protocol

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.gateway.knowledge.archive import KnownArchive
from tiered.gateway.ports import ConnectionInfo
from tiered.model import MessageQueue

MAX_WAITING = 65_536
"""Queues that wait for proof at once: one that is forgotten before its proof is there waits for ever."""

FLOOR_SECONDS = 4.0
"""Age of a minimum when the log's start is asked for: an answer to that is kept for less, so that it is never older."""

CALM_SECONDS = 30.0
"""A broker's own minimums are right when its commitlog has begun at one place for this long: it corrects them every ten
seconds, in the same job that deletes files."""

FAR_BYTES = 16 << 30
"""A broker does not come so far in the seconds for which an answer about its start is kept: it deletes at most ten files of
1 GiB a second."""


class AsksFloor(Protocol):
    """What a connection's broker still has; see ``Floors``."""

    async def floor(self, connection: ConnectionInfo, *, fresh: bool = False) -> int | None: ...

    async def has(self, connection: ConnectionInfo, physical_offset: int) -> bool: ...

    async def end(self, connection: ConnectionInfo, queue: MessageQueue) -> int: ...

    async def queue_begin(self, connection: ConnectionInfo, queue: MessageQueue) -> int | None: ...


class _Waiting:
    """A queue whose answer hangs on whether the archive has caught up with what the broker deleted below ``minimum``.

    ``evidence``: a physical offset above all of that; ``since``: when the minimum was heard first.
    """

    __slots__ = ("evidence", "minimum", "since")

    def __init__(self, minimum: int, since: float) -> None:
        self.minimum = minimum
        self.since = since
        self.evidence: int | None = None


class Coverage:
    """Whether the archive is past all that the broker has deleted of a queue, so that what it does not have now it never gets.

    The commitlog is archived in physical order. Once the archive's progress is past a record of the same queue at or above the
    broker's minimum (seen in a passing answer: ``served``), or past the start of the broker's commitlog (``floor``, asked for
    after the minimum was heard), everything below that minimum is archived, left out on purpose, or lost. No clocks are
    compared.
    """

    def __init__(
        self,
        archive: KnownArchive,
        clock: Clock,
        floor: AsksFloor | None,
    ) -> None:
        self._archive = archive
        self._clock = clock
        self._floor = floor
        self._begins: dict[str, tuple[int, float]] = {}  # where each broker begins, and since when it does
        self._waiting: LRUCache[MessageQueue, _Waiting] = LRUCache(MAX_WAITING)

    def served(self, queue: MessageQueue, offset: int, physical_offset: int) -> None:
        """The broker has answered with the record at ``offset`` of ``queue``."""
        waiting = self._waiting.get(queue)
        if waiting is not None and waiting.evidence is None and offset >= waiting.minimum:
            waiting.evidence = physical_offset

    @property
    def waits(self) -> bool:
        """Whether ``served`` is of use to anybody."""
        return bool(self._waiting)

    async def passed(
        self, connection: ConnectionInfo, queue: MessageQueue, offset: int, minimum: int
    ) -> int | None:
        """Up to where, at most the broker's ``minimum``, nothing of ``queue`` will ever be archived that is not archived now.

        ``None``: that is not sure for ``offset``. While the minimum moves on, the one heard first is worked on.
        """
        now = self._clock.monotonic()
        waiting = self._waiting.get(queue)
        if waiting is None or not offset < waiting.minimum <= minimum:
            waiting = self._waiting[queue] = _Waiting(minimum, now)
        if waiting.evidence is None and self._floor is not None and now - waiting.since >= FLOOR_SECONDS:
            try:
                waiting.evidence = await self._floor.floor(connection)
            except TieredError:
                return None
        if waiting.evidence is None or waiting.evidence > self._progress():
            return None
        return waiting.minimum

    async def intact(self, connection: ConnectionInfo) -> bool:
        """Whether the broker, asked after this call, has deleted nothing of its commitlog yet."""
        if self._floor is None or await self.log_begin(connection) != 0:
            return False
        try:
            return await self._floor.has(connection, 0)
        except TieredError:
            return False

    async def has_the_rest(self, connection: ConnectionInfo, queue: MessageQueue, offset: int) -> bool:
        """Whether the broker, asked after this call, has deleted nothing of ``queue`` from ``offset`` on, because all of that
        lies behind what is archived and the broker has deleted nothing there."""
        try:
            progress = self._progress()  # first: the queue may go on meanwhile
            known = self._archive.known(queue)
            if self._floor is None or progress < 0 or known is None or offset < known.max_offset:
                return False
            floor = await self.log_begin(connection)
            if floor is not None and progress - floor >= FAR_BYTES:
                return True
            return await self._floor.has(connection, progress)
        except TieredError:
            return False

    async def calm(self, connection: ConnectionInfo) -> bool:
        """Whether the broker has deleted nothing lately, so that what it has just answered left out nothing but what a filter
        did not take."""
        floor = await self.log_begin(connection, fresh=True)
        if floor is None:
            return False
        return self._clock.monotonic() - self._begins[connection.broker_address][1] >= CALM_SECONDS

    async def end(self, connection: ConnectionInfo, queue: MessageQueue) -> int | None:
        """Where the broker's queue ends now; ``None``: nobody can be asked. ``Unavailable`` if the broker does not say."""
        return None if self._floor is None else await self._floor.end(connection, queue)

    async def begin(self, connection: ConnectionInfo, queue: MessageQueue) -> int | None:
        """Where the broker's queue begins now; ``None``: nobody can be asked, or it does not tell the gateway. ``Unavailable``
        without an answer."""
        return None if self._floor is None else await self._floor.queue_begin(connection, queue)

    async def has(self, connection: ConnectionInfo, physical_offset: int) -> bool:
        """Whether the broker, asked after this call, has the record there, and so all behind it. ``Unavailable``."""
        return self._floor is not None and await self._floor.has(connection, physical_offset)

    async def log_begin(self, connection: ConnectionInfo, *, fresh: bool = False) -> int | None:
        """Where the broker's commitlog began a moment ago, or, ``fresh``, begins now; ``None``: it does not say."""
        if self._floor is None:
            return None
        try:
            floor = await self._floor.floor(connection, fresh=fresh)
        except TieredError:
            return None
        known = self._begins.get(connection.broker_address)
        if floor is not None and (known is None or known[0] != floor):
            self._begins[connection.broker_address] = (floor, self._clock.monotonic())
        return floor

    def settled(self, queue: MessageQueue) -> None:
        """The question is answered."""
        self._waiting.pop(queue, None)

    def _progress(self) -> int:
        progress = self._archive.progress()
        return -1 if progress is None else progress.physical_offset
