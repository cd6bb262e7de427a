"""A Java consumer reads by routes that name read nodes, while nodes, gateways and the broker change: all comes once, in order.

The consumer is a model (``tests.kit.javaroutes``), gateways and nodes are the program without sockets, and time is the test's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.kit.fakearchive import FakeArchive
from tests.kit.gatewaydesk import BROKER, RETRY, found, offsets_of, pull
from tests.kit.gatewaykit import on_loop
from tests.kit.javaroutes import MASTER, brokers_of, whom_to_ask
from tests.kit.sendingdesk import ADDRESSES, BEGIN, CLIENT, END, PLACE, REFUSED, Sending
from tiered.clock import ManualClock
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.nodebeat import DRAINING, LIVE, NodeBeat, Vouch, beat_command
from tiered.errors import Unavailable
from tiered.gateway.routes.rewriting import with_nodes
from tiered.metrics import Metrics
from tiered.model import ArchiveCommit
from tiered.node.answers import NodeAnswers
from tiered.settings import Serve

GATEWAY = "10.0.0.1:10911"
ROUTE = b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a"}]}'
ROUTE_SECONDS = 30.0
FAILED_SECONDS = 3.0
TIMEOUT_SECONDS = 30.0
COUNT = 96
FORBIDDEN_SECONDS = 5.0
"""So long after a gateway has seen that the broker asks for rights, no node answers."""
STANDSTILL_SECONDS = 120.0
"""Two looks at the routes, and two pulls into the void."""


class Behind(FakeArchive):
    """A node's archive: it may stand at an earlier commit, with fewer messages."""

    def __init__(self) -> None:
        super().__init__()
        self.commit = PLACE.commit
        self.fill("T", 0, 0, END)

    def place(self) -> ArchiveCommit:
        return ArchiveCommit(PLACE.archive_id, self.commit)

    def reach(self, commit: int) -> Future[bool]:
        done: Future[bool] = Future()
        done.set_result(False)
        return done

    def fall_behind(self, end: int) -> None:
        self.commit = PLACE.commit - 1
        self.fill("T", 0, 0, end)

    def catch_up(self) -> None:
        self.commit = PLACE.commit
        self.fill("T", 0, 0, END)


class Node:
    """A read node and the way to it: it answers, refuses, or hangs; what was sent while it hung comes when it wakes."""

    def __init__(self, clock: ManualClock, pool: ThreadPoolExecutor) -> None:
        self.archive = Behind()
        self.state = LIVE
        self.up = True
        self.hangs = False
        self.waiting: list[Command] = []
        self._clock, self._pool = clock, pool
        self.answers: NodeAnswers
        self.start()

    def start(self) -> None:
        """A new life."""
        chosen = replace(Serve(), clients=True)
        self.answers = NodeAnswers(
            self.archive, chosen, Metrics(), self._clock, self._pool, lambda: self.state, None, BROKER
        )
        self.up, self.state, self.waiting = True, LIVE, []

    async def beat(self, seconds: float, vouch: Vouch | None = None) -> NodeBeat | None:
        if not self.up:
            raise Unavailable("connection refused")
        request = beat_command(1, "", vouch)
        if self.hangs:
            self.waiting.append(request)
            return None
        return NodeBeat.parse(self.answers.beat(request))

    def close(self) -> None:
        """Nothing."""

    def kill(self) -> None:
        self.up, self.hangs = False, False

    def hang(self) -> None:
        self.hangs = True

    def drain(self) -> None:
        self.state = DRAINING

    def wake(self) -> None:
        self.hangs = False
        for request in self.waiting:
            self.answers.beat(request)
        self.waiting = []

    def ask(self, request: Command) -> Command | float:
        """The answer; seconds until the client knows that there is none."""
        if not self.up:
            return FAILED_SECONDS
        if self.hangs:
            return TIMEOUT_SECONDS + FAILED_SECONDS
        made: list[Command] = []

        async def inner() -> None:
            made.append(await self.answers.answer(request))

        on_loop(inner())
        return made[0]


