"""The brokers of a destination, by the word of its name servers: who they are, and topics made at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiered.broker.client import Dial, RemotingClient, Request
from tiered.broker.questions import Broker
from tiered.broker.routes import Route, Routes
from tiered.clock import Clock
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt, Invalid, NotFound, Unavailable
from tiered.sink.rocketmq.carried import BrokerOrigin

_MASTER = "0"
_ROUTE_TRIES = 20
_ROUTE_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker name of a cluster: ``addresses`` by broker id, ``0`` the master."""

    cluster: str
    name: str
    addresses: dict[str, str]

    @property
    def master(self) -> str | None:
        """Its address; ``None``: there is none now."""
        return self.addresses.get(_MASTER)


def brokers_in(body: bytes) -> tuple[KnownBroker, ...]:
    """The brokers of a name server's answer. ``Corrupt`` if it is none."""
    try:
        told = decode_json(body)
        clusters = {name: cluster for cluster, names in told["clusterAddrTable"].items() for name in names}
        return tuple(
            KnownBroker(str(clusters.get(name, data.get("cluster", ""))), str(name), {
                str(number): str(address) for number, address in data["brokerAddrs"].items()
            })
            for name, data in sorted(told["brokerAddrTable"].items())
        )  # fmt: skip
    except (Corrupt, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            "a name server's answer is not a table of brokers", found=f"{type(error).__name__}: {error}"[:200],
            hint="check that the address given is that of a RocketMQ name server",
        ) from error  # fmt: skip


class DestinationCluster:
    """``create_queues``: topics that are missing are made with at least so many queues; 0: they are not made."""

    def __init__(self, name_servers: Sequence[str], clock: Clock, dial: Dial, create_queues: int) -> None:
        self._name_servers, self._clock, self._dial = tuple(name_servers), clock, dial
        self._create_queues = create_queues

    def brokers(self) -> tuple[KnownBroker, ...]:
        """Those that are registered now, at least one. ``Unavailable``."""
        trouble = ""
        for address in self._name_servers:
            server = RemotingClient(address, self._clock, self._dial)
            try:
                server.begin([Request(RequestCode.GET_BROKER_CLUSTER_INFO, {"acceptStandardJsonOnly": True})])
                [answer] = server.end()
            finally:
                server.close()
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                found = brokers_in(bytes(answer.body))
                if found:
                    return found
                trouble = "no broker is registered"
            else:
                trouble = server.trouble or f"code {answer.code if answer else None}"
        raise Unavailable(
            "the name servers of a sink's destination tell no broker", found=trouble,
            address=";".join(self._name_servers),
            hint="check name_servers, and that brokers run there and can be reached from here",
        )  # fmt: skip

    def origins(self) -> frozenset[str]:
        """Every broker there, as messages carry it."""
        return frozenset(
            str(BrokerOrigin(broker.cluster, broker.name, address))
            for broker in self.brokers()
            for address in broker.addresses.values()
        )

    def route(self, topic: str, queues: int) -> Route:
        """Where messages of a topic go; the topic is made, with ``queues`` queues or more, where that is asked for.

        ``Invalid`` if it is not there, or cannot be made; ``Unavailable``."""
        routes = Routes(self._name_servers, topic, self._clock, self._dial)
        try:
            try:
                return routes.ask()
            except NotFound as error:
                if not self._create_queues:
                    raise Invalid(
                        "the destination of a sink does not have a topic that can be written to", topic=topic,
                        found=error.message,
                        hint="make it there (mqadmin updateTopic), leave it out (--exclude), or set create_topics=true",
                    ) from error  # fmt: skip
            self._create(topic, max(queues, self._create_queues))
            for _ in range(_ROUTE_TRIES):  # brokers tell their name servers at once, but these take a moment
                try:
                    return routes.ask()
                except NotFound:
                    self._clock.wait(_ROUTE_PAUSE_SECONDS)
            raise Unavailable("a topic that was made has no route yet", topic=topic)
        finally:
            routes.close()

    def _create(self, topic: str, queues: int) -> None:
        for known in self.brokers():
            address = known.master
            if address is None:
                continue
            client = RemotingClient(address, self._clock, self._dial)
            try:
                Broker(client).create_topic(topic, queues)
            except Unavailable as error:
                if "code" not in error.fields:  # no answer at all
                    raise
                raise Invalid(
                    "the destination of a sink does not make a topic", topic=topic, found=error.said[:300],
                    hint="make it there (mqadmin updateTopic), or leave it out (--exclude)",
                ) from error  # fmt: skip
            finally:
                client.close()
