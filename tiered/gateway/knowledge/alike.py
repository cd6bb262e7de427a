"""Whether archive and broker number a lite queue alike (DESIGN.md, "Lite queues"): how offsets are stated in records and how a
broker numbers them may part ways, so they are compared where the broker's queue begins."""

from __future__ import annotations

from tiered.errors import Unavailable
from tiered.gateway.knowledge.archive import KnownArchive
from tiered.gateway.knowledge.caughtup import Coverage
from tiered.gateway.ports import ConnectionInfo
from tiered.model import MessageQueue


class Numbering:
    """The comparison. The archive's record before the broker's minimum must lie below the start of the broker's commitlog, and
    the one there must not."""

    def __init__(self, archive: KnownArchive, coverage: Coverage) -> None:
        self._archive = archive
        self._coverage = coverage

    async def require_alike(
        self, connection: ConnectionInfo, queue: MessageQueue, first: int, end: int, archive_end: int
    ) -> None:
        """``Unavailable`` unless both number the queue alike, as far as can be seen. [``first``, ``end``): offsets that the
        broker has; the archive's begin below ``first``."""
        begin = await self._coverage.log_begin(connection, fresh=True)
        before = self._archive.physical_floor(queue, first - 1)
        there = self._archive.physical_floor(queue, first)
        alike = begin is not None and before is not None and before < begin and archive_end <= end
        if alike and first < archive_end:
            alike = there is not None and begin is not None and there >= begin
        elif alike and first == end:
            alike = archive_end == end
        if not alike:
            raise Unavailable(
                "archive and broker do not number this lite queue alike, or the broker is deleting now",
                queue=queue,
                broker_begin=first,
                broker_end=end,
                archive_end=archive_end,
                hint="names that do not begin with %LMQ% beside others, or one name twice, make brokers count otherwise",
            )
