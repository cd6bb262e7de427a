"""``Answers``: which of the broker's answers are replaced, and by what. No sockets here; the sessions ask.

The broker's *answer* is looked at, never the request: it has then checked rights, group, topic and subscription, and what it
can serve costs only the hop. What requests tell is learnt then, too: nobody chooses by a refused one what others are given. An
error raised here makes the client try again; the broker's answer is then not passed on (fail closed).
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor

from tiered.clock import Clock
from tiered.codec.record.lite import is_lite
from tiered.codec.remoting.codes import (
    PULL_LOOKED,
    PullStatus,
    RequestCode,
    ResponseCode,
    is_logical,
    number_field,
)
from tiered.codec.remoting.frame import Bytes, Command
from tiered.errors import BadRequest, TieredError, Unavailable
from tiered.filter.storagelevels import StorageLevel
from tiered.filter.topicpolicy import TopicPolicy
from tiered.gateway.answers.brokernames import BrokerNames
from tiered.gateway.answers.keyvalues import KeyValueDoor
from tiered.gateway.answers.litenumbers import LiteNumbers
from tiered.gateway.answers.liteoffsets import LiteOffsets
from tiered.gateway.answers.lookup import Lookups
from tiered.gateway.answers.names import name_of
from tiered.gateway.answers.offsets import OF_QUEUES, Offsets
from tiered.gateway.answers.resets import Resets
from tiered.gateway.answers.stats import Stats
from tiered.gateway.answers.wanted import CODES, LOOKUPS, STATS, TELLING
from tiered.gateway.knowledge.archive import GatewayArchive
from tiered.gateway.knowledge.asking import AGAIN_SECONDS, Asking, KnowsBroker
from tiered.gateway.knowledge.caughtup import AsksFloor, Coverage
from tiered.gateway.knowledge.clients import Clients
from tiered.gateway.knowledge.knowledge import Knowledge
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.knowledge.popwatch import PopWatch
from tiered.gateway.knowledge.positions import Positions
from tiered.gateway.knowledge.rights import Rights
from tiered.gateway.knowledge.unchecked import Unchecked
from tiered.gateway.nodes.reads import open_reads
from tiered.gateway.ports import HOLD, PASS, ConnectionInfo, NewBody, Verdict
from tiered.gateway.pull.cold import Pulls
from tiered.gateway.pull.coldpull import ahead_only
from tiered.gateway.pull.filters import Filters
from tiered.gateway.pull.litequeues import LitePulls
from tiered.gateway.pull.recheck import Recheck
from tiered.gateway.pull.verdict import HELD, PULLS, PullJudge, Why, machine_memory_bytes
from tiered.gateway.reply import changed
from tiered.metrics import Metrics
from tiered.settings import Settings

log = logging.getLogger("tiered.gateway")

_PULL_SHARE = 0.9
"""Of the time a session waits for an answer: the archive's share, so that its own reason is heard."""

# Before Python 3.12 a member by its class is a call: not for each frame.
_SUCCESS, _TOO_SMALL = ResponseCode.SUCCESS, PullStatus.OFFSET_TOO_SMALL.value
_QUERY_OFFSET, _DISABLE = RequestCode.QUERY_CONSUMER_OFFSET, StorageLevel.DISABLE

Made = Command | NewBody | None


