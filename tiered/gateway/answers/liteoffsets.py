"""Questions about one lite queue: as about other queues, once it is known that archive and broker number it alike."""

from __future__ import annotations

from tiered.codec.record.lite import is_lite
from tiered.codec.remoting.codes import QueueRequest, RequestCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.gateway.answers.offsets import Offsets
from tiered.gateway.knowledge.alike import Numbering
from tiered.gateway.knowledge.archive import BoundsArchive
from tiered.gateway.knowledge.knowledge import Knowledge
from tiered.gateway.knowledge.unchecked import Lacking
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics
from tiered.model import MessageQueue

NAMES = {
    RequestCode.GET_MIN_OFFSET: "min_offset",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "search_offset",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "earliest_time",
}


class LiteOffsets:
    """What such questions are answered. ``enabled``: whether they are looked at."""

    def __init__(
        self,
        offsets: Offsets,
        archive: BoundsArchive,
        knowledge: Knowledge,
        metrics: Metrics,
        *,
        enabled: bool,
    ) -> None:
        self._offsets = offsets
        self._archive = archive
        self._asking = knowledge.asking
        self._coverage = knowledge.coverage
        self._numbering = Numbering(archive, knowledge.coverage)
        self._unchecked = knowledge.unchecked
        self._metrics = metrics
        self._enabled = enabled

    def takes(self, request: Command) -> bool:
        """Whether this is a question about a lite queue, and such are answered."""
        return self._enabled and request.code in NAMES and is_lite(request.ext.get("topic", ""))

    async def answer(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """The client's answer; ``None``: the broker's. Raises what must make the client ask again."""
        code, asked = RequestCode(request.code), QueueRequest.parse(request.ext)
        await self._asking.require_same(connection, self._asking.call_seconds)
        low, high = await self._asking.call(connection, lambda: self._bounds(asked))
        queue = MessageQueue(asked.topic, asked.queue_id)
        if low is None or high is None:
            self._metrics.cold_answers.labels(NAMES[code], "passed").inc()
            return None
        if code == RequestCode.GET_MIN_OFFSET:
            first: int | None = number_field(answer.ext, "offset")
        else:
            first = await self._coverage.begin(connection, queue)
        end = None if first is None else await self._coverage.end(connection, queue)
        if first is None or end is None:
            self._unchecked.count(NAMES[code], Lacking.BEGIN)
            return None
        if low >= first:
            self._metrics.cold_answers.labels(NAMES[code], "passed").inc()
            return None
        await self._numbering.require_alike(connection, queue, first, end, high)
        return await self._offsets.answer(request, answer, connection)

    def _bounds(self, asked: QueueRequest) -> tuple[int | None, int | None]:
        self._archive.follow()
        topic, queue_id = asked.topic, asked.queue_id
        return self._archive.min_offset(topic, queue_id), self._archive.max_offset(topic, queue_id)
