"""Pulls (11, 361): which answers of the broker would lose messages, and what the client gets instead.

Decided on the broker's answer, so that it has checked rights, group, topic and subscription before, and a pull that it can
serve costs nothing but the hop. Offsets are queue offsets. Never touched: an operator's reset (see ``resets``), offsets beyond
the end, topics of level ``DISABLE``, static topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.codec.protocol import (
    PullBounds,
    PullRequest,
    PullStatus,
    ResponseCode,
    number,
)
from tiered.codec.remoting import DEFAULT_MAX_FRAME_BYTES, Command
from tiered.errors import Invalid, TieredError, Unavailable
from tiered.fetch.base import RowFilter
from tiered.gateway.archive import Archive, Asking, Coverage
from tiered.gateway.base import ConnectionInfo
from tiered.gateway.filters import Filters
from tiered.gateway.gaps import queue_offsets
from tiered.gateway.observe import Clients
from tiered.gateway.reply import changed, refused, reply
from tiered.gateway.trigger import Triggers, Why
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset, Records
from tiered.settings import KIB, Gateway

log = logging.getLogger("tiered.gateway")

MAX_COUNT = 4096
"""Most messages of one answer, whatever the client asks for."""

FRAME_ROOM = 64 * KIB
"""Left free in a frame for its header."""

SCAN_SECONDS = 1.0
"""How long a filter that takes nothing is worked on before the client hears how far it came."""

_MAX_TOLD = 16_384

_NOT_HERE = frozenset({GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE})
_AT_END = frozenset({GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.OFFSET_OVERFLOW_BADLY})
_NOTHING = _NOT_HERE | _AT_END


class Pulls:
    """What pulls are answered. On the event loop only."""

    def __init__(
        self,
        archive: Archive,
        asking: Asking,
        clients: Clients,
        triggers: Triggers,
        filters: Filters,
        coverage: Coverage,
        settings: Gateway,
        metrics: Metrics,
        clock: Clock,
        excluded: Callable[[str], bool],
    ) -> None:
        self._archive = archive
        self._asking = asking
        self._clients = clients
        self._triggers = triggers
        self._filters = filters
        self._coverage = coverage
        self._metrics = metrics
        self._clock = clock
        self._excluded = excluded
        frame = min(settings.max_frame_bytes, DEFAULT_MAX_FRAME_BYTES)
        self._max_bytes = min(settings.max_pull_bytes, max(frame - FRAME_ROOM, KIB))
        self._told: LRUCache[tuple[MessageQueue, int, int], bool] = LRUCache(_MAX_TOLD)

    # ---- what instead

    async def answer(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """The client's answer; ``None``: the broker's. Raises what must make the client wait."""
        why = self._triggers.why(request.ext, answer)
        if why is Why.TAIL:
            queue = MessageQueue(request.ext["topic"], number(request.ext, "queueId"))
            sure = await self._coverage.has_the_rest(connection, queue, number(request.ext, "queueOffset"))
            why = None if sure else Why.DOUBT
        if why is None or (why is Why.DOUBT and await self._coverage.intact(connection)):
            return None
        try:
            pull, bounds = PullRequest.parse(request.ext), PullBounds.parse(answer.ext)
        except Invalid as error:
            if why in (Why.DOUBT, Why.PREFER):
                raise
            raise Unavailable("a pull cannot be answered", cause=error) from error
        try:
            wanted = await self._filters.of(pull)
            result = await self._read(pull, bounds, wanted, connection)
            if why is Why.SKIP and result.status in _NOTHING:
                end = await self._lost_until(pull, bounds, connection)
                if end is not None:
                    # The archive may have gone on since the look above: only one after the proof counts.
                    result = await self._read(pull, bounds, wanted, connection)
                    if result.status in _NOTHING:
                        return self._lost(pull, bounds, end, result.status, answer)
            bounds = await self._bounds_now(pull, bounds, result, connection)
            return self._instead(why, pull, bounds, result, answer)
        except Invalid as error:
            return self._refused(answer, error) if why is Why.SKIP else self._count("passed", None)
        except TieredError as error:
            if why in (Why.SKIP, Why.GAP) or (why is Why.DOUBT and not await self._coverage.calm(connection)):
                raise
            log.debug("the archive cannot say whether messages are missing", extra={"error": str(error)})
            return self._count("passed", None)

    async def _read(
        self, pull: PullRequest, bounds: PullBounds, wanted: RowFilter | None, connection: ConnectionInfo
    ) -> GetMessageResult:
        """What the archive has from the offset on. A filter that takes nothing is followed for a while."""
        reader = self._clients.reader(connection, pull.group, pull.proxied_client)
        started = self._clock.monotonic()
        offset = pull.offset
        while True:
            left = self._asking.pull_seconds - (self._clock.monotonic() - started)
            result = await self._asking.wait(
                self._archive.get_message_async(
                    reader,
                    pull.topic,
                    pull.queue_id,
                    offset,
                    self._most(pull),
                    max_bytes=self._most_bytes(pull),
                    row_filter=wanted,
                ),
                max(left, 0.0),
            )
            following = result.next_begin_offset
            nothing = result.status is GetMessageStatus.NO_MATCHED_MESSAGE
            if not nothing or following <= offset or following >= min(bounds.min_offset, result.max_offset):
                break
            if self._clock.monotonic() - started >= SCAN_SECONDS:
                break
            offset = following
        if offset != pull.offset and result.status in _AT_END | {GetMessageStatus.OFFSET_FOUND_NULL}:
            # What was scanned before is an answer of its own; the next pull meets the end or the hole.
            return GetMessageResult(
                GetMessageStatus.NO_MATCHED_MESSAGE,
                QueueOffset(offset),
                result.min_offset,
                result.max_offset,
            )
        return result

    async def _lost_until(
        self, pull: PullRequest, bounds: PullBounds, connection: ConnectionInfo
    ) -> int | None:
        """Up to where nothing will ever be archived that is not now; ``None``: that is not sure."""
        if bounds.min_offset <= pull.offset:
            return None
        queue = MessageQueue(pull.topic, pull.queue_id)
        return await self._coverage.passed(connection, queue, pull.offset, bounds.min_offset)

    async def _bounds_now(
        self, pull: PullRequest, bounds: PullBounds, result: GetMessageResult, connection: ConnectionInfo
    ) -> PullBounds:
        """The bounds, asked for again if the archive's queue goes beyond them: both have gone on since the answer."""
        if not result.max_offset > bounds.max_offset >= 0:
            return bounds
        end = await self._coverage.end(connection, MessageQueue(pull.topic, pull.queue_id))
        return bounds if end is None else replace(bounds, max_offset=end)

    def _lost(
        self, pull: PullRequest, bounds: PullBounds, end: int, status: GetMessageStatus, answer: Command
    ) -> Command | None:
        """Nobody has the messages: a hole in an archived queue, or a queue that was over before the archive began."""
        queue = MessageQueue(pull.topic, pull.queue_id)
        self._coverage.settled(queue)
        if status in _NOT_HERE:
            return self._count("passed", None)
        return self._hole(answer, bounds, queue, pull.offset, end)

    def _instead(
        self, why: Why, pull: PullRequest, bounds: PullBounds, result: GetMessageResult, answer: Command
    ) -> Command | None:
        status = result.status
        if status in (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE):
            return self._served(why, pull, bounds, result, answer)
        if why is not Why.SKIP and not (why in (Why.GAP, Why.DOUBT) and status in _AT_END):
            return self._count("passed", None)
        if status is GetMessageStatus.OFFSET_TOO_SMALL:
            if bounds.min_offset <= result.min_offset:
                return self._count("passed", None)
            return self._moved(answer, bounds, result.min_offset, PullStatus.OFFSET_TOO_SMALL.value, "moved")
        if status is GetMessageStatus.OFFSET_FOUND_NULL and result.next_begin_offset > pull.offset:
            end = result.next_begin_offset
            if bounds.min_offset > pull.offset:
                end = QueueOffset(min(end, bounds.min_offset))
            return self._hole(answer, bounds, MessageQueue(pull.topic, pull.queue_id), pull.offset, end)
        if status in _NOT_HERE and self._excluded(pull.topic):
            return self._count("passed", None)
        raise Unavailable(
            "the broker has deleted these messages and the archive does not have them yet",
            queue=MessageQueue(pull.topic, pull.queue_id),
            offset=pull.offset,
            archive_end=result.max_offset,
            broker_begin=bounds.min_offset,
            hint="wait; tiered status shows how far the archive is behind",
        )

    def _served(
        self, why: Why, pull: PullRequest, bounds: PullBounds, result: GetMessageResult, answer: Command
    ) -> Command | None:
        """Records, or how far the filter took none, in the broker's own answer."""
        if result.max_offset > bounds.max_offset >= 0:
            if why in (Why.DOUBT, Why.PREFER):
                return self._count("passed", None)
            raise Unavailable(
                "the archive's queue is longer than the broker's: its offsets may have begun anew",
                queue=MessageQueue(pull.topic, pull.queue_id),
                archive_end=result.max_offset,
                broker_end=bounds.max_offset,
            )
        records, following = self._cut(result, pull)
        if why in (Why.GAP, Why.DOUBT) and _has_all(
            answer, bounds, result.queue_offsets[: len(records)], following
        ):
            return self._count("passed", None)
        if following <= pull.offset:
            raise Unavailable("the archive's answer leads nowhere", queue=pull.topic, offset=following)
        low = min(result.min_offset, bounds.min_offset) if bounds.min_offset >= 0 else result.min_offset
        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": bounds.max_offset}
        if not records:
            made = changed(
                answer,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                PullStatus.NO_MATCHED_MESSAGE.value,
                numbers,
            )
            return self._count("no_match", made)
        body = records.chunks[0] if len(records.chunks) == 1 else b"".join(records.chunks)
        self._metrics.cold_messages.inc(len(records))
        self._metrics.cold_bytes.inc(len(body))
        made = changed(answer, ResponseCode.SUCCESS, PullStatus.FOUND.value, numbers, body)
        return self._count("archive", made)

    def _cut(self, result: GetMessageResult, pull: PullRequest) -> tuple[Records, int]:
        """Records that fit the client's limits, at least one, and where to go on: a store that gives more is not believed."""
        records = result.records.within(self._most(pull), self._most_bytes(pull))
        if len(records) == len(result.records):
            return records, result.next_begin_offset
        return records, result.queue_offsets[len(records)]

    def _most(self, pull: PullRequest) -> int:
        return max(1, min(pull.max_count, MAX_COUNT))

    def _most_bytes(self, pull: PullRequest) -> int:
        return min(pull.max_bytes or self._max_bytes, self._max_bytes)

    def _hole(
        self, answer: Command, bounds: PullBounds, queue: MessageQueue, start: int, end: int
    ) -> Command | None:
        """Nobody has [``start``, ``end``) any more: counted, said in the log, and written into the answer."""
        key = (queue, start, end)
        if key not in self._told:
            self._told[key] = True
            log.error(
                "messages are lost: neither the broker nor the archive has them; a consumer was led over the hole",
                extra={"queue": str(queue), "from": start, "to": end},
            )
        self._metrics.cold_holes.inc()
        self._metrics.cold_hole_messages.inc(end - start)
        remark = f"{PullStatus.OFFSET_TOO_SMALL.value}: {queue} has lost its offsets {start} to {end - 1}"
        return self._moved(answer, bounds, end, remark, "hole")

    def _moved(
        self, answer: Command, bounds: PullBounds, following: int, remark: str, outcome: str
    ) -> Command | None:
        low = min(following, bounds.min_offset) if bounds.min_offset >= 0 else following
        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": bounds.max_offset}
        return self._count(outcome, changed(answer, ResponseCode.PULL_OFFSET_MOVED, remark, numbers))

    def _refused(self, answer: Command, error: Invalid) -> Command:
        return refused(
            self._metrics, "pull", reply(answer, ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        )

    def _count(self, outcome: str, made: Command | None) -> Command | None:
        self._metrics.cold_answers.labels("pull", outcome).inc()
        return made


def _has_all(answer: Command, bounds: PullBounds, offsets: Sequence[int], following: int) -> bool:
    """Whether the broker's answer has what the archive's has, ``offsets`` up to ``following``, as far as it goes itself."""
    if following < bounds.next_offset:
        return False
    here = queue_offsets(answer.body) if answer.code == ResponseCode.SUCCESS else set()
    return here.issuperset(offset for offset in offsets if offset < bounds.next_offset)