class World:
    """Two gateways of one broker and three nodes; the consumer speaks with the first gateway."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.clock = ManualClock()
        self.nodes = {address: Node(self.clock, pool) for address in ADDRESSES}
        self.gateways = [self._gateway(), self._gateway()]
        self.cut: set[str] = set()
        """Nodes that the consumer's machine cannot reach."""
        self.closed_since: float | None = None
        self.beat_at = 0.0
        self.by_nodes = 0

    def _gateway(self) -> Sending:
        made = Sending(self.nodes.__getitem__, self.clock)
        made.nodes(*ADDRESSES)
        return made

    def advance(self, seconds: float) -> None:
        """Time passes, with its beats."""
        until = self.clock.monotonic() + seconds

        async def beats() -> None:
            while self.beat_at <= until:
                self.clock.advance(max(0.0, self.beat_at - self.clock.monotonic()))
                for gateway in self.gateways:
                    await gateway.beating()
                self.beat_at = self.clock.monotonic() + 1.0

        if self.beat_at <= until:
            on_loop(beats())
        self.clock.advance(max(0.0, until - self.clock.monotonic()))

    def happen(self, what: str, which: int) -> None:
        address = ADDRESSES[which % len(ADDRESSES)]
        node = self.nodes[address]
        if what in OF_NODE:
            OF_NODE[what](node, which)
        elif what == "cut":
            self.cut.add(address)
        elif what == "restart":
            self.gateways[0].desk.close()
            self.gateways[0] = self._gateway()
            self.gateways[0].directing.sent.begin()
            self.gateways[0].closed = self.gateways[1].closed
        elif what in ("leave", "join"):
            for gateway in self.gateways:
                gateway.nodes(*(one for one in ADDRESSES if what == "join" or one != address))
        else:
            self.closed_since = self.clock.monotonic() if what == "close" else None
            for gateway in self.gateways:
                gateway.closed = "the broker asks for rights" if what == "close" else None

    def of_gateway(self, request: Command, offset: int) -> Command | str:
        """As the first gateway answers, with its broker behind it."""
        gateway = self.gateways[0]
        known = gateway.stood_in(request)
        if known is not None:
            return known
        hot = found("T", 0, range(offset, min(offset + 500, END)), BEGIN, END)
        return gateway.desk.ask(request, REFUSED if offset < BEGIN else hot)

    def of_node(self, address: str, request: Command) -> Command | float:
        if address in self.cut:
            return FAILED_SECONDS
        answer = self.nodes[address].ask(request)
        if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
            self.by_nodes += 1
            closed = self.closed_since
            assert closed is None or self.clock.monotonic() - closed <= FORBIDDEN_SECONDS, (
                "rights were not asked"
            )
        return answer

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.desk.close()


def read(world: World, events: dict[int, list[tuple[str, int]]], pace: float) -> list[int]:
    """Read everything; the offsets that came, in order."""
    offset, suggested, came = 0, MASTER, []
    routed, brokers, progress, steps = -ROUTE_SECONDS, dict[int, str](), 0.0, 0
    while offset < END:
        for what, which in events.get(steps, ()):
            world.happen(what, which)
        steps += 1
        now = world.clock.monotonic()
        assert now - progress < STANDSTILL_SECONDS, f"it stands still at {offset}"
        if now - routed >= ROUTE_SECONDS:
            route = with_nodes(ROUTE, BROKER, world.gateways[0].directing.routes(CLIENT))
            routed, brokers = now, brokers_of(route, BROKER)
        address = whom_to_ask(brokers, suggested)
        request = pull(offset=offset, count=COUNT)
        answer: Any = (
            world.of_gateway(request, offset) if address == GATEWAY else world.of_node(address, request)
        )
        if answer == RETRY:
            world.advance(FAILED_SECONDS)
            continue
        if isinstance(answer, float):
            world.advance(answer)
            continue
        suggested, following = int(answer.ext["suggestWhichBrokerId"]), int(answer.ext["nextBeginOffset"])
        assert int(answer.ext["maxOffset"]) > offset, "a program that takes it for the end would stop"
        if answer.code == ResponseCode.SUCCESS:
            came += offsets_of(answer)
            progress = now
        else:
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert following == offset, "nobody filters here"
        offset = following
        world.advance(pace)
    return came


OF_NODE: dict[str, Callable[[Node, int], None]] = {
    "kill": lambda node, which: node.kill(),
    "start": lambda node, which: node.start(),
    "hang": lambda node, which: node.hang(),
    "wake": lambda node, which: node.wake(),
    "drain": lambda node, which: node.drain(),
    "behind": lambda node, which: node.archive.fall_behind(which * 37 % END),
    "catch up": lambda node, which: node.archive.catch_up(),
}
KINDS = (*OF_NODE, "cut", "restart", "leave", "join", "close", "open")


UNREACHABLE = [(2, "cut", which) for which in range(3)]


@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@example([*UNREACHABLE, (3, "restart", 0)], 0.4)
@example([(2, "kill", 0), (2, "kill", 1), (2, "kill", 2)], 0.4)
@example(
    [(1, "hang", 0), (1, "hang", 1), (1, "hang", 2), (3, "close", 0), (4, "wake", 0), (4, "wake", 1)], 0.05
)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(KINDS), st.integers(0, 80)), max_size=14),
    st.sampled_from([0.05, 0.4, 1.1]),
)
def test_whatever_happens_everything_comes_once_and_in_order(
    happens: list[tuple[int, str, int]], pace: float
) -> None:
    events: dict[int, list[tuple[str, int]]] = {}
    for step, what, which in happens:
        events.setdefault(step, []).append((what, which))
    with ThreadPoolExecutor(1) as pool:
        world = World(pool)
        try:
            assert read(world, events, pace) == list(range(END))
        finally:
            world.close()


def test_where_nothing_happens_nodes_read_nearly_all_that_is_cold() -> None:
    with ThreadPoolExecutor(1) as pool:
        world = World(pool)
        assert read(world, {}, 0.05) == list(range(END))
        assert world.by_nodes > (BEGIN // COUNT) * 2 // 3
        world.close()