class Answers:
    """What a broker front answers from the archive of one broker, the one named by ``source.broker``.

    ``pool`` runs what blocks (everything but pulls); ``broker`` knows whether a connection leads to the archived one, and
    without it every one does; ``floor`` asks a connection's broker where its commitlog begins, and tells
    ``Answers`` on a quiet broker that the archive has caught up; ``memory_bytes`` is the broker's, for level ``NOT_IN_MEM``;
    ``key_values`` is asked what no broker knows. Everything is called on the event loop.
    """

    codes: frozenset[int] = frozenset(map(int, CODES))
    notices: frozenset[int] = frozenset({RequestCode.RESET_CONSUMER_CLIENT_OFFSET})

    def __init__(
        self,
        archive: GatewayArchive,
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        pool: Executor,
        *,
        floor: AsksFloor | None = None,
        broker: KnowsBroker | None = None,
        memory_bytes: int | None = None,
        again_seconds: float = AGAIN_SECONDS,
        key_values: KeyValueDoor | None = None,
    ) -> None:
        source = settings.source
        self.own: frozenset[int] = frozenset() if key_values is None else key_values.codes
        self._key_values = key_values
        self._archive = archive
        self._metrics = metrics
        self._pull_seconds = metrics.cold_seconds.labels(name_of(RequestCode.PULL_MESSAGE))
        self._clock = clock
        self._broker = source.broker
        self._topics = TopicPolicy(source.exclude_topics, cluster=source.cluster, broker=source.broker)
        self._same = broker
        self._rights = Rights(clock, believes=settings.gateway.unproven_reads)
        asking = Asking(
            pool,
            settings.gateway.read_timeout_ms / 1000 * _PULL_SHARE,
            again_seconds,
            call_seconds=settings.gateway.call_timeout_ms / 1000,
            broker=broker,
        )
        self._named = BrokerNames(source.broker, clock)
        minimums = Minimums()
        self.clients = Clients(metrics)
        self._positions = Positions(self.clients, clock, archive.observe)
        self._pop = PopWatch(minimums, metrics)
        filters = Filters(self.clients, asking)
        coverage = Coverage(archive, clock, floor)
        memory = machine_memory_bytes() if memory_bytes is None else memory_bytes
        unchecked = Unchecked(metrics, clock)
        knowledge = Knowledge(archive, asking, self.clients, self._rights, minimums, coverage, unchecked)
        self._judge = PullJudge(knowledge, filters, clock, memory)
        self.reads = open_reads(archive, asking, settings.gateway, clock, metrics)
        self._pulls = Pulls(
            knowledge, self._judge, filters, self.reads, settings.gateway, metrics, clock, self._topics.is_excluded,
        )  # fmt: skip
        self._recheck = Recheck(clock, metrics, settings.gateway.cold_recheck_ms / 1000)
        self._lite_pulls = LitePulls(knowledge, filters, settings.gateway, metrics)
        self._offsets = Offsets(archive, asking, minimums, coverage, metrics, unchecked)
        self._lite = LiteNumbers(archive, knowledge, enabled=settings.gateway.lite_queues)
        self._lite_offsets = LiteOffsets(self._offsets, self._lite, metrics)
        self._lookups = Lookups(
            archive, asking, settings.gateway, metrics, self._rights, self._is_served, unchecked
        )
        self._stats = Stats(archive, asking, minimums, metrics, unchecked, self._lite)
        self._resets = Resets(self._offsets, asking, metrics, clock, self._lite)

    # ---- requests

    def wants(self, request: Command) -> bool:
        """Whether the answer is to be looked at. Static topics, RocketMQ's own topics and level ``DISABLE`` are left alone."""
        code, ext = request.code, request.ext
        if is_logical(ext) or not self._named.is_archived(ext.get("bname", self._broker)):
            return False
        if code == _QUERY_OFFSET:
            return len(self._resets) > 0
        topic = ext.get("topic")
        if not topic or self._is_served(topic):
            return True
        return any(kind.takes(request) for kind in (self._lite_pulls, self._lite_offsets, self._lite))

    def stand_in(self, request: Command, connection: ConnectionInfo) -> tuple[Command, Verdict] | None:
        """A pull deep below the broker's begin, soon after the broker was asked about another one like it."""
        answer = self._recheck.stand_in(request, connection)
        return None if answer is None else (answer, HELD[Why.SKIP])

    def observe(self, request: Command, connection: ConnectionInfo) -> None:
        """A commit that no answer will vouch for says what the cache should keep, and no more than that."""
        code, ext = request.code, request.ext
        if code == _QUERY_OFFSET:
            self._resets.asked(request)
        elif code == RequestCode.UPDATE_CONSUMER_OFFSET and request.is_oneway:
            if self._named.is_ours(ext, connection) is False or is_logical(ext):
                return
            try:
                self._positions.commit(ext)
            except TieredError as error:
                self._untold(code, error)

    def closed(self, connection: ConnectionInfo) -> None:
        """The connection is gone."""
        self.clients.closed(connection)
        if self._same is not None:
            self._same.closed(connection)

    # ---- answers

    def learn(self, request: Command, answer: Command, first: Bytes, connection: ConnectionInfo) -> None:
        """Subscriptions, who is there and where readers stand, from requests that the broker has accepted."""
        code = request.code
        if connection.broker_name == self._broker:  # another one has accounts of its own
            self._rights.learn(request, answer)
        try:
            if self._lite_pulls.takes(request):  # its records say nothing of its own offsets
                if self._named.is_ours(request.ext, connection):
                    self._compare(answer, first, connection)
            elif code in PULLS:
                ours = self._named.is_ours(request.ext, connection)
                if answer.code in PULL_LOOKED and ours is not False:
                    self._positions.pull(request.ext, connection)
                if ours:
                    if _is_skip(answer):
                        self._recheck.hear(request, answer, connection)
                    self._judge.learn(request.ext, answer, first)
                    self._compare(answer, first, connection)
            elif (
                code in TELLING
                and answer.code == _SUCCESS
                and self._named.is_ours(request.ext, connection) is not False
            ):
                self._told(request, answer, connection)
        except TieredError as error:
            self._untold(code, error)

    def _compare(self, answer: Command, first: Bytes, connection: ConnectionInfo) -> None:
        """A record that the broker gave to a client may tell whether it is the archived one."""
        if self._same is not None and self._same.listens and answer.code == _SUCCESS:
            self._same.heard(connection, first)

    def _told(self, request: Command, answer: Command, connection: ConnectionInfo) -> None:
        code, ext = request.code, request.ext
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            if not is_lite(ext.get("topic", "")):
                self._positions.commit(ext)
            if not answer.remark:  # with one, a broker that has a reset to deliver has not taken the commit
                self._resets.committed(ext)
        elif code == RequestCode.HEART_BEAT:
            for reader in self.clients.heartbeat(request.body, connection):
                self._archive.alive(reader)
        else:
            gone = self.clients.unregister(connection, ext.get("consumerGroup", ""))
            if gone is not None:
                self._archive.forget(gone)

    def judge(self, request: Command, answer: Command, body: Bytes, *, whole: bool = False) -> Verdict:
        """Whether the answer may go on at once; decided on its header and the first bytes of its body, or on ``NEED_BODY``."""
        try:
            if request.code not in PULLS:
                return PASS if self._passes(request, answer) else HOLD
            if self._lite_pulls.takes(request):
                verdict = HELD[Why.SKIP] if _is_skip(answer) else PASS
            else:
                verdict = self._judge.judge(request.ext, answer, body, whole=whole)
            return HOLD if verdict is PASS and self._resets.meant(request.ext, answer) else verdict
        except BadRequest as error:
            self._bad(request.code, error)
            return HELD[Why.SKIP] if _is_skip(answer) else PASS

    def _passes(self, request: Command, answer: Command) -> bool:
        code = request.code
        if code in OF_QUEUES:
            return self._offsets.passes(request, answer)
        if code in LOOKUPS:
            return self._lookups.passes(request, answer)
        if code in STATS:
            return self._stats.passes(request, answer)
        if code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
            return self._resets.passes(answer)
        if code == RequestCode.HEART_BEAT:
            return answer.code != _SUCCESS or not self.clients.forgets(request.body)
        if code == RequestCode.POP_MESSAGE and request.ext.get("bname") == self._broker:
            self._pop.look(request, answer)
        return code != _QUERY_OFFSET

    def at_once(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Command | None:
        """See ``Answering``. Whatever is not as usual is left to ``answer``."""
        if verdict.why is not Why.SKIP or self._lite_pulls.takes(request):
            return None
        if not self._named.is_ours(request.ext, connection):
            return None
        started = self._clock.monotonic()
        made = self._pulls.at_once(request, answer, connection)
        if made is not None:
            self._pull_seconds.observe(self._clock.monotonic() - started)
        return made

    async def answer(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Made:
        """What the client gets instead; ``None``: the broker's answer as it came. Raised errors make the client try again."""
        code = request.code
        if code == RequestCode.HEART_BEAT:
            return changed(answer, answer.code, answer.remark, {}, answer.body, {"IS_SUB_CHANGE": "true"})
        ours = self._named.is_ours(request.ext, connection)
        if ours is False:
            return None
        started = self._clock.monotonic()
        try:
            if ours is None:
                if code in PULLS and not _is_skip(answer):
                    return None
                raise Unavailable(
                    "it is not known which broker this connection leads to",
                    address=connection.broker_address,
                    hint="let clients ask the gateway's name-server front for routes",
                )
            if code in PULLS:
                made = await self._pulled(request, answer, verdict, connection)
            else:
                made = await self._asked(request, answer, connection)
        except BadRequest as error:  # a request that the broker understood and we do not
            self._bad(code, error)
            return None
        except TieredError:
            self._metrics.cold_answers.labels(name_of(code), "retry").inc()
            raise
        if made is not None:
            self._metrics.cold_seconds.labels(name_of(code)).observe(self._clock.monotonic() - started)
        return made

    async def serve(self, request: Command, connection: ConnectionInfo) -> Command:
        """A request of the key-value view, which no broker knows."""
        if self._key_values is None:
            raise Unavailable("there is no key-value view behind this gateway", hint="set gateway.kv_url")
        return await self._key_values.answer(request)

    async def notice(self, notice: Command, connection: ConnectionInfo) -> NewBody | None:
        """The broker tells a consumer where to go on: into the archive, if that is where the operator wants it."""
        ext = notice.ext
        ours = self._named.is_ours(ext, connection)
        topic = ext.get("topic", "")
        if ours is False or is_logical(ext) or not (self._is_served(topic) or self._lite.covers(topic)):
            return None
        if ours is None:
            raise Unavailable(
                "it is not known which broker this connection leads to", address=connection.broker_address
            )
        try:
            return await self._resets.told(notice, connection)
        except BadRequest as error:
            self._bad(notice.code, error)
            return None

    async def _pulled(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Made:
        if isinstance(verdict.why, Why):
            if self._lite_pulls.takes(request):
                made = await self._lite_pulls.answer(request, answer, connection)
                return made or ahead_only(answer, number_field(request.ext, "queueOffset"))
            with self._recheck.kept(request, answer, connection) as kept:
                made = await self._pulls.answer(request, answer, verdict.why, connection)
                kept(made)
            return made or ahead_only(answer, number_field(request.ext, "queueOffset"))
        return self._resets.delivered(request, answer)

    async def _asked(self, request: Command, answer: Command, connection: ConnectionInfo) -> Made:
        match request.code:
            case code if code in OF_QUEUES:
                offsets = self._lite_offsets if self._lite_offsets.takes(request) else self._offsets
                return await offsets.answer(request, answer, connection)
            case RequestCode.VIEW_MESSAGE_BY_ID:
                return await self._lookups.view(request, answer, connection)
            case RequestCode.QUERY_MESSAGE:
                return await self._lookups.query(request, answer, connection)
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return self._resets.position(request, answer)
            case RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
                return await self._resets.ordered(request, answer, connection)
            case code if code in STATS:
                return await self._stats.fill(request, answer, connection)
        return None

    # ---- inside

    def _is_served(self, topic: str) -> bool:
        """Neither one of RocketMQ's own topics, nor at level ``DISABLE``, nor a lite queue: its records name other offsets."""
        if is_lite(topic) or self._topics.is_system(topic):
            return False
        return self._archive.storage_level(topic) is not _DISABLE

    def _untold(self, code: int, error: TieredError) -> None:
        if isinstance(error, BadRequest):
            self._bad(code, error)
        else:
            log.debug("the archive's cache was not told", extra={"code": code, "error": str(error)})

    def _bad(self, code: int, error: BadRequest) -> None:
        self._metrics.gateway_bad_requests.labels(str(code)).inc()
        log.debug("fields make no sense", extra={"code": code, "error": str(error)})


def _is_skip(answer: Command) -> bool:
    """An answer that loses messages if it goes on, whatever else is wrong with it."""
    return answer.remark == _TOO_SMALL and answer.code in (
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
    )
