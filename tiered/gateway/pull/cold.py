"""Pulls (11, 361): which answers of the broker would lose messages, and what the client gets instead.

Decided on the broker's answer, so that it has checked rights, group, topic and subscription before, and a pull that it can
serve costs nothing but the hop. Offsets are queue offsets. Never touched: an operator's reset (see ``resets``), offsets beyond
the end, topics of level ``DISABLE``, static topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cachetools import LRUCache
from msgspec import structs

from tiered.clock import Clock
from tiered.codec.remoting.codes import (
    PullBounds,
    PullRequest,
    PullStatus,
    RequestCode,
    ResponseCode,
    number_field,
)
from tiered.codec.remoting.frame import Command
from tiered.errors import BadRequest, TieredError, Unavailable
from tiered.fetch.pull import Pull
from tiered.filter.base import RowFilter
from tiered.gateway.knowledge.knowledge import Knowledge
from tiered.gateway.knowledge.rights import unproven
from tiered.gateway.knowledge.unchecked import Lacking
from tiered.gateway.nodes.reads import Reads
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.pull.coldpull import ColdPull
from tiered.gateway.pull.compare import ArchivedPlaces, in_reach, is_enough
from tiered.gateway.pull.filters import Filters
from tiered.gateway.pull.gaps import places
from tiered.gateway.pull.verdict import PullJudge, Why, queue_of_pull
from tiered.gateway.reply import max_body_bytes, refused, reply
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset, Records
from tiered.settings import Gateway

log = logging.getLogger("tiered.gateway")

MAX_COUNT = 4096
"""Most messages of one answer, whatever the client asks for."""

SCAN_SECONDS = 1.0
"""How long a filter that takes nothing is worked on before the client hears how far it came."""

_MAX_TOLD = 16_384

_NOT_HERE = frozenset({GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE})
_AT_END = frozenset({GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.OFFSET_OVERFLOW_BADLY})
_NOTHING = _NOT_HERE | _AT_END
_MOVES = frozenset({GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_FOUND_NULL})
_LACKING = (Why.GAP, Why.DOUBT)


def filter_refused(metrics: Metrics, answer: Command, error: BadRequest) -> Command:
    """What a client hears whose filter cannot be run on archived messages."""
    return refused(metrics, "pull", reply(answer, ResponseCode.SUBSCRIPTION_PARSE_FAILED, error.told))


class Pulls:
    """What pulls are answered. On the event loop only. ``excluded``: whether a topic is not archived at all."""

    def __init__(
        self,
        knowledge: Knowledge,
        judge: PullJudge,
        filters: Filters,
        reads: Reads,
        settings: Gateway,
        metrics: Metrics,
        clock: Clock,
        excluded: Callable[[str], bool],
    ) -> None:
        self._archive = knowledge.archive
        self._asking = knowledge.asking
        self._clients = knowledge.clients
        self._rights = knowledge.rights
        self._coverage = knowledge.coverage
        self._unchecked = knowledge.unchecked
        self._judge = judge
        self._filters = filters
        self._reads = reads
        self._metrics = metrics
        self._clock = clock
        self._excluded = excluded
        self._max_bytes = min(settings.max_pull_bytes, max_body_bytes(settings))
        self._told: LRUCache[tuple[MessageQueue, int], bool] = LRUCache(_MAX_TOLD)
        self._archived = metrics.cold_answers.labels("pull", "archive")

    # ---- what instead

    def at_once(self, request: Command, answer: Command, connection: ConnectionInfo) -> Command | None:
        """``answer`` to a pull of what the broker has deleted, where the messages are in memory and all else is known: most of
        a reader's that goes on. ``None``: ask ``answer``."""
        if request.code != RequestCode.PULL_MESSAGE:  # of the other one rights are asked for
            return None
        pull, bounds = PullRequest.parse(request.ext), PullBounds.parse(answer.ext)
        if not (self._filters.is_unfiltered(pull) and self._asking.is_same(connection)):
            return None
        look = self._archive.follow_if_older()
        if not look.done() or look.exception() is not None:
            return None
        result = self._reads.at_once(self._asked(pull, connection, None))
        if result is None or result.status is not GetMessageStatus.FOUND:
            return None
        records, following = self._cut(result, pull)
        if result.max_offset > bounds.max_offset >= 0 or following <= pull.offset:
            return None
        cold = ColdPull(Why.SKIP, pull, bounds, answer, connection, None, pull.offset)
        return self._given(cold, result, records, following)

    async def answer(
        self, request: Command, answer: Command, why: Why, connection: ConnectionInfo
    ) -> Command | None:
        """The client's answer; ``None``: the broker's, which is held by ``why``. Raises what must make the client wait."""
        settled = await self._settled(request, answer, why, connection)
        if settled is None:
            return None
        why = settled
        try:
            pull, bounds = PullRequest.parse(request.ext), PullBounds.parse(answer.ext)
        except BadRequest as error:
            if await self._may_pass(why, connection):
                raise
            raise Unavailable("a pull cannot be answered", cause=error) from error
        unchecked = request.code == RequestCode.LITE_PULL_MESSAGE  # by brokers; the other pull is
        if unchecked and why is not Why.DOUBT and not self._rights.may_read(request.ext, pull.topic):
            return None if why is Why.PREFER else self._unproven(answer, pull)
        try:
            subscription = self._filters.subscription(pull)
            wanted = await self._filters.of(pull)
            cold = ColdPull(why, pull, bounds, answer, connection, wanted, pull.offset, subscription)
            made = await self._looked_up(cold)
            if why is Why.DOUBT:
                self._unchecked.complete("pull")
            if unchecked and made is not None and not self._rights.may_read(request.ext, pull.topic):
                return self._unproven(answer, pull)
            return made
        except BadRequest as error:
            if why is Why.SKIP:
                return filter_refused(self._metrics, answer, error)
            if not await self._may_pass(why, connection):
                raise Unavailable("it cannot be seen whether messages are missing", cause=error) from error
        except TieredError as error:
            if not await self._may_pass(why, connection):
                raise
            log.debug("the archive cannot say whether messages are missing", extra={"error": str(error)})
        if why is Why.DOUBT:
            self._unchecked.count("pull", Lacking.DELETION)
            return None
        return self._count("passed", None)

    async def _settled(
        self, request: Command, answer: Command, why: Why, connection: ConnectionInfo
    ) -> Why | None:
        """Why the archive is asked, once the broker has been asked what it still has; ``None``: it need not be."""
        if why not in (Why.TAIL, Why.DOUBT):
            return why
        queue, offset = queue_of_pull(request.ext), number_field(request.ext, "queueOffset")
        if not self._judge.is_close(request.ext, answer):
            near = await in_reach(self._archive, self._coverage, connection, queue, offset)
            if near is None:
                self._unchecked.count("pull", Lacking.PLACE)
            if not near:
                return self._judge.forced(request.ext)
        if why is Why.TAIL:
            sure = await self._coverage.has_the_rest(connection, queue, offset)
            if sure:
                return None
        return self._judge.forced(request.ext) if await self._coverage.intact(connection) else Why.DOUBT

    async def _may_pass(self, why: Why, connection: ConnectionInfo) -> bool:
        """Whether the broker's answer is good enough when the archive cannot say anything."""
        return why is Why.PREFER or (why is Why.DOUBT and await self._coverage.calm(connection))

    async def _looked_up(self, cold: ColdPull) -> Command | None:
        why, connection = cold.why, cold.connection
        await self._asking.require_same(connection, self._asking.pull_seconds)
        look = self._archive.follow_if_older()
        if why is Why.PREFER and not look.done():  # nothing is missing, so nobody waits
            raise Unavailable("what is known about the archive is out of date")
        await self._asking.wait(look, self._asking.pull_seconds)
        result = await self._read(cold)
        if why is Why.SKIP and result.status in _NOTHING:
            end = await self._lost_until(cold)
            if end is not None:
                # The archive may have gone on since the look above: only one after the proof counts.
                result = await self._read(cold)
                if result.status in _NOTHING:
                    return self._lost(cold, end, result.status)
        cold = await self._bounded(cold, result)
        hole = False
        while why in _LACKING and result.status in _MOVES:
            if not cold.pull.offset < result.next_begin_offset < cold.bounds.next_offset:
                break
            # Nobody has more before that than the answer; what the archive has behind it the answer may lack.
            hole = hole or result.status is GetMessageStatus.OFFSET_FOUND_NULL
            cold = cold.at(result.next_begin_offset)
            result = await self._read(cold)
        made = await self._instead(cold, result)
        if made is not None and hole and why is Why.GAP:
            self._note(cold.queue, cold.lost_from, cold.pull.offset)
        return made

    async def _read(self, cold: ColdPull) -> GetMessageResult:
        """What the archive has from the offset on. A filter that takes nothing is followed for a while."""
        pull, bounds = cold.pull, cold.bounds
        asked = self._asked(pull, cold.connection, cold.wanted)
        started = self._clock.monotonic()
        offset = pull.offset
        while True:
            left = self._asking.pull_seconds - (self._clock.monotonic() - started)
            result = await self._reads.read(asked, cold.subscription, max(left, 0.0))
            following = result.next_begin_offset
            nothing = result.status is GetMessageStatus.NO_MATCHED_MESSAGE
            if not nothing or following <= offset or following >= min(bounds.min_offset, result.max_offset):
                break
            if self._clock.monotonic() - started >= SCAN_SECONDS:
                break
            offset = following
            asked = structs.replace(asked, offset=offset)
        if offset != pull.offset and result.status in _AT_END | {GetMessageStatus.OFFSET_FOUND_NULL}:
            # What was scanned before is an answer of its own; the next pull meets the end or the hole.
            return GetMessageResult(
                GetMessageStatus.NO_MATCHED_MESSAGE,
                QueueOffset(offset),
                result.min_offset,
                result.max_offset,
            )
        return result

    def _asked(self, pull: PullRequest, connection: ConnectionInfo, wanted: RowFilter | None) -> Pull:
        """What the archive is asked for."""
        reader = self._clients.reader(connection, pull.group, pull.proxied_client)
        most, most_bytes = self._most(pull), self._most_bytes(pull)
        return Pull(reader, pull.topic, pull.queue_id, pull.offset, most, most_bytes, wanted)

    async def _lost_until(self, cold: ColdPull) -> int | None:
        """Up to where nothing will ever be archived that is not now; ``None``: that is not sure."""
        offset, begin = cold.pull.offset, cold.bounds.min_offset
        if begin <= offset:
            return None
        return await self._coverage.passed(cold.connection, cold.queue, offset, begin)

    async def _bounded(self, cold: ColdPull, result: GetMessageResult) -> ColdPull:
        """With bounds asked for again if the archive's queue goes beyond them: both have gone on since the answer."""
        if not result.max_offset > cold.bounds.max_offset >= 0:
            return cold
        end = await self._coverage.end(cold.connection, cold.queue)
        if end is None:
            return cold
        return structs.replace(cold, bounds=structs.replace(cold.bounds, max_offset=end))

    def _lost(self, cold: ColdPull, end: int, status: GetMessageStatus) -> Command | None:
        """Nobody has the messages: a hole in an archived queue, or a queue that was over before the archive began."""
        self._coverage.settled(cold.queue)
        if status in _NOT_HERE:
            return self._count("passed", None)
        return self._hole(cold, end)

    async def _instead(self, cold: ColdPull, result: GetMessageResult) -> Command | None:
        why, bounds, status = cold.why, cold.bounds, result.status
        if status in (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE):
            return await self._served(cold, result)
        if why is not Why.SKIP and not (why in _LACKING and status in _AT_END):
            return self._count("passed", None)
        if status is GetMessageStatus.OFFSET_TOO_SMALL:
            if bounds.min_offset <= result.min_offset:
                return self._count("passed", None)
            return self._count("moved", cold.moved(result.min_offset, PullStatus.OFFSET_TOO_SMALL.value))
        if status is GetMessageStatus.OFFSET_FOUND_NULL and result.next_begin_offset > cold.pull.offset:
            end = int(result.next_begin_offset)
            return self._hole(
                cold, min(end, bounds.min_offset) if bounds.min_offset > cold.pull.offset else end
            )
        if status in _NOT_HERE and self._excluded(cold.pull.topic):
            return self._count("passed", None)
        raise Unavailable(
            "the broker has deleted these messages and the archive does not have them yet",
            queue=cold.queue,
            offset=cold.pull.offset,
            archive_end=result.max_offset,
            broker_begin=bounds.min_offset,
            hint="wait; tiered status shows how far the archive is behind",
        )

    async def _served(self, cold: ColdPull, result: GetMessageResult) -> Command | None:
        """Records, or how far the filter took none, in the broker's own answer; or just those of its own that lie ahead."""
        why, bounds = cold.why, cold.bounds
        if result.max_offset > bounds.max_offset >= 0:
            if why in (Why.DOUBT, Why.PREFER):
                return self._count("passed", None)
            raise Unavailable(
                "the archive's queue is longer than the broker's: its offsets may have begun anew",
                queue=cold.queue,
                archive_end=result.max_offset,
                broker_end=bounds.max_offset,
            )
        records, following = self._cut(result, cold.pull)
        if why is not Why.SKIP and await is_enough(
            cold, ArchivedPlaces(places(*records.chunks), following), self._coverage
        ):
            return self._count("passed", None)
        if ahead := cold.ahead:
            return self._count("cut", cold.cut(ahead))
        if following <= cold.pull.offset:
            raise Unavailable(
                "the archive's answer makes no progress", queue=cold.pull.topic, offset=following
            )
        return self._given(cold, result, records, following)

    def _given(
        self, cold: ColdPull, result: GetMessageResult, records: Records, following: int
    ) -> Command | None:
        """The client gets these, and goes on at ``following``."""
        body = records.chunks[0] if len(records.chunks) == 1 else b"".join(records.chunks)
        made = cold.found(body, following, result.min_offset)
        if not records:
            return self._count("no_match", made)
        self._metrics.cold_messages.inc(len(records))
        self._metrics.cold_bytes.inc(len(body))
        self._archived.inc()
        return made

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

    def _hole(self, cold: ColdPull, end: int) -> Command | None:
        """Nobody has the queue's offsets up to ``end`` any more: noted, and written into the answer."""
        self._note(cold.queue, cold.pull.offset, end)
        return self._count("hole", cold.hole(end))

    def _note(self, queue: MessageQueue, start: int, end: int) -> None:
        """[``start``, ``end``) is lost: counted, and said once, whatever is asked for inside."""
        key = (queue, end)
        if key not in self._told:
            self._told[key] = True
            log.error(
                "messages are lost: neither the broker nor the archive has them; a consumer was led over the hole",
                extra={"queue": str(queue), "from": start, "to": end},
            )
        self._metrics.cold_holes.inc()
        self._metrics.cold_hole_messages.inc(end - start)

    def _unproven(self, answer: Command, pull: PullRequest) -> Command:
        """Nothing shows that the client may read the topic."""
        return refused(self._metrics, "pull", unproven(answer, pull.topic))

    def _count(self, outcome: str, made: Command | None) -> Command | None:
        self._metrics.cold_answers.labels("pull", outcome).inc()
        return made
