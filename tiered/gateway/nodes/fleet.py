"""The read nodes of a gateway: who is there, who of them is asked, who is left alone and why.

A node is asked while it is live by its own word, knows a version of questions that this program does, answers heartbeats
(``phi``), is not slow beside the others (``slow``) and did not just fail. Each change of that is said once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.codec.remoting.nodebeat import (
    DRAINING,
    FIRST_WIRE,
    JOINING,
    LAST_WIRE,
    LIVE,
    NodeBeat,
    common_wire,
)
from tiered.errors import Refused, TieredError
from tiered.gateway.nodes.bounded import first_with_room
from tiered.gateway.nodes.connection import NodeConnection
from tiered.gateway.nodes.phi import PhiAccrual
from tiered.gateway.nodes.placement import preferred
from tiered.gateway.nodes.slow import ReadTimes, slow_ones
from tiered.metrics import Metrics
from tiered.model import MessageQueue

log = logging.getLogger("tiered.gateway")

AGAIN = Backoff(1.0, 30.0)
"""How long a node whose read failed is left alone."""

BEAT_SECONDS_MOST = 10.0
"""How long one beat is waited for before another one is sent."""

GRACE_BEATS = 2


class Standing(Enum):
    """What a node is to this gateway; only the first one is asked."""

    LIVE = "live"
    JOINING = "joining"  # its archive is not open
    DRAINING = "draining"  # it leaves
    UNFIT = "unfit"  # no version of questions in common
    AWAY = "away"  # cannot be reached, or is silent
    SLOW = "slow"
    FAILED = "failed"  # its last read was no answer


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node as a list or a registry names it. ``state``: its own word; ``wire_from`` to ``wire_to``: versions of questions."""

    name: str
    address: str
    capacity: int = 1
    state: str = LIVE
    wire_from: int = FIRST_WIRE
    wire_to: int = FIRST_WIRE


@dataclass(slots=True)
class ReadNode:
    """One node. ``problem``: why its last read failed; it rests until ``again_at`` (monotonic seconds). ``away``: why it
    cannot be reached; ``None``: it can. ``reads``: under way."""

    place: NodePlace
    connection: NodeConnection
    phi: PhiAccrual
    times: ReadTimes = field(default_factory=ReadTimes)
    reads: int = 0
    beat: NodeBeat | None = None
    beating: bool = False
    away: str | None = None
    again_at: float = 0.0
    problem: str | None = None
    pauses: Iterator[float] = field(default_factory=AGAIN.pauses)
    said: Standing = Standing.LIVE

    @property
    def name(self) -> str:
        """As it calls itself, or its address."""
        return self.place.name

    @property
    def wire(self) -> tuple[int, int]:
        """Versions of questions that it understands: by its beat, else by what the registry says."""
        place = self.place
        return (
            (place.wire_from, place.wire_to)
            if self.beat is None
            else (self.beat.wire_from, self.beat.wire_to)
        )

    def standing(self, now: float) -> tuple[Standing, str]:
        """What it is at ``now``, and why."""
        own = self.place.state if self.beat is None else self.beat.state
        low, high = self.wire
        if DRAINING in (own, self.place.state):
            return Standing.DRAINING, "it drains, and leaves"
        if own == JOINING:
            return Standing.JOINING, "its archive is not open"
        if common_wire(low, high) is None:
            known = f"this gateway {FIRST_WIRE} to {LAST_WIRE}"
            return (
                Standing.UNFIT,
                f"it understands versions {low} to {high} of questions, {known}: upgrade the older one",
            )
        if self.away is not None:
            return Standing.AWAY, self.away
        if self.times.rests_until > now:
            return (
                Standing.SLOW,
                f"its reads are slow beside the others': it rests {self.times.rests_until - now:.0f} s",
            )
        if self.again_at > now:
            return Standing.FAILED, self.problem or "it failed"
        return Standing.LIVE, self.problem or "answers"


