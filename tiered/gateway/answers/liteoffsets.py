"""Questions about one lite queue: as about other queues, once it is known that archive and broker number it alike."""

from __future__ import annotations

from tiered.codec.remoting.codes import QueueRequest, RequestCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.gateway.answers.litenumbers import LiteNumbers
from tiered.gateway.answers.offsets import Offsets
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics
from tiered.model import MessageQueue

NAMES = {
    RequestCode.GET_MIN_OFFSET: "min_offset",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "search_offset",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "earliest_time",
}


class LiteOffsets:
    """What such questions are answered."""

    def __init__(self, offsets: Offsets, numbers: LiteNumbers, metrics: Metrics) -> None:
        self._offsets = offsets
        self._numbers = numbers
        self._metrics = metrics

    def takes(self, request: Command) -> bool:
        """Whether this is a question about a lite queue, and such are answered."""
        return request.code in NAMES and self._numbers.covers(request.ext.get("topic", ""))

    async def answer(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """The client's answer; ``None``: the broker's. Raises what must make the client ask again."""
        code, asked = RequestCode(request.code), QueueRequest.parse(request.ext)
        minimum = code == RequestCode.GET_MIN_OFFSET
        first = number_field(answer.ext, "offset") if minimum else None
        queue = MessageQueue(asked.topic, asked.queue_id)
        more = await self._numbers.has_more(connection, queue, NAMES[code], first)
        if more:
            return await self._offsets.answer(request, answer, connection)
        if more is not None:
            self._metrics.cold_answers.labels(NAMES[code], "passed").inc()
        return None
