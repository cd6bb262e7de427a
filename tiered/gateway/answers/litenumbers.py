"""Whether what the archive says of a lite queue may stand in a broker's answer: it has more of it, and both number it alike.

Questions about one queue, tables and resets ask here before a number of the archive's takes the place of one of the broker's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiered.codec.record.lite import is_lite
from tiered.codec.remoting.codes import RequestCode
from tiered.codec.remoting.frame import Command
from tiered.errors import Unavailable
from tiered.gateway.answers.wanted import STATS
from tiered.gateway.knowledge.alike import Numbering
from tiered.gateway.knowledge.archive import BoundsArchive
from tiered.gateway.knowledge.knowledge import Knowledge
from tiered.gateway.knowledge.unchecked import Lacking
from tiered.gateway.ports import ConnectionInfo
from tiered.model import MessageQueue

MOST_OF_A_TABLE = 64
"""Lite queues of one table that are looked at: each is two questions to the broker."""

_TAKEN = STATS | {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET}


class LiteNumbers:
    """The comparison, for all that asks it. ``enabled``: whether lite queues are looked at."""

    def __init__(self, archive: BoundsArchive, knowledge: Knowledge, *, enabled: bool) -> None:
        self._archive = archive
        self._asking = knowledge.asking
        self._coverage = knowledge.coverage
        self._numbering = Numbering(archive, knowledge.coverage)
        self._unchecked = knowledge.unchecked
        self._enabled = enabled

    def covers(self, topic: str) -> bool:
        """Whether this is a lite queue, and such are looked at."""
        return self._enabled and is_lite(topic)

    def takes(self, request: Command) -> bool:
        """Whether this asks for a table or a reset of a lite queue, or may say that a reset is done, and such are looked at."""
        return request.code in _TAKEN and self.covers(request.ext.get("topic", ""))

    async def has_more(
        self, connection: ConnectionInfo, queue: MessageQueue, what: str, first: int | None = None
    ) -> bool | None:
        """Whether the archive has messages of it from before the broker's ``first``, which is asked for where it is not told.

        ``None``: the broker does not say where it begins or ends, which is counted (``what``: the question). ``Unavailable``:
        they do not number it alike, or it cannot be seen.
        """
        await self._asking.require_same(connection, self._asking.call_seconds)
        low, high = await self._asking.call(connection, lambda: self._bounds(queue))
        if low is None or high is None:
            return False
        if first is None:
            first = await self._coverage.begin(connection, queue)
        end = None if first is None else await self._coverage.end(connection, queue)
        if first is None or end is None:
            self._unchecked.count(what, Lacking.BEGIN)
            return None
        if low >= first:
            return False
        await self._numbering.require_alike(connection, queue, first, end, high)
        return True

    async def of_table(
        self, connection: ConnectionInfo, queues: Iterable[MessageQueue], what: str, *, must: bool
    ) -> tuple[frozenset[MessageQueue], bool]:
        """Lite queues of a table that may be filled in, and whether others were left out that could not be compared. ``must``:
        a queue that cannot be compared is ``Unavailable``, since the broker's number would look like the right one."""
        found, left_out = set(), False
        lite = [queue for queue in dict.fromkeys(queues) if self.covers(queue.topic)]
        for queue in lite[:MOST_OF_A_TABLE]:
            try:
                more = await self.has_more(connection, queue, what)
            except Unavailable:
                if must:
                    raise
                more = None
            left_out = left_out or more is None
            if more:
                found.add(queue)
        return frozenset(found), left_out or len(lite) > MOST_OF_A_TABLE

    def _bounds(self, queue: MessageQueue) -> tuple[int | None, int | None]:
        self._archive.follow()
        return (
            self._archive.min_offset(queue.topic, queue.queue_id),
            self._archive.max_offset(queue.topic, queue.queue_id),
        )
