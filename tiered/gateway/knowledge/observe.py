"""What passing frames tell: who subscribes to what, where groups stand, what the broker still has. Nothing is changed.

Everything is held in tables of bounded size, the entry used longest ago going first, and only on the event loop.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.codec.remoting.codes import (
    TAG,
    PullRequest,
    QueueRequest,
    RequestCode,
    number,
    parse_pop_starts,
    text,
)
from tiered.codec.remoting.frame import Command
from tiered.fetch.base import ReaderId
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")

MAX_GROUPS = 16_384
MAX_CONNECTIONS = 65_536
MAX_QUEUES = 262_144
MAX_PER_HEARTBEAT = 4096
"""Groups of a heartbeat, and topics of a group, that are looked at."""
EVERY_SECONDS = 1.0
MAX_HEARTBEAT_BYTES = 4 * 1024 * 1024
MAX_EXPRESSION = 65_536
"""Characters of a filter expression that is still run. A longer one by tag is not kept; other ones as long as to be refused."""
MAX_KIND = 64
"""Characters of an expression's type; the known ones have three and five."""
MAX_GROUPS_BYTES = 128 * 1024 * 1024
"""About what subscriptions take together, at most; a group counts for ``GROUP_BYTES`` beside its subscriptions."""
GROUP_BYTES = 4096
_SUBSCRIPTION_BYTES = 256

_WITHOUT_SUB = b'"withoutSub":true'


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of a topic. ``class_filter``: by a class run on filter servers, which no archive can."""

    expression: str
    expression_type: str
    version: int
    class_filter: bool = False


@dataclass(slots=True)
class _Group:
    broadcast: bool
    subscriptions: dict[str, Subscription]
    size: int


@dataclass(slots=True)
class _Client:
    client_id: str
    groups: dict[str, bool]  # name → broadcast


class Clients:
    """Subscriptions by group and topic, as brokers keep them, and the clients behind connections."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._groups: LRUCache[str, _Group] = LRUCache(MAX_GROUPS_BYTES, lambda group: group.size)
        self._clients: LRUCache[int, _Client] = LRUCache(MAX_CONNECTIONS)

    def heartbeat(self, body: bytes | memoryview, connection: ConnectionInfo) -> list[ReaderId]:
        """Learn from a heartbeat's body; who is alive. One that makes no sense is counted: the broker answers it."""
        try:
            client_id, short, groups = _heartbeat(body)
        except (ValueError, RecursionError) as error:
            self._metrics.gateway_bad_requests.labels(str(int(RequestCode.HEART_BEAT))).inc()
            log.debug(
                "a heartbeat makes no sense", extra={"client": connection.client, "error": str(error)[:200]}
            )
            return []
        client = _Client(client_id, {})
        for name, broadcast, subscriptions in groups:
            client.groups[name] = broadcast
            known = self._groups.get(name)
            if short and not subscriptions:
                if known is not None:
                    known.broadcast = broadcast
                continue
            for topic, subscription in (known.subscriptions if known is not None else {}).items():
                newer = subscriptions.get(topic)
                if newer is not None and newer.version < subscription.version:
                    subscriptions[topic] = subscription
            group = _Group(broadcast, subscriptions, _size(name, subscriptions))
            if group.size <= self._groups.maxsize:
                self._groups[name] = group
            else:
                self._groups.pop(name, None)
        self._clients[connection.number] = client
        return [self.reader(connection, name) for name in client.groups]

    def forgets(self, body: bytes | memoryview) -> bool:
        """Whether a heartbeat leaves out subscriptions that are not known here, so that the client must be asked for them."""
        if _WITHOUT_SUB not in bytes(body):
            return False
        try:
            _, short, groups = _heartbeat(body)
        except (ValueError, RecursionError):
            return False
        return short and any(name not in self._groups for name, _, _ in groups)

    def unregister(self, connection: ConnectionInfo, group: str) -> ReaderId | None:
        """One client leaves a group; who reads no more because of that. What the group subscribes to stays known."""
        reader = self.reader(connection, group)
        client = self._clients.get(connection.number)
        if client is None or client.groups.pop(group, None) is None:
            return None
        others = any(group in other.groups for other in self._clients.values())
        return None if others and reader.client is None else reader

    def closed(self, connection: ConnectionInfo) -> None:
        """The connection is gone."""
        self._clients.pop(connection.number, None)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group's newest heartbeat said about the topic; ``None``: not known."""
        known = self._groups.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def reader(self, connection: ConnectionInfo, group: str, proxied_client: str | None = None) -> ReaderId:
        """Whose position a read moves: the group's, or for broadcasting consumers the client's own."""
        client = self._clients.get(connection.number)
        broadcast = client.groups.get(group) if client is not None else None
        if broadcast is None:
            known = self._groups.get(group)
            broadcast = known is not None and known.broadcast
        if not broadcast:
            return ReaderId(group)
        return ReaderId(
            group, proxied_client or (client.client_id if client is not None else connection.client)
        )


def _size(name: str, subscriptions: Mapping[str, Subscription]) -> int:
    """What a group counts for."""
    said = sum(len(topic) + len(told.expression) for topic, told in subscriptions.items())
    return GROUP_BYTES + len(name) + said + _SUBSCRIPTION_BYTES * len(subscriptions)


