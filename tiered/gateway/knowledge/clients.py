"""Who subscribes to what: groups and clients, as heartbeats tell them. On the event loop only; tables are of bounded size."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from tiered.codec.remoting.codes import TAG, RequestCode
from tiered.fetch.base import ReaderId
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")

MAX_CONNECTIONS = 65_536
MAX_PER_HEARTBEAT = 4096
"""Groups of a heartbeat, and topics of a group, that are looked at."""
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
            self._subscribed(name, broadcast, subscriptions)
        self._clients[connection.number] = client
        return [self.reader(connection, name) for name in client.groups]

    def _subscribed(self, name: str, broadcast: bool, subscriptions: dict[str, Subscription]) -> None:
        """What a group wants from now on; of each topic the newer of what is known and what comes."""
        known = self._groups.get(name)
        for topic, subscription in (known.subscriptions if known is not None else {}).items():
            newer = subscriptions.get(topic)
            if newer is not None and newer.version < subscription.version:
                subscriptions[topic] = subscription
        group = _Group(broadcast, subscriptions, _size(name, subscriptions))
        if group.size <= self._groups.maxsize:
            self._groups[name] = group
        else:
            self._groups.pop(name, None)

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
        raise ValueError(f"{name} is not a list of objects")
    for item in found:
        if name == "subscriptionDataSet" and not isinstance(item.get("topic"), str):
            raise ValueError("a subscription without topic")
    return found
