"""Pulls of lite queues (``%LMQ%…``): what the broker has deleted comes from the archive, if both number the queue alike.

The records name offsets of the queue that they were sent to, so nothing can be told from them here: only an answer that says
itself that it begins above what was asked for is looked at.
"""

from __future__ import annotations

from tiered.codec.record.lite import is_lite
from tiered.codec.remoting.codes import PullBounds, PullRequest, PullStatus, RequestCode
from tiered.codec.remoting.frame import Command
from tiered.errors import BadRequest, Unavailable
from tiered.fetch.pull import Pull
from tiered.gateway.knowledge.alike import Numbering
from tiered.gateway.knowledge.knowledge import Knowledge
from tiered.gateway.knowledge.unchecked import Lacking
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.pull.cold import MAX_COUNT, filter_refused
from tiered.gateway.pull.coldpull import ColdPull
from tiered.gateway.pull.filters import Filters
from tiered.gateway.pull.verdict import PULLS, Why
from tiered.gateway.reply import max_body_bytes
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus
from tiered.settings import Gateway

_NOT_HERE = frozenset({GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE})
_AT_END = frozenset({GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.OFFSET_OVERFLOW_BADLY})
_NOTHING = _NOT_HERE | _AT_END
_FOUND = frozenset({GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE})


class LitePulls:
    """What pulls of lite queues are answered. On the event loop only."""

    def __init__(self, knowledge: Knowledge, filters: Filters, settings: Gateway, metrics: Metrics) -> None:
        self._enabled = settings.lite_queues
        self._archive = knowledge.archive
        self._asking = knowledge.asking
        self._clients = knowledge.clients
        self._rights = knowledge.rights
        self._coverage = knowledge.coverage
        self._numbering = Numbering(knowledge.archive, knowledge.coverage)
        self._unchecked = knowledge.unchecked
        self._filters = filters
        self._metrics = metrics
        self._most_bytes = min(settings.max_pull_bytes, max_body_bytes(settings))

    def takes(self, request: Command) -> bool:
        """Whether this is a pull of a lite queue, and such are answered."""
        return self._enabled and request.code in PULLS and is_lite(request.ext.get("topic", ""))

    async def answer(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """The client's answer to a pull of which the broker has no longer everything; ``None``: the broker's. Raises what must
        make the client wait."""
        try:
            pull, bounds = PullRequest.parse(request.ext), PullBounds.parse(answer.ext)
        except BadRequest as error:
            raise Unavailable("a pull cannot be answered", cause=error) from error
        unchecked = (
            request.code == RequestCode.LITE_PULL_MESSAGE
        )  # by brokers, and no evidence is kept of such topics
        if unchecked and not self._rights.may_read(request.ext, pull.topic):
            self._unchecked.count("pull", Lacking.RIGHTS)
            return None
        try:
            wanted = await self._filters.of(pull)
        except BadRequest as error:
            return filter_refused(self._metrics, answer, error)
        cold = ColdPull(Why.SKIP, pull, bounds, answer, connection, wanted, pull.offset)
        await self._asking.require_same(connection, self._asking.pull_seconds)
        await self._asking.wait(self._archive.follow_if_older(), self._asking.pull_seconds)
        result = await self._read(cold)
        if not pull.offset < bounds.min_offset:
            return self._count("passed", None)
        if result.status in _NOTHING:
            end = await self._coverage.passed(connection, cold.queue, pull.offset, bounds.min_offset)
            # The archive may have gone on: only a look after the proof counts.
            result = await self._read(cold)
            if end is not None and result.status in _NOTHING:
                self._coverage.settled(cold.queue)
                if result.status in _NOT_HERE:  # over before the archive began, or aliases are not archived
                    return self._count("passed", None)
                return self._count("hole", cold.hole(end))
        if result.status in _NOTHING:
            raise Unavailable(
                "the broker has deleted these messages and the archive does not have them yet",
                queue=cold.queue,
                offset=pull.offset,
                archive_end=result.max_offset,
                broker_begin=bounds.min_offset,
                hint="wait; tiered status shows how far the archive is behind",
            )
        if result.status is GetMessageStatus.OFFSET_TOO_SMALL and result.min_offset >= bounds.min_offset:
            return self._count("passed", None)  # retention left less than the broker has
        await self._numbering.require_alike(
            connection, cold.queue, bounds.min_offset, bounds.max_offset, result.max_offset
        )
        if result.status in _FOUND:
            return self._served(cold, result)
        following = min(int(result.next_begin_offset), bounds.min_offset)
        if following <= pull.offset:
            raise Unavailable("the archive's answer makes no progress", queue=cold.queue, offset=following)
        return self._count("moved", cold.moved(following, PullStatus.OFFSET_TOO_SMALL.value))

    async def _read(self, cold: ColdPull) -> GetMessageResult:
        pull = cold.pull
        reader = self._clients.reader(cold.connection, pull.group, pull.proxied_client)
        count = max(1, min(pull.max_count, MAX_COUNT))
        size = min(pull.max_bytes or self._most_bytes, self._most_bytes)
        asked = Pull(reader, pull.topic, pull.queue_id, pull.offset, count, size, cold.wanted)
        return await self._asking.wait(self._archive.get_message_async(asked), self._asking.pull_seconds)

    def _served(self, cold: ColdPull, result: GetMessageResult) -> Command | None:
        records, following = result.records, int(result.next_begin_offset)
        body = b"".join(records.chunks)
        made = cold.found(body, following, int(result.min_offset))
        if not records:
            return self._count("no_match", made)
        self._metrics.cold_messages.inc(len(records))
        self._metrics.cold_bytes.inc(len(body))
        return self._count("archive", made)

    def _count(self, outcome: str, made: Command | None) -> Command | None:
        self._metrics.cold_answers.labels("pull", outcome).inc()
        return made