def _heartbeat(body: bytes | memoryview) -> tuple[str, bool, list[tuple[str, bool, dict[str, Subscription]]]]:
    """Client id, whether subscriptions are left out, and per group: name, broadcasting, subscriptions. ``ValueError``."""
    if len(body) > MAX_HEARTBEAT_BYTES:
        raise ValueError(f"{len(body)} bytes")
    fields = json.loads(bytes(body))
    groups = []
    for consumer in _list(fields, "consumerDataSet")[:MAX_PER_HEARTBEAT]:
        subscriptions = {}
        for data in _list(consumer, "subscriptionDataSet")[:MAX_PER_HEARTBEAT]:
            expression = str(data.get("subString") or "")
            kind = str(data.get("expressionType") or TAG)
            if len(expression) > MAX_EXPRESSION and kind == TAG:
                continue  # unknown: every message goes to the client, which compares tags itself
            subscriptions[str(data["topic"])] = Subscription(
                expression[: MAX_EXPRESSION + 1],
                kind[:MAX_KIND],
                int(data.get("subVersion") or 0),
                data.get("classFilterMode") is True,
            )
        broadcast = consumer.get("messageModel") == "BROADCASTING"
        groups.append((str(consumer.get("groupName") or ""), broadcast, subscriptions))
    return str(fields.get("clientID") or ""), fields.get("withoutSub") is True, groups


def subscribed_topics(body: bytes | memoryview) -> set[str]:
    """The topics that a heartbeat subscribes to; none if it makes no sense."""
    try:
        _, _, groups = _heartbeat(body)
    except (ValueError, RecursionError):
        return set()
    return {topic for _, _, subscriptions in groups for topic in subscriptions}


def _list(fields: Any, name: str) -> list[dict[str, Any]]:
    found = fields.get(name) if isinstance(fields, dict) else None
    if found is None:
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"{name} is no list of objects")
    for item in found:
        if name == "subscriptionDataSet" and not isinstance(item.get("topic"), str):
            raise ValueError("a subscription without topic")
    return found


class Positions:
    """Where readers stand, from pulls and offset commits; told to ``tell`` (the cache keeps what somebody will reach)."""

    def __init__(
        self, clients: Clients, clock: Clock, tell: Callable[[ReaderId, str, int, int], None]
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._tell = tell
        self._told: dict[tuple[int, str | None, str | None], float] = {}

    def pull(self, fields: Mapping[str, str], connection: ConnectionInfo) -> None:
        """A pull reads from its queue offset on. One a second per connection and queue is enough."""
        key = connection.number, fields.get("topic"), fields.get("queueId")
        now = self._clock.monotonic()
        if now - self._told.get(key, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        if len(self._told) >= MAX_QUEUES:
            self._told.clear()
        self._told[key] = now
        pull = PullRequest.parse(fields)
        if pull.offset >= 0 and pull.queue_id >= 0:
            reader = self._clients.reader(connection, pull.group, pull.proxied_client)
            self._tell(reader, pull.topic, pull.queue_id, pull.offset)

    def commit(self, fields: Mapping[str, str]) -> None:
        """A group has consumed up to an offset. Broadcasting clients keep theirs to themselves."""
        queue = QueueRequest.parse(fields)
        offset = number(fields, "commitOffset")
        if queue.group and offset >= 0 and queue.queue_id >= 0:
            self._tell(ReaderId(queue.group), queue.topic, queue.queue_id, offset)


class Minimums:
    """The broker's own minimum offsets, as its answers told them last."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, int], int] = LRUCache(MAX_QUEUES)
        self._heard: dict[tuple[str, str], str] = {}

    def hear(self, topic: str, queue_id: str, offset: str) -> None:
        """``learn`` from fields as they came; most answers say what the last one said. ``Invalid`` if they make no sense."""
        key = topic, queue_id
        if self._heard.get(key) == offset:
            return
        values = {"queueId": queue_id, "minOffset": offset}
        self.learn(topic, number(values, "queueId", 32), number(values, "minOffset"))
        if len(self._heard) >= MAX_QUEUES:
            self._heard.clear()
        self._heard[key] = offset

    def learn(self, topic: str, queue_id: int, offset: int) -> None:
        """The broker said that its queue begins at ``offset``."""
        self._known[topic, queue_id] = offset
        self._heard.pop((topic, str(queue_id)), None)

    def get(self, topic: str, queue_id: int) -> int | None:
        """The last that was heard; ``None``: nothing."""
        return self._known.get((topic, queue_id))


class PopWatch:
    """POP answers as evidence: a broker that skips messages for a POP group still names the position it began at."""

    def __init__(self, minimums: Minimums, metrics: Metrics) -> None:
        self._minimums = minimums
        self._metrics = metrics
        self._told: LRUCache[tuple[str, str, int], int] = LRUCache(MAX_GROUPS)

    def look(self, request: Command, answer: Command) -> None:
        """Count a skip that this answer shows. ``Invalid`` if its fields make no sense."""
        topic, group = text(request.ext, "topic"), text(request.ext, "consumerGroup")
        for start in parse_pop_starts(answer.ext.get("startOffsetInfo", "")):
            name = (topic, f"%RETRY%{group}_{topic}", f"%RETRY%{group}+{topic}")[
                start.kind if 0 <= start.kind < 3 else 0
            ]
            minimum = self._minimums.get(name, start.queue_id)
            if minimum is None or not 0 <= start.offset < minimum:
                continue
            key = (group, name, start.queue_id)
            if self._told.get(key, -1) >= minimum:
                continue
            skipped = minimum - max(start.offset, self._told.get(key, 0))
            self._told[key] = minimum
            self._metrics.gateway_pop_skips.inc()
            self._metrics.gateway_pop_skipped_messages.inc(skipped)
            log.warning(
                "the broker skipped messages of a POP group; tiered replay can send them again",
                extra={
                    "group": group,
                    "topic": name,
                    "queue": start.queue_id,
                    "from": start.offset,
                    "to": minimum,
                },
            )
