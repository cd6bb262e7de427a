"""One client of ``Answers``, without sockets: a request and the broker's answer in, what the client gets out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kit.fakearchive import FakeArchive, record
from tests.kit.replacing import replace
from tiered.clock import ManualClock
from tiered.codec.remoting.frame import RESPONSE, Command, decode_command
from tiered.errors import TieredError, Unavailable
from tiered.filter.storagelevels import StorageLevels
from tiered.gateway.answers.answers import Answers
from tiered.gateway.knowledge.asking import KnowsBroker
from tiered.gateway.knowledge.opening import LateStore
from tiered.gateway.ports import NEED_BODY, PASS, PEEK_BYTES, ConnectionInfo, NewBody, Verdict
from tiered.metrics import Metrics
from tiered.model import MessageQueue
from tiered.settings import Settings
from tiered.store import MessageStore

WIRE = Path(__file__).parent.parent / "data" / "wire"
BROKER = "broker-a"
RETRY = "retry"
"""What ``Desk.ask`` gives when the client is told to try again."""


def at_default_level(store: MessageStore) -> LateStore:
    """An open store as the gateway has it, with the default storage level."""
    return LateStore(lambda: store, StorageLevels(Settings().fetch.storage_level))


def recorded(name: str) -> Command:
    """A recorded frame, by the name of its file without ``.bin``."""
    return decode_command((WIRE / f"{name}.bin").read_bytes()[4:])


class Desk:
    """An ``Answers`` over a ``FakeArchive``, and one connection to it."""

    def __init__(
        self,
        archive: Any = None,
        *,
        read_timeout_ms: int = 10_000,
        again_seconds: float = 3600.0,
        broker: KnowsBroker | None = None,
        clock: ManualClock | None = None,
        **options: object,
    ) -> None:
        self.archive = archive or FakeArchive()
        self.metrics = Metrics()
        self.clock = clock or ManualClock()
        self.pool = ThreadPoolExecutor(2)
        defaults = Settings()
        settings = replace(
            defaults,
            source=replace(defaults.source, broker=BROKER, exclude_topics=("Excluded*",)),
            gateway=replace(defaults.gateway, read_timeout_ms=read_timeout_ms, **options),  # type: ignore[arg-type]
        )
        self.begin: int | None = None
        self.queue_end: int | None = None
        self.minimum: int | None = None
        self.answers = Answers(
            self.archive,
            settings,
            self.metrics,
            self.clock,
            self.pool,
            floor=self,
            broker=broker,
            memory_bytes=10_000,
            again_seconds=again_seconds,
        )
        self.connection = ConnectionInfo(1, "10.0.0.9:50000", "10.0.0.1:10911", BROKER)

    async def floor(self, connection: ConnectionInfo, *, fresh: bool = False) -> int | None:
        """Where the broker says that it begins."""
        return self.begin

    async def end(self, connection: ConnectionInfo, queue: MessageQueue) -> int:
        """Where the broker's queue ends by now."""
        if self.queue_end is None:
            raise Unavailable("the broker is away")
        return self.queue_end

    async def queue_begin(self, connection: ConnectionInfo, queue: MessageQueue) -> int | None:
        """Where the broker's queue begins by now, if it tells."""
        return self.minimum

    async def has(self, connection: ConnectionInfo, physical_offset: int) -> bool:
        """Whether it has a record."""
        return self.begin is not None and physical_offset >= self.begin

    def close(self) -> None:
        """End the pool."""
        self.pool.shutdown(cancel_futures=True)

    def ask(self, request: Command, answer: Command) -> Command | str:
        """As a session does it: wanted? judged? answered? What reaches the client; ``RETRY`` for an error."""
        wanted = self.answers.wants(request)
        self.answers.observe(request, self.connection)
        if not wanted:
            return answer
        self.answers.learn(request, answer, answer.body[:PEEK_BYTES], self.connection)
        verdict = self.judge(request, answer)
        if verdict is PASS:
            return answer
        try:
            made = asyncio.run(self.answers.answer(request, answer, verdict, self.connection))
        except TieredError:
            return RETRY
        if isinstance(made, NewBody):
            return replace(answer, body=made.body)
        return answer if made is None else made

    def judge(self, request: Command, answer: Command) -> Verdict:
        """By the first bytes, and by all of the body if they do not tell."""
        verdict = self.answers.judge(request, answer, answer.body[:PEEK_BYTES])
        if verdict is NEED_BODY:
            verdict = self.answers.judge(request, answer, answer.body, whole=True)
        return verdict

    def heartbeat(
        self,
        group: str,
        topic: str,
        expression: str = "*",
        kind: str = "TAG",
        *,
        broadcast: bool = False,
        version: int = 1,
    ) -> None:
        """The client subscribes, and the broker takes it."""
        self.ask(heartbeat(group, topic, expression, kind, broadcast=broadcast, version=version), simple(0))

    def count(self, what: str, outcome: str) -> float:
        """Answers counted so far."""
        return self.metrics.value("tiered_cold_answers_total", what=what, outcome=outcome) or 0


