"""Tables for people and tools: topic stats (202), consume stats (208), consume time span (303).

The broker shows its own minimum, and no time where it has deleted the message; both are filled in from the archive. A minimum
or an earliest time that the archive cannot say in time is no answer: the tool is told to try again, since the broker's own
number looks like a queue that lost messages. A time that the broker leaves out shows by itself that it is missing: without it
the table passes, and that is counted and said, as is what is damaged.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tiered.codec.record.lite import is_lite
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.objectmap import ObjectMap, decode_object_map
from tiered.errors import Corrupt, TieredError
from tiered.gateway.answers.litenumbers import LiteNumbers
from tiered.gateway.answers.names import name_of
from tiered.gateway.knowledge.archive import BoundsArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.knowledge.samebroker import Differs
from tiered.gateway.knowledge.unchecked import Lacking, Unchecked
from tiered.gateway.ports import ConnectionInfo, NewBody
from tiered.metrics import Metrics
from tiered.model import MessageQueue

log = logging.getLogger("tiered.gateway")

MAX_TIMES = 64
"""Most store times looked up for one table; each may cost a request to the store."""

MAX_BODY = 8 * 1024 * 1024

Table = ObjectMap | dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A store time that the broker left out: where it belongs, and of which message it is."""

    value: dict[str, Any]
    name: str
    topic: str
    queue_id: int
    offset: int


