"""Who of a gateway's consumers was sent to which read node, who came back with nothing, and who was not heard of again.

A consumer that cannot reach the node that it was sent to asks it again and again: nothing comes here that would say so. A
node sends everybody back once in ``gateway.cold_recheck_ms``; who stays away for much longer takes in slowly, or stands still.
Which of both cannot be seen from here, so to that machine the node is not named any more for a while: with its next look at
the routes, each 30 s, a client that has lost the node asks the master.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.gateway.knowledge.peers import LOST, ROUTED, Peers
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.transport.limits import Sparse
from tiered.metrics import Metrics
from tiered.model import MessageQueue

log = logging.getLogger("tiered.gateway")

Reader = tuple[str, MessageQueue]
"""A group and what it reads; groups of one process share its connection."""

MAX_SENT = 65_536
"""Consumers of queues that are told apart; one more is not sent anywhere."""

COUNT_SECONDS = 1.0
"""Between two looks at all of them."""

LOST_SECONDS = 15.0
"""How much longer than until a node sends it back a consumer may stay away."""

START_SECONDS = 45.0
"""After a start of this process nobody is told of any node for so long: who was sent to one in the life before, and cannot
reach it, loses it with its next look at the routes."""

RESTS = (1.0, 60.0)
"""How long a consumer that came back with nothing is not sent again, in seconds: at first, and at most."""

EVERYBODY = "*"
"""As the machine that is not told."""

UNNAMED = (300.0, 86_400.0)
"""How long a node is not named to a machine whose consumers it lost, in seconds: at first, and at most."""

MAX_UNNAMED = 4096

ROUTED_SECONDS = 90.0
"""A machine that did not ask for routes for so long, by this address, is not reached by what routes say to it."""

MAX_HOSTS = 65_536


@dataclass(slots=True)
class _Sent:
    """A consumer that was sent to ``node``, an address, to go on at ``offset``. ``until``: when the node sends it back at the
    latest. ``rest``: seconds that it is kept here, because it came back from there with nothing, until ``again``."""

    host: str
    node: str
    offset: int
    until: float
    rest: float = 0.0
    again: float = 0.0
    away: bool = True
    lost: bool = False
    counted: bool = True


class SentConsumers:
    """On the event loop, but for ``unnamed``."""

    def __init__(self, clock: Clock, metrics: Metrics, peers: Peers, away_seconds: float) -> None:
        """``away_seconds``: after which a node sends everybody back. ``peers`` hear what was lost."""
        self._clock = clock
        self._metrics = metrics
        self._peers = peers
        self._away = away_seconds
        self._sent: dict[int, dict[Reader, _Sent]] = {}
        self._many = 0
        self._lost: dict[tuple[str, str], tuple[float, float]] = {}  # no cache's, for other threads look, too
        self._routed: LRUCache[str, float] = LRUCache(MAX_HOSTS)
        self._counts: Counter[str] = Counter()
        self._look_at = 0.0
        self._quiet_until = 0.0
        self._sparse = Sparse()

    def begin(self) -> None:
        """This process has started, or this worker of one: whom the life before had sent where is not known."""
        self.hear("", "", START_SECONDS)
        self._peers.tell(LOST, ("", ""), START_SECONDS)

    def send(self, connection: ConnectionInfo, reader: Reader, node: str, offset: int) -> bool:
        """The consumer is to ask ``node``, an address, for ``offset``; ``False``: there are too many of them."""
        mine = self._sent.setdefault(connection.number, {})
        before = mine.get(reader)
        if before is None and self._many >= MAX_SENT:
            return False
        self._many += before is None
        until = self._clock.monotonic() + self._away
        mine[reader] = _Sent(host_of(connection.client), node, offset, until, before.rest if before else 0.0)
        self._counts[node] += 1
        self._metrics.gateway_directed.labels("sent").inc()
        return True

    def knows(self, connection: ConnectionInfo) -> bool:
        """Whether consumers of this connection were sent anywhere."""
        return connection.number in self._sent

    def came(self, connection: ConnectionInfo, reader: Reader, offset: int) -> None:
        """The consumer asks here, for ``offset``. One that stands where it was sent from got nothing there."""
        mine = self._sent.get(connection.number, {})
        sent = mine.get(reader)
        if sent is None or not sent.away:
            return
        self._counts[sent.node] -= sent.counted
        if offset != sent.offset:
            self._lost.pop((sent.host, sent.node), None)  # it can be reached from there
            self._lost.pop((EVERYBODY, sent.node), None)
            self._many -= 1
            del mine[reader]
            return
        sent.away = sent.counted = False
        sent.rest = min(2 * sent.rest, RESTS[1]) if sent.rest else RESTS[0]
        sent.again = self._clock.monotonic() + sent.rest
        self._metrics.gateway_directed.labels("came_back").inc()

    def rests(self, connection: ConnectionInfo, reader: Reader) -> bool:
        """Whether a consumer that is here is to stay."""
        sent = self._sent.get(connection.number, {}).get(reader)
        return sent is not None and sent.again > self._clock.monotonic()

    def closed(self, connection: ConnectionInfo) -> None:
        """Nobody is there any more who could come back."""
        self._many -= len(self._sent.pop(connection.number, ()))

    def look(self) -> None:
        """Who was not heard of; and count who is where. Not more often than each second."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + COUNT_SECONDS
        self._counts = Counter()
        for mine in self._sent.values():
            for sent in mine.values():
                sent.counted = sent.away and sent.until > now
                self._counts[sent.node] += sent.counted
                if sent.away and not sent.lost and sent.until + LOST_SECONDS <= now:
                    sent.lost = True
                    self._lose(sent, now)

    def counts(self) -> Mapping[str, int]:
        """How many are at each node, by its address; those for whom it is time to come back are not counted."""
        return self._counts

    def hear(self, host: str, node: str, seconds: float) -> None:
        """Another worker of this gateway lost consumers; without a host, it has started."""
        if not host:
            self._quiet_until = max(self._quiet_until, self._clock.monotonic() + seconds)
            return
        self._unname(host, node, seconds)

    def routed(self, host: str) -> None:
        """A client of ``host`` asks for a route."""
        now = self._clock.monotonic()
        if now - self._routed.get(host, -ROUTED_SECONDS) >= ROUTED_SECONDS / 3:
            self._routed[host] = now
            self._peers.tell(ROUTED, (host,), True)

    def hear_routed(self, host: str) -> None:
        """One did at another worker."""
        self._routed[host] = self._clock.monotonic()

    def may_name(self, host: str, node: str) -> bool:
        """Whether clients of ``host`` are told of the node at all."""
        until, _ = max(self._lost.get((one, node), (0.0, 0.0)) for one in (host, EVERYBODY))
        return max(until, self._quiet_until) <= self._clock.monotonic()

    def quiet(self) -> float:
        """For how many seconds yet nobody is told of any node. From any thread."""
        return max(0.0, self._quiet_until - self._clock.monotonic())

    def unnamed(self) -> list[str]:
        """Nodes that are not named to somebody now, each as *node to host*. From any thread."""
        now = self._clock.monotonic()
        found = tuple(self._lost.items())
        return sorted(f"{node} to {host}" for (host, node), (until, _) in found if until > now)

    # ---- inside

    def _unname(self, host: str, node: str, seconds: float) -> None:
        self._lost.pop((host, node), None)
        self._lost[host, node] = (self._clock.monotonic() + seconds, seconds)
        if len(self._lost) > MAX_UNNAMED:
            del self._lost[next(iter(self._lost))]  # the one told longest ago

    def _lose(self, sent: _Sent, now: float) -> None:
        self._metrics.gateway_directed.labels("lost").inc()
        # Who asks for routes by another address can only be told with everybody.
        seen = now - self._routed.get(sent.host, -ROUTED_SECONDS) < ROUTED_SECONDS
        host = sent.host if seen else EVERYBODY
        until, before = self._lost.get((host, sent.node), (0.0, 0.0))
        if until > now:
            return
        seconds = min(2 * before, UNNAMED[1]) if before else UNNAMED[0]
        self._unname(host, sent.node, seconds)
        self._peers.tell(LOST, (host, sent.node), seconds)
        unsaid = self._sparse.due("lost", now)
        if unsaid is not None:
            log.warning(
                "a consumer was sent to a read node and is not heard of: it takes in slowly, or cannot reach the node;"
                " routes do not name the node for a while",
                extra={
                    "client": sent.host,
                    "to": host,
                    "node": sent.node,
                    "seconds": seconds,
                    "unsaid": unsaid,
                },
            )


def host_of(address: str) -> str:
    """Of host:port, the host."""
    return address.rpartition(":")[0]
