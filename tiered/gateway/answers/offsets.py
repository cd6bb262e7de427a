"""Questions about one queue: its first offset (31), the offset at a time (29), its earliest store time (32)."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.codec.remoting.codes import QueueRequest, RequestCode, ResponseCode, SearchRequest, number_field
from tiered.codec.remoting.frame import Command
from tiered.errors import TieredError, Unavailable
from tiered.gateway.knowledge.archive import BoundsArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.caughtup import Coverage
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.knowledge.unchecked import Lacking, Unchecked
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.reply import changed
from tiered.metrics import Metrics
from tiered.model import BoundaryType, MessageQueue

OF_QUEUES = frozenset(
    {
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    }
)


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """What the archive says of a time. ``offset``: the one that is meant; ``None``: the broker knows better.

    ``open_end``: the archive's end, when what is meant may lie between it and where the broker's log starts.
    """

    offset: int | None
    open_end: int | None = None


class Offsets:
    """Corrects answers that the broker can only give for what it still has."""

    def __init__(
        self,
        archive: BoundsArchive,
        asking: Asking,
        minimums: Minimums,
        coverage: Coverage,
        metrics: Metrics,
        unchecked: Unchecked,
    ) -> None:
        self._archive = archive
        self._asking = asking
        self._minimums = minimums
        self._coverage = coverage
        self._metrics = metrics
        self._unchecked = unchecked

    def passes(self, request: Command, answer: Command) -> bool:
        """Whether there is nothing to correct; an answer about a queue of which nothing was deleted needs no archive."""
        if answer.code != ResponseCode.SUCCESS:
            return True
        return request.code == RequestCode.GET_MIN_OFFSET and number_field(answer.ext, "offset") <= 0

    async def answer(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """What the client gets instead; ``None``: the broker's answer."""
        match request.code:
            case RequestCode.GET_MIN_OFFSET:
                return await self.minimum(request, answer, connection)
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                return await self.search(request, answer, connection)
            case _:
                return await self.earliest(request, answer, connection)

    async def minimum(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """31: the smaller of both minimums."""
        queue, local = QueueRequest.parse(request.ext), number_field(answer.ext, "offset")
        await self._asking.require_same(connection, self._asking.call_seconds)
        archived = self._known_minimum(queue)
        if archived is None:
            archived = await self._asking.call(
                connection, lambda: self._archive.min_offset(queue.topic, queue.queue_id)
            )
        if archived is None or not archived < local:
            return self._count("min_offset", None)
        return self._count("min_offset", changed(answer, answer.code, answer.remark, {"offset": archived}))

    def _known_minimum(self, queue: QueueRequest) -> int | None:
        """The archive's minimum as it is known, without a turn in the pool: it moves by retention only."""
        try:
            known = self._archive.known(MessageQueue(queue.topic, queue.queue_id))
        except TieredError:
            return None
        return None if known is None else known.min_offset

    async def earliest(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """32: the earlier of both times; −1 is a broker that has nothing."""
        queue, local = QueueRequest.parse(request.ext), number_field(answer.ext, "timestamp")
        archived = await self._asking.call(
            connection, lambda: self._archive.earliest_message_time(queue.topic, queue.queue_id)
        )
        if archived is None or 0 <= local <= archived:
            return self._count("earliest_time", None)
        return self._count(
            "earliest_time", changed(answer, answer.code, answer.remark, {"timestamp": archived})
        )

    async def search(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """29: the archive's answer where it knows a message behind the one that is meant, else the broker's."""
        search, local = SearchRequest.parse(request.ext), number_field(answer.ext, "offset")
        found = await self._asking.call(connection, lambda: self.find(search, local))
        sure = await self.sure(connection, search.queue, found, "search_offset")
        if not sure:
            return None
        if found.offset is None or found.offset == local:
            return self._count("search_offset", None)
        made = changed(answer, answer.code, answer.remark, {"offset": found.offset})
        return self._count("search_offset", made)

    async def sure(
        self, connection: ConnectionInfo, queue: QueueRequest, found: TimeSearch, what: str
    ) -> bool:
        """``Unavailable`` if the broker's queue begins behind the archive's end, so that what is meant may lie between them.

        A broker that does not tell the gateway where it begins (rights) is believed, which is counted as unchecked (``what``:
        the question), and false; so is what it told a consumer last.
        """
        if found.open_end is None:
            return True
        begin = await self._coverage.begin(connection, MessageQueue(queue.topic, queue.queue_id))
        if begin is None:
            begin = self._minimums.get(queue.topic, queue.queue_id)
        if begin is None:
            self._unchecked.count(what, Lacking.BEGIN)
            return False
        self._unchecked.complete(what)
        if begin > found.open_end:
            raise Unavailable(
                "the broker has deleted messages that the archive does not have yet; the answer may be one of them",
                topic=queue.topic,
                queue=queue.queue_id,
                archive_end=found.open_end,
                broker_begin=begin,
            )
        return True

    def find(self, search: SearchRequest, local: int) -> TimeSearch:
        """The archived offset at a store time, for which the broker says ``local``. Blocks.

        ``LOWER`` is the first message stored at or after the time, ``UPPER`` the last one stored at or before it, as the
        broker's own store has it; both follow from the first message stored later. When all archived ones are older, and the
        broker names one inside the archive, it begins there or before: nothing lies between. A broker that has nothing says 0.
        """
        queue, upper = search.queue, search.boundary is BoundaryType.UPPER
        time_ms = search.time_ms + 1 if upper else search.time_ms
        after = self._archive.offset_by_time(queue.topic, queue.queue_id, time_ms)
        low = self._archive.min_offset(queue.topic, queue.queue_id)
        end = self._archive.max_offset(queue.topic, queue.queue_id)
        if after is None or low is None or end is None:
            return TimeSearch(None)
        if after < end:
            return TimeSearch(max(low, after - 1) if upper else int(after))
        return TimeSearch(None, None if 0 < local <= end else int(end))

    def _count(self, what: str, made: Command | None) -> Command | None:
        self._metrics.cold_answers.labels(what, "passed" if made is None else "corrected").inc()
        return made
