"""Where messages may go: the writable queues of the target topic, by the name servers' word, and which one a message takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiered.broker.client import Dial, RemotingClient, Request
from tiered.clock import Clock
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt, NotFound, TieredError, Unavailable

_WRITE = 2  # of a topic's permissions
_MASTER = "0"
_MOST_QUEUES = 100_000


@dataclass(frozen=True, slots=True)
class TargetQueue:
    """One queue of the target topic, and its broker's master."""

    broker: str
    address: str
    queue_id: int


class Route:
    """The writable queues, in order of broker and number; at least one."""

    def __init__(self, targets: Sequence[TargetQueue]) -> None:
        self._all = tuple(sorted(targets, key=lambda t: (t.broker, t.queue_id)))
        self._of: dict[str, list[TargetQueue]] = {}
        for target in self._all:
            self._of.setdefault(target.broker, []).append(target)

    def same(self, broker: str, queue_id: int) -> TargetQueue:
        """The queue for a source queue's messages: of the same broker if it has the topic, else of all; modulo their number."""
        mine = self._of.get(broker, self._all)
        return mine[queue_id % len(mine)]

    def at(self, number: int) -> TargetQueue:
        """The queue of a number, modulo theirs."""
        return self._all[number % len(self._all)]


def parse_route(body: bytes, topic: str) -> Route:
    """The route of an answer. ``NotFound`` if no queue of it can be written to, ``Corrupt`` if it is not a route."""
    try:
        told = decode_json(body)
        masters = dict(_masters(told))
        targets = list(_targets(told, masters))
    except (Corrupt, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            "a name server's answer is not a route", topic=topic, found=f"{type(error).__name__}: {error}"[:200],
            hint="check that the address given is that of a RocketMQ name server",
        ) from error  # fmt: skip
    if not targets:
        raise NotFound(
            "the target topic has no queue that can be written to", topic=topic,
            hint="start a master that has the topic, and give the topic the permission to write (perm 6)",
        )  # fmt: skip
    return Route(targets)


def _masters(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for broker in told["brokerDatas"]:
        if _MASTER in broker["brokerAddrs"]:
            yield str(broker["brokerName"]), str(broker["brokerAddrs"][_MASTER])


def _targets(told: Mapping[str, Any], masters: Mapping[str, str]) -> Iterator[TargetQueue]:
    for queues in told["queueDatas"]:
        name, count = str(queues["brokerName"]), int(queues["writeQueueNums"])
        if not 0 <= count <= _MOST_QUEUES:
            raise ValueError(f"writeQueueNums {count}")
        if int(queues["perm"]) & _WRITE and name in masters:
            yield from (TargetQueue(name, masters[name], number) for number in range(count))


class Routes:
    """Asks the name servers in turn."""

    def __init__(self, name_servers: Sequence[str], topic: str, clock: Clock, dial: Dial) -> None:
        self._topic = topic
        self._servers = [RemotingClient(address, clock, dial) for address in name_servers]

    def ask(self) -> Route:
        """The route as it is now. ``Unavailable`` if no name server answers, ``NotFound`` if they do not know the topic; of a
        server that answers with an error, the next is asked."""
        worst: TieredError | None = None
        for server in list(self._servers):
            fields = {"topic": self._topic, "acceptStandardJsonOnly": True}
            server.begin([Request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)])
            [answer] = server.end()
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                return parse_route(bytes(answer.body), self._topic)
            self._servers.append(self._servers.pop(0))  # the next one begins from now on
            if answer is None:
                worst = worst or Unavailable(
                    "no name server answers", found=server.trouble, address=server.address,
                    hint="check that a name server runs at the address given, and can be reached from here",
                )  # fmt: skip
            elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
                worst = NotFound(
                    "the target topic does not exist", topic=self._topic, found=server.without_keys(answer.remark or "")[:200],
                    hint="create it (mqadmin updateTopic), or name another topic",
                )  # fmt: skip
            else:
                worst = Unavailable(
                    "a name server refused to tell the route", code=answer.code, topic=self._topic,
                    found=server.without_keys(answer.remark or "")[:200],
                    hint="see the name server's log, and check the rights there",
                )  # fmt: skip
        assert worst is not None
        raise worst

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.close()
