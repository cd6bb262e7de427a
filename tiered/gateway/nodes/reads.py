"""Where cold messages are read: by a read node, or here.

A node is believed when it gives messages, or says up to where a filter takes none. Whatever else it says, and if it says
nothing, the next node is asked, and at last this process reads for itself: that nothing is there is never a node's word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tiered.clock import Clock
from tiered.codec.record.frame import edges_of
from tiered.codec.record.layout import queue_offsets
from tiered.codec.remoting.codes import TAG
from tiered.codec.remoting.nodepull import MAX_COUNT, NodeAnswer, NodePull, NodeStatus
from tiered.errors import Corrupt, TieredError
from tiered.fetch.allowance import OverBudget
from tiered.fetch.pull import Pull
from tiered.gateway.knowledge.archive import PullArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.clients import Subscription
from tiered.gateway.nodes.connection import NodeConnection
from tiered.gateway.nodes.fleet import NodeFleet, NodePlace, ReadNode
from tiered.gateway.transport.upstream import Upstream
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, QueueOffset, Records
from tiered.settings import Gateway
from tiered.text.addresses import split_address

MOST_ASKED = 2
"""Nodes that one read asks before it is read here."""

_GIVEN: Mapping[NodeStatus, GetMessageStatus] = {
    NodeStatus.FOUND: GetMessageStatus.FOUND,
    NodeStatus.NO_MATCHED_MESSAGE: GetMessageStatus.NO_MATCHED_MESSAGE,
}


class Reads:
    """Reads of the archive for cold pulls. On the event loop only."""

    def __init__(
        self,
        archive: PullArchive,
        asking: Asking,
        fleet: NodeFleet,
        clock: Clock,
        metrics: Metrics,
        *,
        node_seconds: float,
        most_waiting: int = 1,
    ) -> None:
        """``node_seconds``: how long one node has for its answer; ``most_waiting``: reads that may wait here for the budget of
        their tenant."""
        self._archive = archive
        self._asking = asking
        self.fleet = fleet
        self._clock = clock
        self._metrics = metrics
        self._node_seconds = node_seconds
        self._most_waiting = most_waiting
        self._waiting = 0

    def at_once(self, pull: Pull) -> GetMessageResult | None:
        """Messages that are in this process's memory, where no node is asked for them; ``None``: ask ``read``."""
        return None if len(self.fleet) else self._archive.get_message_at_once(pull)

    async def read(self, pull: Pull, wanted: Subscription | None, seconds: float) -> GetMessageResult:
        """What the archive has for ``pull``, whose filter is that of ``wanted``. ``Unavailable`` after ``seconds``.

        A read of a tenant that is over its budget waits here, if not too many do: the consumer is told to try again only when
        the time is over.
        """
        end = self._clock.monotonic() + seconds
        while True:
            try:
                return await self._read(pull, wanted, max(end - self._clock.monotonic(), 0.0))
            except OverBudget as over:
                left = end - self._clock.monotonic()
                if left <= 0.0 or self._waiting >= self._most_waiting:
                    raise
                self._waiting += 1
                try:
                    await asyncio.sleep(min(over.seconds, left))
                finally:
                    self._waiting -= 1
                # Without time no node is asked, and it must not be read here instead.
                if over.seconds >= left:
                    raise

    async def _read(self, pull: Pull, wanted: Subscription | None, seconds: float) -> GetMessageResult:
        began = self._clock.monotonic()
        if len(self.fleet) and (pull.row_filter is None or wanted is not None):
            found = await self._from_nodes(pull, wanted, seconds)
            if found is not None:
                return found
        left = seconds - (self._clock.monotonic() - began)
        return await self._asking.wait(self._archive.get_message_async(pull), max(left, 0.0))

    def set_nodes(self, addresses: Sequence[str]) -> None:
        """Which nodes there are from now on, by their addresses."""
        self.fleet.set_nodes([NodePlace(address, address) for address in addresses])

    def nodes(self) -> dict[str, str]:
        """See ``NodeFleet.nodes``. From any thread."""
        return self.fleet.nodes()

    def problems(self) -> dict[str, str]:
        """Nodes that are not asked, or failed last, and why. From any thread."""
        return {name: said for name, said in self.fleet.nodes().items() if said != "answers"}

    async def _from_nodes(
        self, pull: Pull, wanted: Subscription | None, seconds: float
    ) -> GetMessageResult | None:
        place = self._archive.place()
        if place is None:
            return None
        question = _question(pull, wanted, *place)
        began = self._clock.monotonic()
        asked: list[str] = []
        while len(asked) < MOST_ASKED and (node := self.fleet.choose(pull.queue, asked)) is not None:
            asked.append(node.name)
            left = seconds - (self._clock.monotonic() - began)
            if left <= 0.0:
                break
            try:
                answer = await self._ask(node, question, min(self._node_seconds, left))
                made = _result(answer, pull)
            except TieredError as error:
                self._failed(node, str(error))
                continue
            if made is not None:
                self.fleet.answered(node)
                self._metrics.node_reads.labels("given").inc()
                return made
            if answer.status is NodeStatus.OVER_BUDGET:
                self.fleet.answered(node)
                self._metrics.node_reads.labels("over_budget").inc()
                raise OverBudget(f"as {node.name} says", answer.wait_ms / 1000)
            if answer.status is NodeStatus.ELSEWHERE:
                self.fleet.answered(node)
                self._metrics.node_reads.labels("elsewhere").inc()
                return None
            self._failed(node, f"it says {answer.status.value}")
        self._metrics.node_reads.labels("here").inc()
        return None

    async def _ask(self, node: ReadNode, question: NodePull, seconds: float) -> NodeAnswer:
        """One question. How long it took counts also where no answer came."""
        began = self._clock.monotonic()
        node.reads += 1
        try:
            answer = await node.connection.ask(question, seconds)
            node.phi.seen(self._clock.monotonic())
            return answer
        finally:
            node.reads -= 1
            now = self._clock.monotonic()
            node.times.took(now - began, now)

    def _failed(self, node: ReadNode, problem: str) -> None:
        self._metrics.node_reads.labels("failed").inc()
        self.fleet.failed(node, problem)


