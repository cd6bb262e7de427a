"""What a broker is asked, and what its answers mean."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tiered.broker.client import Dial, RemotingClient
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.lenientjson import decode_json
from tiered.codec.remoting.objectmap import decode_object_map
from tiered.errors import Corrupt, Unavailable


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
class ClientTopics:
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
        told = self.config().get("maxMessageSize", "")
        return int(told) if told.isascii() and told.isdigit() else None

    def config(self) -> Mapping[str, str]:
        """Its settings, as it names them."""
        return _properties(bytes(self._good(RequestCode.GET_BROKER_CONFIG).body))

    def facts(self) -> BrokerFacts:
        """Who it is and how it is set."""
        answer = self._good(RequestCode.GET_BROKER_RUNTIME_INFO)
        told = parse(bytes(answer.body), self.client.dial).get("table") or {}
        config = self.config()
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

    def log_end(self) -> int:
        """Where a master's commitlog ends: everything that it answered a send for lies below. ``Unavailable`` if it does not
        say, or says that it is a slave: its end may lie before what the master answered for."""
        answer = self.client.ask(RequestCode.GET_BROKER_HA_STATUS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return self._told_end()
        answer = good(answer, RequestCode.GET_BROKER_HA_STATUS, self.client.dial)
        told = parse(bytes(answer.body), self.client.dial)
        if told.get("master") is False:
            raise Unavailable(
                "the broker is a slave: where the log ends only its master knows", broker=self.client.address,
                hint="name the master, or the name servers that know it",
            )  # fmt: skip
        return _end(told.get("masterCommitLogMaxOffset"))

    def _told_end(self) -> int:
        """The same of a broker of 4.9: it looks at its disks to say it, and does not say its role."""
        answer = self._good(RequestCode.GET_BROKER_RUNTIME_INFO)
        told = parse(bytes(answer.body), self.client.dial).get("table") or {}
        return _end(told.get("commitLogMaxOffset"))

    def offsets(self) -> AllOffsets:
        """Every offset of every group, in one answer."""
        answer = self.client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        told = self._told(answer, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return AllOffsets(_offsets(told.get("offsetTable")), _offsets(told.get("pullOffsetTable")))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]] | None:
        """Queue id → (minimum, maximum); ``None`` if there is no such topic."""
        answer = self.client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        answer = good(answer, RequestCode.GET_TOPIC_STATS_INFO, self.client.dial, topic=topic)
        return {
            int(queue["queueId"]): (int(offsets["minOffset"]), int(offsets["maxOffset"]))
            for queue, offsets in decode_object_map(answer.body, "offsetTable").entries
        }

    def consumers(self, group: str) -> Consumers | None:
        """Who consumes for a group now; ``None`` if nobody does, as far as the broker knows (not those of a Proxy)."""
        answer = self.client.ask(RequestCode.GET_CONSUMER_CONNECTIONS, {"consumerGroup": group})
        if answer.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
            return None
        told = self._told(answer, RequestCode.GET_CONSUMER_CONNECTIONS, group=group)
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
        answer = self.client.ask(RequestCode.GET_SUBSCRIPTION_GROUP, {"group": group})
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return False
        told = self._told(answer, RequestCode.GET_SUBSCRIPTION_GROUP, group=group)
        return told.get("consumeMessageOrderly") is True

    def running(self, group: str, client: str) -> ClientTopics | None:
        """What a connected client says it does; ``None`` if it does not say. The broker waits for it, some seconds at most."""
        fields = {"consumerGroup": group, "clientId": client, "jstackEnable": False}
        answer = self.client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        if answer.code != ResponseCode.SUCCESS:
            return None
        body = bytes(answer.body)
        return ClientTopics(_topics(body, "mqPopTable"), _topics(body, "mqTable"))

    def offset_at(self, code: RequestCode, topic: str, queue_id: int) -> int | None:
        """Minimum or maximum of a queue; ``None`` if there is no such topic or queue."""
        answer = self.client.ask(code, {"topic": topic, "queueId": queue_id})
        if answer.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR):
            return None
        return int(good(answer, code, self.client.dial, topic=topic).ext.get("offset", "0"))

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where a group stands in a queue; ``None`` if it never was there."""
        answer = self.client.ask(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False},
        )
        if answer.code in (
            ResponseCode.QUERY_NOT_FOUND,
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ):
            return None
        return int(
            good(answer, RequestCode.QUERY_CONSUMER_OFFSET, self.client.dial, topic=topic).ext.get(
                "offset", "0"
            )
        )

    def create_group(self, group: str) -> None:
        """Make a subscription group of RocketMQ's defaults."""
        body = json.dumps(
            {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        )
        good(
            self.client.ask(RequestCode.UPDATE_SUBSCRIPTION_GROUP, {}, body.encode()),
            RequestCode.UPDATE_SUBSCRIPTION_GROUP,
            self.client.dial,
            group=group,
        )

    def create_topic(self, topic: str, queues: int) -> None:
        """Make a topic with so many queues to read and to write; one that is there is set to that."""
        ext = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }  # fmt: skip
        answer = self.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        good(answer, RequestCode.UPDATE_AND_CREATE_TOPIC, self.client.dial, topic=topic)

    def _good(self, code: RequestCode) -> Command:
        return good(self.client.ask(code), code, self.client.dial)

    def _told(self, answer: Command, code: RequestCode, **named: object) -> dict[str, Any]:
        return parse(bytes(good(answer, code, self.client.dial, **named).body), self.client.dial)


def good(answer: Command, code: RequestCode, dial: Dial, **named: object) -> Command:
    """The answer if it is one; else ``Unavailable`` with the broker's words."""
    if answer.code == ResponseCode.SUCCESS:
        return answer
    hint = "see the broker's log; the daemon asks again"
    if answer.code == ResponseCode.NO_PERMISSION:
        hint = f"{dial.keys_name} must be those of an administrator of this broker"
    raise Unavailable(
        f"the broker refused {code.name}", code=answer.code, remark=(answer.remark or "")[:200], **named, hint=hint
    )  # fmt: skip


def parse(body: bytes, dial: Dial) -> dict[str, Any]:
    """The object that an answer's body is; empty if it is another value or nothing. ``Corrupt`` if it is not even JSON."""
    try:
        told = decode_json(body or b"{}")
    except Corrupt as error:
        error.hint = f"is {dial.address_name} a broker?"
        raise
    return told if isinstance(told, dict) else {}


def _end(told: object) -> int:
    text = str(told)
    if not (text.isascii() and text.isdigit()):
        raise Unavailable(
            "the broker does not say where its log ends", found=text[:40], hint="see its version"
        )
    return int(text)


def _offsets(table: object) -> Offsets:
    """``topic@group`` → queue → offset; entries that make no sense are left out."""
    found: Offsets = {}
    for name, queues in table.items() if isinstance(table, dict) else ():
        topic, _, group = str(name).partition("@")
        if topic and group and isinstance(queues, dict):
            found[group, topic] = {int(queue): int(offset) for queue, offset in queues.items()}
    return found


def _topics(body: bytes, name: str) -> frozenset[str]:
    """Topics of the queues that are the keys of the map called ``name``; none if there is no such map of queues."""
    try:
        entries = decode_object_map(body, name).entries
    except Corrupt:
        return frozenset()
    return frozenset(str(queue["topic"]) for queue, _ in entries if "topic" in queue)


def _properties(body: bytes) -> dict[str, str]:
    """Java properties as the broker prints them: one ``key=value`` a line."""
    pairs = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