class NodeFleet:
    """On the event loop only, but for what says otherwise."""

    def __init__(
        self,
        connect: Callable[[str], NodeConnection],
        clock: Clock,
        metrics: Metrics,
        *,
        node_seconds: float,
        beat_seconds: float = 1.0,
        most_phi: float = 8.0,
        slow_factor: float = 0.0,
        load_percent: int = 25,
    ) -> None:
        """``connect`` makes the way to an address. ``node_seconds``: what a node has for an answer; ``load_percent``: ε."""
        self._connect = connect
        self._clock = clock
        self._metrics = metrics
        self._node_seconds = node_seconds
        self._beat_seconds = beat_seconds
        self._most_phi = most_phi
        self._slow_factor = slow_factor
        self._load_percent = load_percent
        self._nodes: dict[str, ReadNode] = {}
        self._beats: set[asyncio.Task[None]] = set()
        self._watching = False
        self.homes: Mapping[int, str] = {}
        """Nodes of busy queues by a table of placement; set from any thread, as a whole."""

    def __len__(self) -> int:
        return len(self._nodes)

    def set_nodes(self, places: Sequence[NodePlace]) -> None:
        """Who is there from now on. One that goes is asked no more, and still answers what it was asked."""
        before = self._nodes
        made: dict[str, ReadNode] = {}
        for place in places:
            node = before.get(place.name)
            if node is None or node.place.address != place.address:
                phi = PhiAccrual(self._beat_seconds, GRACE_BEATS * self._beat_seconds)
                node = ReadNode(place, self._connect(place.address), phi)
                if self._watching:
                    phi.began(self._clock.monotonic())
            node.place = place
            made[place.name] = node
        self._nodes = made
        for name, node in before.items():
            if made.get(name) is not node:
                asyncio.get_running_loop().call_later(self._node_seconds, node.connection.close)
        for node in made.values():
            self._say(node)

    def close(self) -> None:
        """Hang up everywhere."""
        for task in tuple(self._beats):
            task.cancel()
        for node in self._nodes.values():
            node.connection.close()

    def choose(self, queue: MessageQueue, asked: Collection[str]) -> ReadNode | None:
        """Whom to ask for the queue: the first in its order that has room, but nobody of ``asked``."""
        now, nodes = self._clock.monotonic(), self._nodes
        live = [
            name
            for name, node in nodes.items()
            if name not in asked and node.standing(now)[0] is Standing.LIVE
        ]
        capacity = {name: nodes[name].place.capacity for name in live}
        order = preferred(queue, live, self.homes, capacity)
        name = first_with_room(
            order,
            {name: nodes[name].reads for name in order},
            capacity,
            self._load_percent,
        )
        return None if name is None else nodes[name]

    def answered(self, node: ReadNode) -> None:
        """It gave what it has."""
        node.problem, node.again_at, node.pauses = None, 0.0, AGAIN.pauses()
        self._say(node)

    def failed(self, node: ReadNode, problem: str) -> None:
        """Many reads fail at once when a node dies: they count as one."""
        now = self._clock.monotonic()
        if node.again_at > now:
            return
        node.again_at = now + next(node.pauses)
        node.problem = problem
        self._say(node)

    # ---- who is there

    async def watch(self) -> None:
        """Heartbeats, and judgement by them and by times of reads, for ever."""
        self._watching = True
        for node in self._nodes.values():
            node.phi.began(self._clock.monotonic())
        while True:
            began = self.ask_beats()
            await asyncio.sleep(self._beat_seconds)
            self.woke(began)

    def ask_beats(self) -> float:
        """Ask everybody for a heartbeat who has answered the last; the time now."""
        for node in self._nodes.values():
            if not node.beating:
                self._begin_beat(node)
        return self._clock.monotonic()

    def woke(self, began: float) -> None:
        """Judge, a beat after ``began``. Much later this process was not there: nobody was silent meanwhile."""
        late = self._clock.monotonic() - began - self._beat_seconds
        if late > self._beat_seconds:
            for node in self._nodes.values():
                node.phi.slept(late)
        self.judge()

    def judge(self) -> None:
        """Take out who is silent or slow."""
        now, nodes = self._clock.monotonic(), self._nodes
        for node in nodes.values():
            phi = node.phi.phi(now)
            if node.away is None and phi > self._most_phi:
                node.away = f"it is silent (phi {phi:.1f})"
        live = {name: node.times for name, node in nodes.items() if node.away is None}
        for name, (own, others) in slow_ones(live, self._slow_factor, now).items():
            seconds = nodes[name].times.rest(now)
            log.info(
                "a read node is slow",
                extra={"node": name, "median_ms": round(own * 1000), "others_ms": round(others * 1000), "rests_s": seconds},
            )  # fmt: skip
        for node in nodes.values():
            self._say(node)

    def heard(self, node: ReadNode, beat: NodeBeat | None) -> None:
        """A beat was answered; without ``beat`` it is only known to be there."""
        now = self._clock.monotonic()
        if node.away is not None:
            node.away = None
            node.phi.began(now)
        node.phi.heard(now)
        node.beat = beat or node.beat
        self._say(node)

    def _begin_beat(self, node: ReadNode) -> None:
        node.beating = True
        task = asyncio.get_running_loop().create_task(self._beat(node))
        self._beats.add(task)
        task.add_done_callback(self._beats.discard)

    async def _beat(self, node: ReadNode) -> None:
        try:
            beat = await node.connection.beat(max(BEAT_SECONDS_MOST, 2 * self._beat_seconds))
            if beat is not None:  # without an answer phi grows
                self.heard(node, beat)
        except Refused:  # it is there; what becomes of reads says why
            self.heard(node, None)
        except TieredError as error:
            node.away = str(error)
            self._say(node)
        finally:
            node.beating = False

    def _say(self, node: ReadNode) -> None:
        standing, why = node.standing(self._clock.monotonic())
        if standing is Standing.LIVE and node.problem is not None:
            standing = Standing.FAILED  # until it has answered
        if standing is node.said:
            return
        node.said = standing
        extra = {"node": node.name, "state": standing.value}
        if standing is Standing.LIVE:
            log.info("a read node is asked again", extra=extra)
        else:
            log.warning("a read node is left alone: %s", why, extra=extra)

    # ---- what is shown; from any thread

    def nodes(self) -> dict[str, str]:
        """Every node, and why it is not asked; ``answers`` if it is. From any thread."""
        now = self._clock.monotonic()
        return {node.name: node.standing(now)[1] for node in tuple(self._nodes.values())}

    def status(self) -> list[Mapping[str, object]]:
        """What is known of each. From any thread."""
        now = self._clock.monotonic()
        return [_shown(node, now) for node in tuple(self._nodes.values())]

    def publish(self) -> None:
        """Nodes by what they are. From any thread."""
        now = self._clock.monotonic()
        found = [node.standing(now)[0] for node in tuple(self._nodes.values())]
        for standing in Standing:
            self._metrics.gateway_nodes.labels(standing.value).set(found.count(standing))


def _shown(node: ReadNode, now: float) -> Mapping[str, object]:
    standing, why = node.standing(now)
    found = node.times.median(now)
    return {
        "name": node.name,
        "address": node.place.address,
        "state": standing.value,
        "said": why,
        "version": "" if node.beat is None else node.beat.version,
        "wire": list(node.wire),
        "capacity": node.place.capacity,
        "reads": node.reads,
        "phi": round(node.phi.phi(now), 2),
        "median_ms": None if found is None else round(found * 1000, 1),
    }
