"""What consumers are answered that ask a read node themselves: messages, or that they go back to the gateway.

Consumers take a broker's word that nothing is there, or that an offset has moved, for the truth, and a node knows neither. So
whatever is not messages (or up to where a filter takes none) is answered *retry immediately*, at the offset that was asked for,
with the master as the one to ask: RocketMQ's clients then do so at once. Nobody is answered unless ``serve.clients`` is set and
a gateway has vouched for it of late.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from tiered.clock import Clock
from tiered.codec.record.lite import is_lite
from tiered.codec.remoting.codes import (
    SYS_CLASS_FILTER,
    SYS_COMMIT_OFFSET,
    TAG,
    PullRequest,
    PullStatus,
    RequestCode,
    ResponseCode,
    is_logical,
    number_field,
)
from tiered.codec.remoting.frame import RESPONSE, Command
from tiered.codec.remoting.nodebeat import WIRE, Vouch
from tiered.codec.remoting.nodepull import ARCHIVE, NodeAnswer, NodePull, NodeStatus
from tiered.errors import TieredError
from tiered.settings import MIB

MAX_BYTES = MIB
MAX_COUNT = 4096
"""Of one answer, whatever the client asks for."""

MAX_QUEUES = 4096
"""Queues of one connection that are read here at once; consumers of more are sent back each time."""

_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_BESIDE = (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)
_MASTER = 0
MAX_OFFSET = (1 << 63) - 1


class Turns:
    """Since when the consumer of one connection reads its queues here without having been sent back. Bounded."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str, int], float] = {}

    def is_over(self, pull: NodePull, now: float, seconds: float) -> bool:
        """Whether it is to be sent back with this answer; then it begins anew."""
        key = pull.group, pull.topic, pull.queue_id  # groups of one process share its connection
        if key not in self._since and len(self._since) >= MAX_QUEUES:
            self._since = {one: at for one, at in self._since.items() if now - at < seconds}
            if len(self._since) >= MAX_QUEUES:
                return True
        if now - self._since.setdefault(key, now) < seconds:
            return False
        del self._since[key]
        return True


