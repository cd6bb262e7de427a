"""What a read node answers."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Protocol

from tiered.clock import Clock
from tiered.codec.remoting.codes import SYS_SUBSCRIPTION, PullRequest, RequestCode, ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command
from tiered.codec.remoting.nodebeat import FIRST_WIRE, LAST_WIRE, LIVE, WIRE, NodeBeat
from tiered.codec.remoting.nodepull import ARCHIVE, MAX_WAIT_MS, TOKEN, NodeAnswer, NodePull, NodeStatus
from tiered.errors import BadRequest, TieredError
from tiered.fetch.allowance import OverBudget
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.gateway.answers.keyvalues import KeyValueDoor
from tiered.gateway.knowledge.archive import PullArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.clients import Clients
from tiered.gateway.ports import clipped
from tiered.gateway.pull.filters import Filters
from tiered.gateway.reply import MAX_REMARK, reply
from tiered.gateway.transport.limits import Sparse
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue
from tiered.placement.readloads import ReadLoads
from tiered.settings import Serve
from tiered.version import __version__

log = logging.getLogger("tiered.node")

LIMIT = "serve.read_timeout_ms is the limit"

_GIVEN: Mapping[GetMessageStatus, NodeStatus] = {
    GetMessageStatus.FOUND: NodeStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE: NodeStatus.NO_MATCHED_MESSAGE,
}
_CODES: Mapping[NodeStatus, ResponseCode] = {
    NodeStatus.FOUND: ResponseCode.SUCCESS,
    NodeStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
}


class NodeArchive(PullArchive, Protocol):
    """The archive as a node needs it: ``MessageStore``."""

    def reach(self, commit: int) -> Future[bool]: ...


class NodeAnswers:
    """Answers reads of ``archive``. On the event loop only; ``pool`` compiles filters."""

    def __init__(
        self,
        archive: NodeArchive,
        settings: Serve,
        metrics: Metrics,
        clock: Clock,
        pool: Executor,
        state: Callable[[], str] = lambda: LIVE,
        key_values: KeyValueDoor | None = None,
    ) -> None:
        """``state``: what beats are told; see ``NodeBeat``. ``loads`` knows what was given of which queue. ``key_values``: what
        answers its codes; ``None``: nobody does."""
        self._key_values = key_values
        self._archive = archive
        self._token = settings.token.encode()
        self._metrics = metrics
        self._clock = clock
        self._asking = Asking(pool, settings.read_timeout_ms / 1000)
        self._filters = Filters(Clients(metrics), self._asking)
        self._sparse = Sparse()
        self._state = state
        self.loads = ReadLoads(clock.monotonic)
        self.reads = 0
        """Reads that were asked for since the start."""

    async def answer(self, request: Command) -> Command:
        """The answer, whatever is asked. Never raises but to be cancelled."""
        if request.code == RequestCode.HEART_BEAT:
            return self.beat(request)
        if self._key_values is not None and request.code in self._key_values.codes:
            self.reads += 1
            return await self._key_values.answer(request)  # who may is judged there, by kv.http_token
        refused = self._refused(request, request.code == RequestCode.PULL_MESSAGE and ARCHIVE in request.ext)
        if refused is not None:
            return refused
        self.reads += 1
        try:
            made = await self._read(NodePull.parse(request.ext))
        except BadRequest as error:
            self._count("refused")
            return _reply(request, ResponseCode.SYSTEM_ERROR, error.told)
        except TieredError as error:
            return self._busy(request, error.told, str(error))
        except (
            Exception
        ) as error:  # the door of reads: a fault of ours must not take the connection's other reads along
            log.exception("a read failed")
            return self._busy(request, f"the node failed: {type(error).__name__}")
        self._count(made.status.value.lower())
        return Command(
            _CODES.get(made.status, ResponseCode.PULL_NOT_FOUND),
            request.opaque,
            RESPONSE,
            made.status.value,
            made.fields(),
            made.body,
            binary=request.binary,
        )

    def wanted(self, request: Command) -> tuple[int, str, str]:
        """The most that an answer may have, its topic and group; what makes no sense is refused, and needs nothing."""
        if self._key_values is not None and request.code in self._key_values.codes:
            return self._key_values.most_bytes(request), self._key_values.topic(request), ""
        try:
            pull = NodePull.parse(request.ext)
        except TieredError:
            return 0, "", ""
        return pull.max_bytes, pull.topic, pull.group

    def beat(self, request: Command) -> Command:
        """What the node is, for a gateway's heartbeat; a consumer's is refused."""
        refused = self._refused(request, WIRE in request.ext)
        if refused is not None:
            return refused
        self._count("beat")
        said = NodeBeat(FIRST_WIRE, LAST_WIRE, self._state(), __version__)
        return Command(
            ResponseCode.SUCCESS, request.opaque, RESPONSE, ext=said.fields(), binary=request.binary
        )

    def _refused(self, request: Command, known: bool) -> Command | None:
        """The answer to what no gateway asks (not ``known``), or without the token."""
        if not known:
            self._count("unsupported")
            return _reply(
                request,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {request.code} not supported: this is a read node, which only gateways ask",
            )
        if self._token and not hmac.compare_digest(self._token, request.ext.get(TOKEN, "").encode()):
            self._count("refused")
            return _reply(
                request,
                ResponseCode.NO_PERMISSION,
                "the token is not serve.token: set gateway.read_node_token",
            )
        return None

    async def _read(self, pull: NodePull) -> NodeAnswer:
        place = self._archive.place()
        if place is not None and place.archive_id != pull.archive_id:
            return NodeAnswer(NodeStatus.OTHER_ARCHIVE)
        if place is None or place.commit < pull.commit:
            await self._asking.wait(self._archive.reach(pull.commit), self._asking.pull_seconds, LIMIT)
            place = self._archive.place()
            if place is None or place.commit < pull.commit:
                return NodeAnswer(NodeStatus.BEHIND, 0 if place is None else place.commit)
        try:
            result = await self._result(pull)
        except OverBudget as over:
            wait_ms = min(max(1, round(1000 * over.seconds)), MAX_WAIT_MS)
            return NodeAnswer(NodeStatus.OVER_BUDGET, place.commit, wait_ms=wait_ms)
        status = _GIVEN.get(result.status, NodeStatus.ELSEWHERE)
        chunks = result.records.chunks
        if chunks:
            self.loads.count(MessageQueue(pull.topic, pull.queue_id), sum(map(len, chunks)))
        return NodeAnswer(
            status,
            place.commit,
            int(result.next_begin_offset),
            int(result.min_offset),
            int(result.max_offset),
            len(result.records),
            chunks[0] if len(chunks) == 1 else b"".join(chunks),
        )

    async def _result(self, pull: NodePull) -> GetMessageResult:
        began = self._clock.monotonic()
        wanted = await self._filters.of(_as_request(pull))
        asked = Pull(
            ReaderId(pull.group, pull.client or None),
            pull.topic,
            pull.queue_id,
            pull.offset,
            pull.max_count,
            pull.max_bytes,
            wanted,
        )
        left = self._asking.pull_seconds - (self._clock.monotonic() - began)
        return await self._asking.wait(self._archive.get_message_async(asked), max(left, 0.0), LIMIT)

    def _busy(self, request: Command, told: str, why: str = "") -> Command:
        self._count("busy")
        unsaid = self._sparse.due("busy", self._clock.monotonic())
        if unsaid is not None:
            topic = clipped(request.ext.get("topic", ""))
            log.warning(
                "a read was not answered: %s",
                (why or told)[:MAX_REMARK],
                extra={"topic": topic, "unsaid": unsaid},
            )
        return _reply(request, ResponseCode.SYSTEM_BUSY, f"[node] try again: {told}")

    def _count(self, status: str) -> None:
        self._metrics.node_answers.labels(status).inc()


def _as_request(pull: NodePull) -> PullRequest:
    """The same read as a client of a broker would ask it: filters are compiled for those."""
    return PullRequest(
        pull.group,
        pull.topic,
        pull.queue_id,
        pull.offset,
        pull.max_count,
        SYS_SUBSCRIPTION,
        pull.expression,
        pull.expression_type,
        pull.max_bytes,
        None,
    )


def _reply(request: Command, code: ResponseCode, remark: str) -> Command:
    return reply(Command(code, request.opaque, RESPONSE, binary=request.binary), code, remark)
