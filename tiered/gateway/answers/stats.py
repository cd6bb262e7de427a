"""Tables for people and tools: topic stats (202), consume stats (208), consume time span (303).

The broker shows its own minimum, and no time where it has deleted the message; both are filled in from the archive. These
answers only inform: if the archive is away, or a table looks strange, they pass as they came.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.objectmap import ObjectMap, decode_object_map
from tiered.errors import Corrupt, TieredError
from tiered.gateway.answers.names import name_of
from tiered.gateway.knowledge.archive import BoundsArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.ports import ConnectionInfo, NewBody
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")

MAX_TIMES = 64
"""Most store times looked up for one table; each may cost a request to the store."""

MAX_BODY = 8 * 1024 * 1024


class Stats:
    """Fills in tables."""

    def __init__(self, archive: BoundsArchive, asking: Asking, minimums: Minimums, metrics: Metrics) -> None:
        self._archive = archive
        self._asking = asking
        self._minimums = minimums
        self._metrics = metrics

    def passes(self, request: Command, answer: Command) -> bool:
        """Whether there is no table."""
        return answer.code != ResponseCode.SUCCESS

    async def fill(self, request: Command, answer: Command, connection: ConnectionInfo) -> NewBody | None:
        """The table with what the archive knows; ``None``: as it came."""
        what = name_of(request.code)
        outcome, made = "passed", None
        if 0 < len(answer.body) <= MAX_BODY:
            try:
                made = await self._filled(RequestCode(request.code), answer.body, connection)
            except Corrupt as error:
                self._metrics.gateway_bad_requests.labels(str(request.code)).inc()
                log.debug(
                    "a table of the broker is strange", extra={"code": request.code, "error": str(error)}
                )
            except TieredError as error:
                log.debug(
                    "a table passes without the archive", extra={"code": request.code, "error": str(error)}
                )
        if made is not None:
            outcome = "corrected"
        self._metrics.cold_answers.labels(what, outcome).inc()
        return None if made is None else NewBody(made)

    async def _filled(
        self, code: RequestCode, body: bytes | memoryview, connection: ConnectionInfo
    ) -> bytes | None:
        if code is RequestCode.QUERY_CONSUME_TIME_SPAN:
            spans = _spans(body)
            return await self._asking.call(connection, lambda: self._time_spans(spans))
        table = decode_object_map(body, "offsetTable")
        if code is RequestCode.GET_TOPIC_STATS_INFO:
            for key, value in table.entries:
                topic, queue_id, low = key.get("topic"), key.get("queueId"), _int(value, "minOffset")
                if isinstance(topic, str) and isinstance(queue_id, int) and low is not None:
                    self._minimums.learn(topic, queue_id, low)
        return await self._asking.call(connection, lambda: self._offset_table(code, table))

    def _offset_table(self, code: RequestCode, table: ObjectMap) -> bytes | None:
        times = _Times(self._archive)
        filled = False
        for key, value in table.entries:
            topic, queue_id = key.get("topic"), key.get("queueId")
            if isinstance(topic, str) and isinstance(queue_id, int) and isinstance(value, dict):
                fill = self._topic_entry if code is RequestCode.GET_TOPIC_STATS_INFO else self._consume_entry
                filled |= fill(topic, queue_id, value, times)
        return table.encode() if filled else None

    def _topic_entry(self, topic: str, queue_id: int, value: dict[str, Any], times: _Times) -> bool:
        """Minimum, and the last message's time when the broker has deleted it."""
        low, high = _int(value, "minOffset"), _int(value, "maxOffset")
        filled = False
        if low is not None and low > 0:
            archived = self._archive.min_offset(topic, queue_id)
            if archived is not None and archived < low:
                value["minOffset"] = int(archived)
                filled = True
        if high is not None and high > 0 and _int(value, "lastUpdateTimestamp") in (0, -1):
            filled |= times.put(value, "lastUpdateTimestamp", topic, queue_id, high - 1)
        return filled

    def _consume_entry(self, topic: str, queue_id: int, value: dict[str, Any], times: _Times) -> bool:
        """The time of the last consumed message, when the broker has deleted it."""
        offset = _int(value, "consumerOffset")
        if offset is None or offset <= 0 or _int(value, "lastTimestamp") not in (0, -1):
            return False
        return times.put(value, "lastTimestamp", topic, queue_id, offset - 1)

    def _time_spans(self, spans: dict[str, Any]) -> bytes | None:
        filled = False
        for span in spans["consumeTimeSpanSet"][:MAX_TIMES]:
            queue, first = span.get("messageQueue"), _int(span, "minTimeStamp")
            if not isinstance(queue, dict) or first is None:
                continue
            topic, queue_id = queue.get("topic"), queue.get("queueId")
            if not isinstance(topic, str) or not isinstance(queue_id, int):
                continue
            archived = self._archive.earliest_message_time(topic, queue_id)
            if archived is not None and not 0 <= first <= archived:
                span["minTimeStamp"] = int(archived)
                filled = True
        return json.dumps(spans, separators=(",", ":"), ensure_ascii=False).encode() if filled else None


class _Times:
    """Store times of single messages, ``MAX_TIMES`` of them at most."""

    def __init__(self, archive: BoundsArchive) -> None:
        self._archive = archive
        self._left = MAX_TIMES

    def put(self, value: dict[str, Any], name: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set a field to the store time of the message at ``offset``, if the archive has it."""
        if self._left <= 0:
            return False
        self._left -= 1
        found = self._archive.message_time(topic, queue_id, offset)
        if found is None:
            return False
        value[name] = int(found)
        return True


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