class ClientDoor:
    """What is asked by consumers, and the answers. On the event loop only."""

    def __init__(self, clock: Clock, broker: str, *, wanted: bool) -> None:
        """``broker``: the name of the one that was archived; ``wanted``: ``serve.clients``."""
        self.wanted = wanted
        self._clock = clock
        self._broker = broker
        self._vouch: Vouch | None = None
        self._until = 0.0
        self._life = secrets.token_hex(8)
        self.room: Callable[[], bool] = lambda: True
        """Whether one more could connect."""

    def tick(self) -> str:
        """The time here, for gateways to say again with their next word."""
        return f"{self._life}-{int(1000 * self._clock.monotonic())}"

    def vouched(self, vouch: Vouch | None, archive_id: bytes | None) -> None:
        """A gateway's beat came; ``archive_id``: whose the node is. One without a word takes back nothing: the last one ends by
        itself. One about another archive, or that waited somewhere, is none."""
        if vouch is None or not self.wanted or vouch.archive_id != archive_id:
            return
        now, said = self._clock.monotonic(), self._said_at(vouch.tick)
        if said is None or not said <= now < said + vouch.hold_ms / 1000:
            return
        before = self.vouch
        self._until = max(said + vouch.hold_ms / 1000, self._until if before is not None else 0.0)
        if before is None or before.archive_id != archive_id or before.commit <= vouch.commit:
            self._vouch = vouch  # else another gateway's, which knows more

    @property
    def open(self) -> bool:
        """Whether consumers may be told of this node."""
        return self.wanted and self.room()

    @property
    def vouch(self) -> Vouch | None:
        """The word that counts now."""
        return self._vouch if self._clock.monotonic() < self._until else None

    def _said_at(self, tick: str) -> float | None:
        life, _, text = tick.partition("-")
        return int(text) / 1000 if life == self._life and text.isascii() and text.isdigit() else None

    def asks(self, request: Command) -> bool:
        """Whether a consumer asks this, and is to be answered."""
        ext = request.ext
        if not self.wanted:
            return False
        return (request.code in _PULLS and ARCHIVE not in ext) or (
            request.code in _BESIDE and WIRE not in ext
        )

    def question(self, request: Command) -> NodePull | None:
        """A consumer's pull as a gateway would ask it; ``None``: it is to be sent back. ``BadRequest`` if it makes no sense."""
        vouch = self.vouch
        pull = PullRequest.parse(request.ext)
        strange = is_logical(request.ext) or request.ext.get("bname", self._broker) != self._broker
        filtered = pull.expression_type != TAG or pull.sys_flag & SYS_CLASS_FILTER
        commits = pull.sys_flag & SYS_COMMIT_OFFSET  # which only the broker can keep
        if vouch is None or strange or filtered or commits or is_lite(pull.topic):
            return None
        if pull.offset < 0 or pull.queue_id < 0 or pull.max_count < 1:
            return None
        return NodePull(
            vouch.archive_id,
            vouch.commit,
            pull.topic,
            pull.queue_id,
            pull.offset,
            min(pull.max_count, MAX_COUNT),
            min(pull.max_bytes or MAX_BYTES, MAX_BYTES),
            pull.group,
            expression=pull.subscription or "",
        )

    def most_bytes(self, request: Command) -> tuple[int, str, str]:
        """The most that an answer may have, its topic and group."""
        try:
            question = self.question(request) if request.code in _PULLS else None
        except TieredError:
            question = None
        return (0, "", "") if question is None else (question.max_bytes, question.topic, question.group)

    def given(
        self, request: Command, pull: NodePull, made: NodeAnswer | None, turns: Turns
    ) -> Command | None:
        """Messages, or up to where a filter takes none, and whom to ask the next time; ``None``: none of both.

        Nor where they reach the end of what is archived: there are programs that take ``maxOffset`` for the queue's end.
        """
        vouch = self.vouch
        if vouch is None or made is None or not pull.offset < made.next_offset < made.max_offset:
            return None
        if made.status is NodeStatus.FOUND and made.count:
            code, remark = ResponseCode.SUCCESS, PullStatus.FOUND.value
        elif made.status is NodeStatus.NO_MATCHED_MESSAGE:
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MESSAGE.value
        else:
            return None
        over = turns.is_over(pull, self._clock.monotonic(), vouch.recheck_ms / 1000)
        bounds = (made.next_offset, made.min_offset, made.max_offset)
        answer = _pulled(request, code, remark, _MASTER if over else vouch.broker_id, bounds)
        answer.body = made.body
        return answer

    def sent_back(self, request: Command) -> Command:
        """Nothing is said of what is there: the gateway is to be asked, at once. ``BadRequest`` without an offset.

        The bounds are so wide that nobody takes the offset for the queue's begin or end.
        """
        offset = number_field(request.ext, "queueOffset")
        remark = "a read node gives messages only: ask the master"
        bounds = (offset, min(0, offset), min(offset + 1, MAX_OFFSET))
        return _pulled(request, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, _MASTER, bounds)

    def beside(self, request: Command) -> Command:
        """A client says that it is there, or goes: nothing is kept of that."""
        return _answer(request, ResponseCode.SUCCESS)

    def is_pull(self, request: Command) -> bool:
        """Whether it is a pull, of what ``asks`` takes."""
        return request.code in _PULLS


def _pulled(
    request: Command, code: ResponseCode, remark: str, suggested: int, bounds: tuple[int, int, int]
) -> Command:
    following, low, high = bounds
    fields = {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(following),
        "minOffset": str(low),
        "maxOffset": str(high),
    }
    return _answer(request, code, remark, fields)


def _answer(
    request: Command, code: ResponseCode, remark: str | None = None, fields: dict[str, str] | None = None
) -> Command:
    return Command(
        code, request.opaque, RESPONSE, remark, fields or {}, version=request.version, language=request.language,
        binary=request.binary,
    )  # fmt: skip
