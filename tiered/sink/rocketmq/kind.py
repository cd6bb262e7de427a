"""The kind *rocketmq*: its options, and how it is opened."""

from __future__ import annotations

from tiered.broker.client import Dial
from tiered.broker.tls import client_context
from tiered.clock import Clock, SystemClock
from tiered.codec.remoting.signing import Credentials
from tiered.errors import Invalid, Refused
from tiered.sink.base import Sink
from tiered.sink.comparison.base import ReadBack
from tiered.sink.deadletters import dead_letters_of
from tiered.sink.kinds import SinkPlace
from tiered.sink.optionvalues import known_options, needed, number_of, refuse_order, switch_of
from tiered.sink.order import SinkOrder
from tiered.sink.rocketmq.cluster import DestinationCluster
from tiered.sink.rocketmq.reading import BrokerReadBack
from tiered.sink.rocketmq.sink import BrokerSending, BrokerSink
from tiered.text.addresses import split_address
from tiered.text.references import resolve

OPTIONS = (
    "name_servers", "create_topics", "queues", "same_names", "access_key", "secret_key", "tls", "ca_file", "timeout_ms",
    "attempts", "dead_letters",
)  # fmt: skip


class BrokerKind:
    """``name_servers``: host:port, several joined with ``;``; ``create_topics`` with at least ``queues`` queues; a key pair of
    the destination's ACL as ``env:NAME`` or ``file:PATH``; ``tls`` with ``ca_file``; ``dead_letters``: for messages that the
    brokers refuse; ``same_names``: the destination is another broker although cluster and broker have the source's names."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def check(self, order: SinkOrder) -> None:
        known_options(order, OPTIONS)
        refuse_order(order, "queues of brokers have no order among each other")
        switch_of(order, "same_names", default=False)
        self._attempts(order)
        cluster = self._cluster(order)
        dead_letters = dead_letters_of(order)
        if dead_letters is not None:
            dead_letters.close()
        cluster.brokers()

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        cluster = self._cluster(order)
        same = [b for b in cluster.brokers() if (b.cluster, b.name) == (place.cluster, place.broker)]
        if same and not switch_of(order, "same_names", default=False):
            raise Refused(
                "a sink would feed its own source: a broker of these names is registered there",
                found=f"{place.cluster}/{place.broker} at {next(iter(same[0].addresses.values()), 'no address')}",
                hint="name the name servers of another cluster; if it is another broker of the same names, same_names=true",
            )  # fmt: skip
        sending = BrokerSending(f"tiered-sink-{place.name}", self._attempts(order))
        dead_letters = dead_letters_of(order, make=True)
        return BrokerSink(cluster, place, self._clock, self._dial(order), sending, dead_letters)

    def check_parts(self, order: SinkOrder) -> bool:
        """As of ``PartedKind``. Parts that make one topic at the same time might give it different numbers of queues."""
        if switch_of(order, "create_topics", default=True):
            raise Invalid(
                "brokers are given to by several processes only where their topics are there", field="options.create_topics",
                expected="false", found="true", hint="make them there (mqadmin updateTopic), and add the sink with "
                "create_topics=false; or leave its history to the daemon",
            )  # fmt: skip
        return False

    def read_back(self, order: SinkOrder, place: SinkPlace) -> ReadBack:
        """As of ``ReadableKind``."""
        cluster, dial = self._cluster(order), self._dial(order)
        return BrokerReadBack(cluster, place, self._clock, dial, dead_letters_of(order))

    def _attempts(self, order: SinkOrder) -> int:
        return number_of(order, "attempts", 8, least=1, most=1000)

    def _cluster(self, order: SinkOrder) -> DestinationCluster:
        text = needed(order, "name_servers", "host:9876;host:9876")
        servers = [part.strip() for part in text.split(";") if part.strip()]
        for server in servers:
            split_address(server, key="options.name_servers")
        queues = number_of(order, "queues", 8, least=1, most=1024)
        creates = switch_of(order, "create_topics", default=True)
        return DestinationCluster(servers, self._clock, self._dial(order), queues if creates else 0)

    def _dial(self, order: SinkOrder) -> Dial:
        given = {name: resolve(order.options.get(name, "")) for name in ("access_key", "secret_key")}
        if bool(given["access_key"]) != bool(given["secret_key"]):
            raise Invalid(
                "a key pair has two keys", field="options.access_key", hint="give access_key and secret_key"
            )
        keys = Credentials(**given) if given["access_key"] else None
        context = None
        if switch_of(order, "tls", default=False):
            context = client_context(
                order.options.get("ca_file", ""), refusal="options.ca_file cannot be used",
                hint="name a file of certificates",
            )  # fmt: skip
        seconds = number_of(order, "timeout_ms", 5_000, least=10, most=600_000) / 1000
        return Dial(timeout_seconds=seconds, context=context, credentials=keys, section="")
