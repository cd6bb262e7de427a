"""Resets of a group to a time (222) that lies before what the broker still has.

The broker computes the offsets itself, from its own data; only the numbers are corrected, in all that names them. The answer
to the operator does. Then there are two kinds of brokers (``useServerSideResetOffset``, known to 5.1 and later):

* Those that hand the offsets to the group with its next pulls (21, ``OFFSET_RESET``). These must reach the client. Corrected
  is the first one of each queue that carries what the broker told the operator, and answers to *query consumer offset* (14)
  until then. What is known is kept in memory, for an hour: after a restart of the gateway, or at another one, the broker's own
  number passes, as it would without the gateway.
* Those that tell every consumer at once (220), by a request that wants no answer and names the time. It is corrected by
  itself, wherever the operator's order came through: another gateway, or none. While the archive cannot say, it does not reach
  the consumer; the order fails for the same reason, so that the operator gives it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.codec.format.aliases import LITE_QUEUE_ID
from tiered.codec.remoting.codes import (
    PullStatus,
    QueueRequest,
    ResetRequest,
    ResponseCode,
    SearchRequest,
    number_field,
    text_field,
)
from tiered.codec.remoting.frame import Bytes, Command
from tiered.codec.remoting.objectmap import ObjectMap, decode_object_map
from tiered.errors import BadRequest, Corrupt
from tiered.gateway.answers.litenumbers import LiteNumbers
from tiered.gateway.answers.offsets import Offsets, TimeSearch
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.ports import ConnectionInfo, NewBody
from tiered.gateway.reply import changed
from tiered.metrics import Metrics
from tiered.model import BoundaryType, MessageQueue

log = logging.getLogger("tiered.gateway")

KEPT_SECONDS = 3600.0
MAX_RESETS = 65_536
MAX_QUEUES = 4096
MAX_TOLD = 4096


@dataclass(slots=True)
class _Reset:
    local: int  # where the broker puts the group
    target: int  # where the operator wants it
    until: float
    committed: int = -1  # the last position of the group that the broker has vouched for since
    asked: Command | None = None  # the newest question for its position, asked after that


class Resets:
    """Targets of resets that the broker could not reach."""

    def __init__(
        self,
        offsets: Offsets,
        asking: Asking,
        metrics: Metrics,
        clock: Clock,
        lite: LiteNumbers,
    ) -> None:
        self._offsets = offsets
        self._asking = asking
        self._metrics = metrics
        self._clock = clock
        self._lite = lite
        self._targets: LRUCache[tuple[str, str, int], _Reset] = LRUCache(MAX_RESETS)
        self._told: LRUCache[tuple[str, str, int], float] = LRUCache(MAX_TOLD)  # group, topic, time → until

    def __len__(self) -> int:
        """Targets not reached yet."""
        return len(self._targets)

    def passes(self, answer: Command) -> bool:
        """Whether the broker has reset nothing."""
        return answer.code != ResponseCode.SUCCESS

    async def ordered(self, request: Command, answer: Command, connection: ConnectionInfo) -> NewBody | None:
        """222: the table of new offsets with the archive's where they are smaller."""
        reset = ResetRequest.parse(request.ext)
        table = self._table(request.code, reset, answer.body)
        found = {} if table is None else await self._targets_of(reset, table, connection)
        if table is None or not found:
            self._metrics.cold_answers.labels("reset", "passed").inc()
            return None
        now = self._clock.monotonic()
        if self._told.get((reset.group, reset.topic, reset.time_ms), now) <= now:
            for index, target in found.items():
                key, local = table.entries[index]
                place = reset.group, reset.topic, key["queueId"]
                self._targets[place] = _Reset(local, target, now + KEPT_SECONDS)
        log.info(
            "a reset goes back into the archive",
            extra={"group": reset.group, "topic": reset.topic, "queues": len(found)},
        )
        self._metrics.cold_answers.labels("reset", "corrected").inc()
        return _changed(table, found)

    async def told(self, notice: Command, connection: ConnectionInfo) -> NewBody | None:
        """220: the same for a consumer. Nothing is kept for its pulls, now or when the operator's answer comes."""
        reset = ResetRequest.parse(notice.ext)
        table = self._table(notice.code, reset, notice.body)
        if table is None:
            return None
        self._told[reset.group, reset.topic, reset.time_ms] = self._clock.monotonic() + KEPT_SECONDS
        for key, _ in table.entries[:MAX_QUEUES]:
            if type(queue_id := key.get("queueId")) is int:
                self._targets.pop((reset.group, reset.topic, queue_id), None)
        found = await self._targets_of(reset, table, connection)
        if not found:
            return None
        self._metrics.cold_answers.labels("reset", "told").inc()
        return _changed(table, found)

    def _table(self, code: int, reset: ResetRequest, body: Bytes) -> ObjectMap | None:
        """Offsets of a reset to a time; ``None`` for another reset, and for anything that is not a table, which is counted."""
        if reset.explicit or reset.time_ms < 0:
            return None
        try:
            return decode_object_map(memoryview(body), "offsetTable", listed="offset")
        except Corrupt:
            self._metrics.gateway_bad_requests.labels(str(int(code))).inc()
            return None

    async def _targets_of(
        self, reset: ResetRequest, table: ObjectMap, connection: ConnectionInfo
    ) -> dict[int, int]:
        """By entry of the table: the archived offset, where it is smaller. ``Unavailable`` if one is not sure."""
        found: dict[int, int] = {}
        if self._lite.covers(reset.topic):  # the one queue that it has; else the broker's number stands
            queue = MessageQueue(reset.topic, LITE_QUEUE_ID)
            if not await self._lite.has_more(connection, queue, "reset"):
                return found
        searched = await self._asking.call(connection, lambda: self._searched(reset, table))
        for index, (asked, local, search) in searched.items():
            await self._offsets.sure(connection, asked, search, "reset")
            if search.offset is not None and search.offset < local:
                found[index] = search.offset
        return found

    def _searched(
        self, reset: ResetRequest, table: ObjectMap
    ) -> dict[int, tuple[QueueRequest, int, TimeSearch]]:
        """By entry of the table: its queue, the broker's offset, the archive's. Blocks."""
        found: dict[int, tuple[QueueRequest, int, TimeSearch]] = {}
        for index, (key, local) in enumerate(table.entries[:MAX_QUEUES]):
            queue_id = key.get("queueId")
            if key.get("topic") != reset.topic or type(queue_id) is not int or type(local) is not int:
                continue
            queue = QueueRequest(reset.topic, queue_id)
            search = SearchRequest(queue, reset.time_ms, BoundaryType.LOWER)
            found[index] = queue, local, self._offsets.find(search, local)
        return found

    def meant(self, request: Mapping[str, str], answer: Command) -> bool:
        """Whether a pull's answer delivers a reset that has a target here."""
        if answer.code != ResponseCode.PULL_OFFSET_MOVED or answer.remark != PullStatus.OFFSET_RESET.value:
            return False
        known = self._known(request)
        return known is not None and known.local == number_field(answer.ext, "nextBeginOffset")

    def delivered(self, request: Command, answer: Command) -> Command | None:
        """The first reset answer of a queue, with the target. Never anything else than a reset."""
        if not self.meant(request.ext, answer):
            return None
        known = self._targets.pop(_key(request.ext))
        low = min(known.target, number_field(answer.ext, "minOffset", default=known.target))
        numbers = {"nextBeginOffset": known.target, "minOffset": low}
        self._metrics.cold_answers.labels("reset", "moved").inc()
        return changed(answer, answer.code, answer.remark, numbers)

    def position(self, request: Command, answer: Command) -> Command | None:
        """14: the target while the broker still names its own."""
        known = self._known(request.ext) if answer.code == ResponseCode.SUCCESS else None
        if known is None:
            return None
        offset = number_field(answer.ext, "offset")
        if offset != known.local:
            if known.asked is request or offset > known.committed:  # else it may be older than what is known
                self._stands(request.ext, known, offset)
            return None
        self._metrics.cold_answers.labels("reset", "moved").inc()
        return changed(answer, answer.code, answer.remark, {"offset": known.target})

    def asked(self, request: Command) -> None:
        """14, on its way: its answer will be newer than what is known of the group's position now."""
        if self._targets:
            try:
                known = self._known(request.ext)
            except BadRequest:
                return  # the broker's to refuse
            if known is not None:
                known.asked = request

    def committed(self, fields: Mapping[str, str]) -> None:
        """The broker has taken a commit. One that it does not answer may come from anybody, and never gets here."""
        if self._targets:
            known = self._known(fields)
            if known is not None:
                self._stands(fields, known, number_field(fields, "commitOffset", default=-1))

    def _stands(self, fields: Mapping[str, str], known: _Reset, offset: int) -> None:
        """A group that has gone back, and on from where the broker put it, has had its reset.

        Until a consumer hears of the reset, it goes on to commit where it stood before.
        """
        if offset <= known.local:
            return
        if offset < known.committed:
            del self._targets[_key(fields)]
        known.committed = offset
        known.asked = None

    def _known(self, fields: Mapping[str, str]) -> _Reset | None:
        if not self._targets:
            return None
        key = _key(fields)
        known = self._targets.get(key)
        if known is not None and known.until < self._clock.monotonic():
            del self._targets[key]
            return None
        return known


def _changed(table: ObjectMap, targets: Mapping[int, int]) -> NewBody:
    for index, target in targets.items():
        table.entries[index] = (table.entries[index][0], target)
    return NewBody(table.encode())


def _key(fields: Mapping[str, str]) -> tuple[str, str, int]:
    return (
        text_field(fields, "consumerGroup"),
        text_field(fields, "topic"),
        number_field(fields, "queueId", 32),
    )
