"""The name-server front: route and cluster answers name the gateway instead of the brokers.

An answer goes on only when every broker in it that the gateway stands for has its port here. One that could not be given a port
makes the client ask again: a broker's own address would lead it past the archive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat

from tiered.backoff import Backoff
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Bytes, Command
from tiered.errors import TieredError, Unavailable
from tiered.gateway.ports import HOLD, PASS, ConnectionInfo, NewBody, Verdict
from tiered.gateway.routes.rewriting import addresses_in, rewrite
from tiered.gateway.transport.upstream import Upstream

log = logging.getLogger("tiered.gateway")

REFRESH_SECONDS = 30.0
"""How often RocketMQ's own clients ask for routes."""

RETRIES = Backoff(2.0, REFRESH_SECONDS)

Ensure = Callable[[str, str | None], str]
"""Broker address and name → the gateway's address for it, where it listens. ``Unavailable`` if it cannot."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """Which brokers the gateway stands for: all, or the one called ``only``, with its replicas. ``ensure`` gives them ports."""

    ensure: Ensure
    only: str | None = None

    def in_answer(self, body: bytes | memoryview) -> dict[str, str | None]:
        """Their addresses in a route or cluster answer, with names. One whose name cannot be read counts: it may be the one."""
        return {address: name for address, name in addresses_in(body).items() if self.includes(name)}

    def addresses(self, found: Mapping[str, str | None]) -> dict[str, str]:
        """The gateway's address for each of these brokers. ``Unavailable`` if one cannot have any."""
        return {address: self.ensure(address, name) for address, name in found.items()}

    def includes(self, name: str | None) -> bool:
        """Whether a broker of this name is one; ``None``: not known."""
        return self.only is None or name in (None, self.only)


class RouteAnswers:
    """Exchanges the broker addresses in the answers to 105 and 106."""

    codes: frozenset[int] = frozenset(
        {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
    )
    own: frozenset[int] = frozenset()
    notices: frozenset[int] = frozenset()

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def wants(self, request: Command) -> bool:
        """Every route and cluster request."""
        return True

    def stand_in(self, request: Command, connection: ConnectionInfo) -> tuple[Command, Verdict] | None:
        """Routes are asked for each time."""
        return None

    def at_once(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Command | None:
        """Never: nothing stands in."""
        return None

    def learn(self, request: Command, answer: Command, first: Bytes, connection: ConnectionInfo) -> None:
        """Nothing to learn."""

    def judge(self, request: Command, answer: Command, body: Bytes, *, whole: bool = False) -> Verdict:
        """Errors, and answers without a body, pass."""
        return PASS if answer.code != ResponseCode.SUCCESS or not len(body) else HOLD

    async def answer(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> NewBody | None:
        """The same header, and the body with the gateway's addresses in it."""
        ours = self._brokers.addresses(self._brokers.in_answer(answer.body))
        return NewBody(rewrite(answer.body, ours)) if ours else None

    async def serve(self, request: Command, connection: ConnectionInfo) -> Command:
        """Nothing is answered without a name server."""
        raise Unavailable("the name-server front answers nothing of its own", code=request.code)

    async def notice(self, notice: Command, connection: ConnectionInfo) -> NewBody | None:
        """A name server tells clients nothing of its own accord."""
        return None

    def observe(self, request: Command, connection: ConnectionInfo) -> None:
        """Nothing to learn."""

    def closed(self, connection: ConnectionInfo) -> None:
        """Nothing to forget."""


class Discovery:
    """Asks the name server for every broker, at once and now and then, so that each has its port before a client needs it."""

    def __init__(self, upstream: Upstream, brokers: Brokers, max_frame_bytes: int) -> None:
        self.problem: str | None = "the name server was not asked yet"
        self._upstream = upstream
        self._brokers = brokers
        self._max_frame_bytes = max_frame_bytes

    async def look(self) -> int:
        """Ask once; how many broker addresses there are. Raises ``Unavailable``."""
        answer = await self._upstream.ask(
            Command(RequestCode.GET_BROKER_CLUSTER_INFO), seconds=10.0, max_frame_bytes=self._max_frame_bytes
        )
        found = self._brokers.in_answer(answer.body) if answer.code == ResponseCode.SUCCESS else {}
        return len(self._brokers.addresses(found))

    async def run(self) -> None:
        """Look for ever; soon again while there is nothing."""
        pauses = RETRIES.pauses()
        while True:
            try:
                found = await self.look()
                self.problem = None
            except TieredError as error:
                found = 0
                if self.problem != str(error):
                    log.warning("the brokers are not known: %s", error)
                self.problem = str(error)
            if found:
                pauses = repeat(REFRESH_SECONDS)
            await asyncio.sleep(next(pauses))