def heartbeat(
    group: str,
    topic: str,
    expression: str = "*",
    kind: str = "TAG",
    *,
    broadcast: bool = False,
    version: int = 1,
    short: bool = False,
) -> Command:
    """A client's heartbeat (34)."""
    subscription = {
        "topic": topic, "subString": expression, "expressionType": kind, "subVersion": version,
        "classFilterMode": False, "tagsSet": [], "codeSet": [],
    }  # fmt: skip
    body = {
        "clientID": "client-1",
        "consumerDataSet": [
            {
                "groupName": group,
                "messageModel": "BROADCASTING" if broadcast else "CLUSTERING",
                "subscriptionDataSet": [] if short else [subscription],
            }
        ],
        "producerDataSet": [],
        "withoutSub": short,
    }
    return Command(34, body=json.dumps(body, separators=(",", ":")).encode())


def pull(
    topic: str = "T",
    queue_id: int = 0,
    offset: int = 0,
    *,
    code: int = 11,
    count: int = 32,
    subscription: str | None = "*",
    kind: str = "TAG",
    **more: str,
) -> Command:
    """A pull. ``subscription`` ``None``: as push consumers send it, without."""
    ext = {
        "consumerGroup": "G", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": str(count), "sysFlag": "2" if subscription is None else "6", "commitOffset": "0",
        "suspendTimeoutMillis": "15000", "subVersion": "1", "expressionType": kind, "bname": BROKER,
    }  # fmt: skip
    if subscription is not None:
        ext["subscription"] = subscription
    return Command(code, opaque=77, ext={**ext, **more}, version=513)


def answered(
    code: int, remark: str, following: int, low: int, high: int, *, body: bytes = b"", **more: str
) -> Command:
    """A broker's answer to a pull."""
    ext = {
        "nextBeginOffset": str(following), "minOffset": str(low), "maxOffset": str(high),
        "suggestWhichBrokerId": "0", "topicSysFlag": "0", "groupSysFlag": "0",
    }  # fmt: skip
    return Command(code, 77, RESPONSE, remark, {**ext, **more}, body, 513)


def too_small(low: int, high: int) -> Command:
    """The answer that loses messages."""
    return answered(21, "OFFSET_TOO_SMALL", low, low, high)


def found(topic: str, queue_id: int, offsets: range, low: int, high: int) -> Command:
    """A hit of the broker's own."""
    body = b"".join(record(topic, queue_id, offset) for offset in offsets)
    return answered(0, "FOUND", offsets.stop, low, high, body=body)


def simple(code: int, remark: str | None = None, body: bytes = b"", **ext: str) -> Command:
    """Any other answer."""
    return Command(code, 77, RESPONSE, remark, dict(ext), body, 513)


def asking(code: int, body: bytes = b"", **ext: str) -> Command:
    """Any other request."""
    return Command(code, 77, 0, None, {"bname": BROKER, **ext}, body, 513)


def offsets_of(answer: Command | str, size_at: int = 0) -> list[int]:
    """Queue offsets of the records in an answer's body."""
    assert isinstance(answer, Command)
    found_offsets, position, body = [], size_at, bytes(answer.body)
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        found_offsets.append(int.from_bytes(body[position + 20 : position + 28], "big"))
        position += size
    return found_offsets


def fields(answer: Command | str) -> Mapping[str, str]:
    """The answer's header fields."""
    assert isinstance(answer, Command), answer
    return answer.ext
