"""A gateway that sends consumers to read nodes, without sockets: its answers, and a fleet whose beats are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from tests.kit.gatewaydesk import Desk, fields, too_small
from tests.kit.gatewaykit import on_loop
from tiered.clock import ManualClock
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.nodebeat import LAST_WIRE, NodeBeat, Vouch
from tiered.gateway.nodes.connection import NodeConnection
from tiered.gateway.nodes.fleet import NodeFleet, NodePlace
from tiered.gateway.pull.directing import NODES
from tiered.model import ArchiveCommit

PLACE = ArchiveCommit(bytes(range(16)), 41)
CLIENT = "10.0.0.9:50000"
END = 3000
BEGIN = 2000
"""Of the broker's queue; the archive has all of it from 0."""
REFUSED = too_small(BEGIN, END)
ADDRESSES = ("10.0.0.21:10930", "10.0.0.22:10930", "10.0.0.23:10930")


class Wire:
    """The way to a node; what its beats bring is the test's."""

    def __init__(self) -> None:
        self.vouches: list[Vouch | None] = []
        self.brings: NodeBeat | Exception | None = NodeBeat(1, LAST_WIRE, clients=True, tick="a-1")

    async def beat(self, seconds: float, vouch: Vouch | None = None) -> NodeBeat | None:
        """What the test says."""
        self.vouches.append(vouch)
        if isinstance(self.brings, Exception):
            raise self.brings
        return self.brings

    def close(self) -> None:
        """Nothing."""


class Sending:
    """A gateway's answers with a fleet beside, whose reads nobody uses: the archive answers, and nodes are only named."""

    def __init__(
        self,
        connect: Callable[[str], Any] | None = None,
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        """``connect``: the way to an address, with ``beat``; else a ``Wire``."""
        self.desk = Desk(clock=clock, **{"namesrv_routes": NODES, **settings})
        self.desk.archive.fill("T", 0, 0, END)
        self.desk.archive.place = lambda: PLACE
        self.wires: dict[str, Wire] = {}
        way = cast("Callable[[str], NodeConnection]", connect or self._connect)
        self.fleet = NodeFleet(way, self.desk.clock, self.desk.metrics, node_seconds=2.0)
        self.directing = self.desk.answers.directing
        self.directing._fleet = self.fleet
        self.fleet.vouch = self.directing._vouch
        self.closed: str | None = None
        self.directing.problem = lambda: self.closed

    def _connect(self, address: str) -> Any:
        return self.wires.setdefault(address, Wire())

    def nodes(self, *addresses: str) -> None:
        """Who is there from now on; each is asked for a heartbeat."""

        async def inner() -> None:
            self.fleet.set_nodes([NodePlace(f"n-{one}", one) for one in addresses])

        on_loop(inner())
        self.beats()

    def beats(self, seconds: float = 0.0) -> None:
        """A heartbeat of everybody, and what they brought is judged so much later."""
        on_loop(self.beating(seconds))

    async def beating(self, seconds: float = 0.0) -> None:
        """The same."""
        began = self.fleet.ask_beats()
        for _ in range(3):
            await asyncio.sleep(0)
        self.desk.clock.advance(seconds)
        self.fleet.woke(began)

    def suggested(self, request: Command, answer: Command = REFUSED) -> int:
        """Whom the answer suggests."""
        return int(fields(self.desk.ask(request, answer))["suggestWhichBrokerId"])

    def unasked(self, request: Command) -> int | None:
        """The same, where the broker's last answer stands in; ``None``: it does not."""
        made = self.stood_in(request)
        return None if made is None else int(made.ext["suggestWhichBrokerId"])

    def stood_in(self, request: Command) -> Command | None:
        """The answer without the broker; ``None``: it is to be asked."""
        known = self.desk.answers.stand_in(request, self.desk.connection)
        if known is None:
            return None
        answering: Awaitable[Any] = self.desk.answers.answer(request, *known, self.desk.connection)

        async def inner() -> Any:
            return await answering

        made = asyncio.run(inner())
        assert isinstance(made, Command)
        return made

    def named(self, client: str = CLIENT) -> set[str]:
        """Addresses of nodes in routes for the client."""
        return set(self.directing.routes(client).values())

    def count(self, outcome: str) -> float:
        """Consumers counted so far."""
        return self.desk.metrics.value("tiered_gateway_directed_total", outcome=outcome) or 0.0