def _question(pull: Pull, wanted: Subscription | None, archive_id: bytes, commit: int) -> NodePull:
    filtered = pull.row_filter is not None and wanted is not None
    return NodePull(
        archive_id=archive_id,
        commit=commit,
        topic=pull.topic,
        queue_id=pull.queue_id,
        offset=pull.offset,
        max_count=min(pull.max_count, MAX_COUNT),
        max_bytes=pull.max_bytes,
        group=pull.reader.group,
        client=pull.reader.client or "",
        expression=wanted.expression if filtered and wanted is not None else "",
        expression_type=wanted.expression_type if filtered and wanted is not None else TAG,
    )


def _result(answer: NodeAnswer, pull: Pull) -> GetMessageResult | None:
    """The answer as the archive's own; ``None``: the node gave none. ``Corrupt`` if it cannot be one to this pull."""
    status = _GIVEN.get(answer.status)
    if status is None:
        return None
    records, offsets = _records(answer)
    ends = (*offsets, QueueOffset(answer.next_offset))
    # The first record may be an inner batch that begins before the offset, and must then reach beyond it.
    reaches = ends[1] > pull.offset if offsets else ends[0] > pull.offset
    ascends = all(one < other for one, other in pairwise(ends))
    if not (reaches and ascends and (status is GetMessageStatus.FOUND) == bool(offsets)):
        raise Corrupt(
            "the answer of a read node is not to the question",
            queue=pull.queue,
            offset=pull.offset,
            found=f"{len(offsets)} messages from {ends[0]} on, next {answer.next_offset}",
        )
    return GetMessageResult(
        status,
        QueueOffset(answer.next_offset),
        QueueOffset(answer.min_offset),
        QueueOffset(answer.max_offset),
        records,
        offsets,
    )


def _records(answer: NodeAnswer) -> tuple[Records, tuple[QueueOffset, ...]]:
    if not answer.count:
        if len(answer.body):
            raise Corrupt("the answer of a read node has bytes and no messages", bytes=len(answer.body))
        return Records(), ()
    edges = edges_of(answer.body, answer.count)
    if edges is None:
        raise Corrupt("the body of a read node's answer is not its messages", messages=answer.count)
    offsets = queue_offsets(answer.body, edges[:-1]).tolist()
    return Records([memoryview(answer.body)], [edges.tolist()]), tuple(map(QueueOffset, offsets))


def node_addresses(settings: Gateway) -> tuple[str, ...]:
    """``gateway.read_nodes``, each once. ``Invalid`` for one that is no address."""
    for name in settings.read_nodes:
        split_address(name, key="gateway.read_nodes")
    return tuple(dict.fromkeys(settings.read_nodes))


def open_reads(
    archive: PullArchive, asking: Asking, settings: Gateway, clock: Clock, metrics: Metrics
) -> Reads:
    """Reads by ``gateway.read_nodes``; no connection is made before it is needed. ``Invalid`` for an address that is none."""

    def connect(name: str) -> NodeConnection:
        upstream = Upstream([split_address(name, key="gateway.read_nodes")], None)
        return NodeConnection(upstream, settings.read_node_token, settings.max_frame_bytes)

    node_seconds = settings.read_node_timeout_ms / 1000
    # Each has its place among the answers meanwhile: others must find some of these free.
    most_waiting = max(1, settings.answer_bytes // settings.max_pull_bytes // 4)
    fleet = NodeFleet(
        connect,
        clock,
        metrics,
        node_seconds=node_seconds,
        beat_seconds=settings.node_beat_ms / 1000,
        most_phi=settings.node_phi,
        slow_factor=settings.node_slow_factor,
        load_percent=settings.node_load_percent,
    )
    reads = Reads(
        archive, asking, fleet, clock, metrics, node_seconds=node_seconds, most_waiting=most_waiting
    )
    reads.set_nodes(node_addresses(settings))
    return reads
