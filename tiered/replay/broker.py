"""What replay asks the broker, and what its answers mean. RocketMQ's JSON bodies are not always JSON: bare integers and whole
objects stand as keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Refused, Unavailable
from tiered.replay.client import RemotingClient

V5_0_0 = 413
"""Release number of 5.0.0: the first with POP as it is here."""


class Code(IntEnum):
    """Requests of replay."""

    SEND_MESSAGE = 10
    QUERY_CONSUMER_OFFSET = 14
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_ALL_CONSUMER_OFFSET = 43
    UPDATE_SUBSCRIPTION_GROUP = 200
    GET_TOPIC_STATS = 202
    GET_CONSUMER_CONNECTIONS = 203
    GET_CONSUMER_RUNNING_INFO = 307
    GET_SUBSCRIPTION_GROUP = 352


class Said(IntEnum):
    """Answers that mean something to replay."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10  # the message is stored, and perhaps not flushed
    SLAVE_NOT_AVAILABLE = 11  # stored
    FLUSH_SLAVE_TIMEOUT = 12  # stored
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14  # the disk is full, or this is a slave
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    GROUP_NOT_EXIST = 26
    CONSUMER_NOT_ONLINE = 206
    FLOW_CONTROL = 215


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What does not change while the broker runs. ``kv``: POP positions are kept in the KV store, and told as pull offsets.
    ``clean_seconds``: how long minimums of queues may lag behind the log's deleted files. ``store_seconds``: how long it may
    wait for its disk and its slave before it answers a send."""

    name: str
    cluster: str
    version: int
    version_name: str
    kv: bool
    slave: bool
    reads_v1_retries: bool
    clean_seconds: float = 10.0
    store_seconds: float = 8.0

    def require(self, cluster: str, broker: str) -> None:
        """``Refused`` with the reason if nothing can be replayed through this broker."""
        said = {"broker": self.name, "version": self.version_name}
        if (self.cluster, self.name) != (cluster, broker):
            raise Refused(
                "the broker at replay.broker_address is another one",
                expected=f"{cluster}/{broker}",
                found=f"{self.cluster}/{self.name}",
                hint="set replay.broker_address to this broker's address, or source.cluster and source.broker to its names",
            )
        if self.version < V5_0_0:
            raise Refused(
                "this broker is older than 5.0 and lacks the POP requests that replay needs", **said, expected="5.0 or newer",
                hint="set replay.enabled = false; consumers of a 4.x broker read old offsets through `tiered gateway`",
            )  # fmt: skip
        if self.slave:
            raise Refused(
                "this broker is a slave and takes no messages", **said,
                hint="set replay.broker_address to the master of this broker's name",
            )  # fmt: skip
        if not self.reads_v1_retries:
            raise Refused(
                "this broker reads only the newer retry topics, which no client may write to", **said,
                hint="set the broker's retrieveMessageFromPopRetryTopicV1=true",
            )  # fmt: skip


Offsets = dict[tuple[str, str], dict[int, int]]
"""(group, topic) → queue id → offset."""


@dataclass(frozen=True, slots=True)
class AllOffsets:
    """Every consumer offset of a broker at one moment: committed ones, and those of the last pull."""

    committed: Offsets
    pulled: Offsets

    def topics(self) -> dict[str, set[str]]:
        """Topics with offsets, by group."""
        found: dict[str, set[str]] = {}
        for group, topic in (*self.committed, *self.pulled):
            found.setdefault(group, set()).add(topic)
        return found


@dataclass(frozen=True, slots=True)
class Consumers:
    """The clients of a group that are connected. ``pops``: a Proxy says so of its own; others must be asked (``running``).
    ``filters``: topic → (expression type, expression)."""

    pops: bool
    clients: tuple[str, ...]
    filters: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Running:
    """What one client does: topics it pops, topics it pulls."""

    pops: frozenset[str]
    pulls: frozenset[str]


class Broker:
    """Questions to one broker through one connection. Every method may raise ``Unavailable``."""

    def __init__(self, client: RemotingClient) -> None:
        self.client = client
        self._known: BrokerFacts | None = None
        self._connection = 0

    def known(self, check: Callable[[BrokerFacts], None]) -> BrokerFacts:
        """``facts``, asked again on each new connection; ``check`` then raises what speaks against this broker."""
        if self._known is None or not self.client.connected or self.client.connections != self._connection:
            self._known = None
            facts = self.facts()
            check(facts)
            self._known, self._connection = facts, self.client.connections
        return self._known

    def max_message_bytes(self) -> int | None:
        """The largest body that it accepts; ``None`` if it does not say."""
        told = _properties(bytes(self._good(Code.GET_BROKER_CONFIG).body)).get("maxMessageSize", "")
        return int(told) if told.isascii() and told.isdigit() else None

    def facts(self) -> BrokerFacts:
        """Who it is and how it is set."""
        answer = self._good(Code.GET_BROKER_RUNTIME_INFO)
        told = parse(bytes(answer.body)).get("table") or {}
        config = _properties(bytes(self._good(Code.GET_BROKER_CONFIG).body))
        return BrokerFacts(
            name=config.get("brokerName", ""),
            cluster=config.get("brokerClusterName", ""),
            version=answer.version,
            version_name=str(told.get("brokerVersionDesc") or "unknown"),
            kv=config.get("popConsumerKVServiceEnable") == "true",
            slave=config.get("brokerRole") == "SLAVE",
            reads_v1_retries=config.get("enableRetryTopicV2") != "true"
            or config.get("retrieveMessageFromPopRetryTopicV1") != "false",
            clean_seconds=int(config.get("cleanResourceInterval") or 10_000) / 1000,
            store_seconds=sum(
                int(config.get(key) or usual) / 1000
                for key, usual in (("syncFlushTimeout", 5_000), ("slaveTimeout", 3_000))
            ),
        )

    def offsets(self) -> AllOffsets:
        """Every offset of every group, in one answer."""
        told = self._table(Code.GET_ALL_CONSUMER_OFFSET)
        return AllOffsets(_offsets(told.get("offsetTable")), _offsets(told.get("pullOffsetTable")))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]] | None:
        """Queue id → (minimum, maximum); ``None`` if there is no such topic."""
        answer = self.client.ask(Code.GET_TOPIC_STATS, {"topic": topic})
        if answer.code == Said.TOPIC_NOT_EXIST:
            return None
        return dict(_bounds(bytes(good(answer, Code.GET_TOPIC_STATS, topic=topic).body)))

    def consumers(self, group: str) -> Consumers | None:
        """Who consumes for a group now; ``None`` if nobody does, as far as the broker knows (not those of a Proxy)."""
        answer = self.client.ask(Code.GET_CONSUMER_CONNECTIONS, {"consumerGroup": group})
        if answer.code in (Said.CONSUMER_NOT_ONLINE, Said.GROUP_NOT_EXIST):
            return None
        told = parse(bytes(good(answer, Code.GET_CONSUMER_CONNECTIONS, group=group).body))
        subscriptions = told.get("subscriptionTable") or {}
        return Consumers(
            pops=told.get("consumeType") == "CONSUME_POP",
            clients=tuple(str(c.get("clientId")) for c in told.get("connectionSet") or ()),
            filters={
                str(topic): (str(s.get("expressionType") or "TAG"), str(s.get("subString") or "*"))
                for topic, s in subscriptions.items()
            },
        )

    def is_ordered(self, group: str) -> bool:
        """Whether the group is configured, at the broker, to get its messages in order; one that is not there is not."""
        answer = self.client.ask(Code.GET_SUBSCRIPTION_GROUP, {"group": group})
        if answer.code == Said.GROUP_NOT_EXIST:
            return False
        told = parse(bytes(good(answer, Code.GET_SUBSCRIPTION_GROUP, group=group).body))
        return told.get("consumeMessageOrderly") is True

    def running(self, group: str, client: str) -> Running | None:
        """What a connected client says it does; ``None`` if it does not say. The broker waits for it, some seconds at most."""
        fields = {"consumerGroup": group, "clientId": client, "jstackEnable": False}
        answer = self.client.ask(Code.GET_CONSUMER_RUNNING_INFO, fields)
        if answer.code != Said.SUCCESS:
            return None
        body = bytes(answer.body)
        return Running(_topics(body, b'"mqPopTable"'), _topics(body, b'"mqTable"'))

    def offset_at(self, code: Code, topic: str, queue_id: int) -> int | None:
        """Minimum or maximum of a queue; ``None`` if there is no such topic or queue."""
        answer = self.client.ask(code, {"topic": topic, "queueId": queue_id})
        if answer.code in (Said.TOPIC_NOT_EXIST, Said.SYSTEM_ERROR):
            return None
        return int(good(answer, code, topic=topic).ext.get("offset", "0"))

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group stands in a queue; ``None`` if it never was there."""
        answer = self.client.ask(
            Code.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False},
        )
        if answer.code in (Said.QUERY_NOT_FOUND, Said.TOPIC_NOT_EXIST, Said.GROUP_NOT_EXIST):
            return None
        return int(good(answer, Code.QUERY_CONSUMER_OFFSET, topic=topic).ext.get("offset", "0"))

    def create_group(self, group: str) -> None:
        """Make a subscription group of RocketMQ's defaults."""
        body = json.dumps(
            {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        )
        good(
            self.client.ask(Code.UPDATE_SUBSCRIPTION_GROUP, {}, body.encode()),
            Code.UPDATE_SUBSCRIPTION_GROUP,
            group=group,
        )

    def _good(self, code: Code) -> Command:
        return good(self.client.ask(code), code)

    def _table(self, code: Code) -> dict[str, Any]:
        return parse(bytes(self._good(code).body))


def good(answer: Command, code: Code, **named: object) -> Command:
    """The answer if it is one; else ``Unavailable`` with the broker's words."""
    if answer.code == Said.SUCCESS:
        return answer
    hint = "see the broker's log; the daemon asks again"
    if answer.code == Said.NO_PERMISSION:
        hint = "replay.access_key and replay.secret_key must be those of an administrator of this broker"
    raise Unavailable(
        f"the broker refused {code.name}", code=answer.code, remark=(answer.remark or "")[:200], **named, hint=hint
    )  # fmt: skip


def parse(body: bytes) -> dict[str, Any]:
    """An answer's body, bare integers as keys quoted if need be. ``Corrupt`` if it is no object even then."""
    try:
        try:
            told = json.loads(body or b"{}")
        except ValueError:
            told = json.loads(re.sub(rb"([{,])\s*(-?\d+)\s*:", rb'\1"\2":', body))
    except ValueError as error:
        raise Corrupt(
            "an answer of the broker is not JSON",
            found=str(error)[:200],
            hint="is replay.broker_address a broker?",
        ) from error
    return told if isinstance(told, dict) else {}


def _offsets(table: object) -> Offsets:
    """``topic@group`` → queue → offset; entries that make no sense are left out."""
    found: Offsets = {}
    for name, queues in table.items() if isinstance(table, dict) else ():
        topic, _, group = str(name).partition("@")
        if topic and group and isinstance(queues, dict):
            found[group, topic] = {int(queue): int(offset) for queue, offset in queues.items()}
    return found


def _bounds(body: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """The body of 202 has an object for each key: ``{…"queueId":0…}:{…"maxOffset":7,"minOffset":3…}``."""
    for queue, offsets in re.findall(rb"(\{[^{}]*\})\s*:\s*(\{[^{}]*\})", body):
        key, value = parse(queue), parse(offsets)
        yield int(key["queueId"]), (int(value["minOffset"]), int(value["maxOffset"]))


def _topics(body: bytes, name: bytes) -> frozenset[str]:
    """Topics of the queues that are the keys of the object called ``name``; it, too, has objects as keys."""
    start = body.find(name)
    if start < 0:
        return frozenset()
    start = body.find(b"{", start)
    depth = 0
    for found in re.finditer(rb'"(?:[^"\\]|\\.)*"|[{}]', body[start:]):
        depth += {b"{": 1, b"}": -1}.get(found.group(), 0)
        if depth == 0:
            inside = body[start : start + found.end()]
            return frozenset(
                t.decode("utf-8", "replace") for t in re.findall(rb'"topic"\s*:\s*"([^"]*)"', inside)
            )
    return frozenset()


def _properties(body: bytes) -> dict[str, str]:
    """Java properties as the broker prints them: one ``key=value`` a line."""
    pairs = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