class Stats:
    """Fills in tables."""

    def __init__(
        self,
        archive: BoundsArchive,
        asking: Asking,
        minimums: Minimums,
        metrics: Metrics,
        unchecked: Unchecked,
        lite: LiteNumbers,
    ) -> None:
        self._archive = archive
        self._asking = asking
        self._minimums = minimums
        self._metrics = metrics
        self._unchecked = unchecked
        self._lite = lite

    def passes(self, request: Command, answer: Command) -> bool:
        """Whether there is no table."""
        return answer.code != ResponseCode.SUCCESS

    async def fill(self, request: Command, answer: Command, connection: ConnectionInfo) -> NewBody | None:
        """The table with what the archive knows; ``None``: as it came. ``Unavailable``: a number of the broker's would be
        wrong, and the archive does not say the right one."""
        what = name_of(request.code)
        if len(answer.body) > MAX_BODY:
            self._unchecked.count(what, Lacking.LARGE)
            return None
        try:
            table = _decoded(RequestCode(request.code), answer.body)
        except Corrupt as error:
            if len(answer.body):
                self._metrics.gateway_bad_requests.labels(str(request.code)).inc()
                log.debug(
                    "a table of the broker is strange", extra={"code": request.code, "error": str(error)}
                )
            self._metrics.cold_answers.labels(what, "passed").inc()
            return None
        lacking: set[Lacking] = set()
        try:
            filled = await self._filled(RequestCode(request.code), table, connection, lacking)
        except Differs:
            lacking.add(Lacking.OTHER_BROKER)
            filled = False
        except Corrupt as error:
            log.debug("a table passes as it came", extra={"code": request.code, "error": str(error)})
            lacking.add(Lacking.DAMAGE)
            filled = False
        for reason in lacking:
            self._unchecked.count(what, reason)
        if not lacking:
            self._unchecked.complete(what)
        if filled or not lacking:
            self._metrics.cold_answers.labels(what, "corrected" if filled else "passed").inc()
        return NewBody(_encoded(table)) if filled else None

    async def _filled(
        self, code: RequestCode, table: Table, connection: ConnectionInfo, lacking: set[Lacking]
    ) -> bool:
        """Whether anything was filled in; ``lacking`` hears what could not be."""
        until = asyncio.get_running_loop().time() + self._asking.call_seconds
        # A time that is missing shows; a minimum or an earliest time of the broker's looks like the right one.
        must = code is not RequestCode.GET_CONSUME_STATS
        lite, left_out = await self._lite.of_table(connection, _queues(table), name_of(code), must=must)
        if left_out:
            lacking.add(Lacking.TIMES)
        if isinstance(table, dict):
            spans = [s for s in table["consumeTimeSpanSet"] if _is_filled(_span_queue(s), lite)]
            if len(spans) > MAX_TIMES:
                lacking.add(Lacking.MANY_TIMES)
            found = await self._asking.call(
                connection, lambda: self._earliest(spans[:MAX_TIMES]), until=until
            )
            for span, first in found:
                span["minTimeStamp"] = first
            return bool(found)
        filled = False
        if code is RequestCode.GET_TOPIC_STATS_INFO:
            filled = await self._put_minimums(table, connection, until, lite)
        asked = [a for a in _times_asked(code, table) if _is_filled(MessageQueue(a.topic, a.queue_id), lite)]
        if not asked:
            return filled
        if len(asked) > MAX_TIMES:
            lacking.add(Lacking.MANY_TIMES)
        try:
            times = await self._asking.call(connection, lambda: self._times(asked[:MAX_TIMES]), until=until)
        except Differs:
            raise
        except TieredError as error:
            log.debug("a table passes without times", extra={"code": code, "error": str(error)})
            lacking.add(Lacking.DAMAGE if isinstance(error, Corrupt) else Lacking.TIMES)
            return filled
        for one, time_ms in times:
            one.value[one.name] = time_ms
        return filled or bool(times)

    async def _put_minimums(
        self, table: ObjectMap, connection: ConnectionInfo, until: float, lite: frozenset[MessageQueue]
    ) -> bool:
        """The archive's minimums where the broker has deleted messages; whether any is smaller."""
        cut: list[tuple[dict[str, Any], str, int, int]] = []
        for topic, queue_id, value in _entries(table):
            low = _int(value, "minOffset")
            if low is not None:
                self._minimums.learn(topic, queue_id, low)
                if low > 0 and _is_filled(MessageQueue(topic, queue_id), lite):
                    cut.append((value, topic, queue_id, low))
        if not cut:
            return False

        def smaller() -> list[tuple[dict[str, Any], int]]:
            found = []
            for value, topic, queue_id, low in cut:
                archived = self._archive.min_offset(topic, queue_id)
                if archived is not None and archived < low:
                    found.append((value, int(archived)))
            return found

        found = await self._asking.call(connection, smaller, until=until)
        for value, low in found:
            value["minOffset"] = low
        return bool(found)

    def _times(self, asked: list[_Asked]) -> list[tuple[_Asked, int]]:
        """The store times that the archive has. Blocks."""
        found = []
        for one in asked:
            time_ms = self._archive.message_time(one.topic, one.queue_id, one.offset)
            if time_ms is not None:
                found.append((one, int(time_ms)))
        return found

    def _earliest(self, spans: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
        """The earliest store times, where they are before what the broker has. Blocks."""
        found = []
        for span in spans:
            queue, first = _span_queue(span), _int(span, "minTimeStamp")
            if queue is None or first is None:
                continue
            archived = self._archive.earliest_message_time(queue.topic, queue.queue_id)
            if archived is not None and not 0 <= first <= archived:
                found.append((span, int(archived)))
        return found


def _times_asked(code: RequestCode, table: ObjectMap) -> Iterator[_Asked]:
    """Times that the broker does not know any more: of each queue's last message, or of the last one that was consumed."""
    topic_stats = code is RequestCode.GET_TOPIC_STATS_INFO
    name, end = ("lastUpdateTimestamp", "maxOffset") if topic_stats else ("lastTimestamp", "consumerOffset")
    for topic, queue_id, value in _entries(table):
        offset = _int(value, end)
        if offset is not None and offset > 0 and _int(value, name) in (0, -1):
            yield _Asked(value, name, topic, queue_id, offset - 1)


def _entries(table: ObjectMap) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for key, value in table.entries:
        topic, queue_id = key.get("topic"), key.get("queueId")
        if isinstance(topic, str) and isinstance(queue_id, int) and isinstance(value, dict):
            yield topic, queue_id, value


def _queues(table: Table) -> Iterator[MessageQueue]:
    """The queues that a table is of."""
    if isinstance(table, dict):
        yield from filter(None, map(_span_queue, table["consumeTimeSpanSet"]))
    else:
        yield from (MessageQueue(topic, queue_id) for topic, queue_id, _ in _entries(table))


def _span_queue(span: dict[str, Any]) -> MessageQueue | None:
    queue = span.get("messageQueue")
    topic, queue_id = (queue.get("topic"), queue.get("queueId")) if isinstance(queue, dict) else (None, None)
    return MessageQueue(topic, queue_id) if isinstance(topic, str) and isinstance(queue_id, int) else None


def _is_filled(queue: MessageQueue | None, lite: frozenset[MessageQueue]) -> bool:
    """Whether the archive's numbers may stand for a queue: for a lite queue, if it is among those that were compared."""
    return queue is None or not is_lite(queue.topic) or queue in lite


def _decoded(code: RequestCode, body: bytes | memoryview) -> Table:
    return (
        _spans(body)
        if code is RequestCode.QUERY_CONSUME_TIME_SPAN
        else decode_object_map(body, "offsetTable")
    )


def _encoded(table: Table) -> bytes:
    if isinstance(table, dict):
        return json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    return table.encode()


def _int(value: object, name: str) -> int | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if type(found) is int else None


def _spans(body: bytes | memoryview) -> dict[str, Any]:
    try:
        spans = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise Corrupt("a table is not JSON", found=str(error)[:100]) from None
    found = spans.get("consumeTimeSpanSet") if isinstance(spans, dict) else None
    if not isinstance(found, list) or not all(isinstance(span, dict) for span in found):
        raise Corrupt("a table is missing", expected="consumeTimeSpanSet")
    return dict(spans)
