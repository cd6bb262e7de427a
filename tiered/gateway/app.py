"""The gateway put together: the name-server front, a front per broker, and who looks after them. Lives on one event loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tiered.clock import Clock
from tiered.codec.remoting.frame import Command
from tiered.errors import Invalid, TieredError
from tiered.gateway.knowledge.turns import fair_budget
from tiered.gateway.ports import Answering, ConnectionInfo
from tiered.gateway.routes.nameserver import Brokers, Discovery, RouteAnswers
from tiered.gateway.routes.rewriting import PortBook, exhausted, port_range
from tiered.gateway.transport.fronts import BROKER, NAMESRV, Front, Lobby
from tiered.gateway.transport.limits import ByteBudget, Seats, Sparse, Traffic
from tiered.gateway.transport.side import Shared
from tiered.gateway.transport.tls import server_context, upstream_context
from tiered.gateway.transport.upstream import Upstream
from tiered.metrics import Metrics
from tiered.settings import MIB, Gateway, Tenants
from tiered.text.addresses import split_address, split_addresses

log = logging.getLogger("tiered.gateway")

LOOK_SECONDS = 1.0
DRAIN_SECONDS = 5.0
ROUTE_BYTES = 64 * MIB
MAX_FRONTS = 4096
UNSEEN_MS = 2 * 3_600_000
"""A broker's port may be another's when no name server has named it for so long; ``PortBook`` notes it once an hour."""
_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, not bound)


class BrokerFronts:
    """One front per broker address, opened when the address is first seen."""

    def __init__(
        self,
        lobby: Lobby,
        settings: Gateway,
        book: PortBook,
        answers: Answering,
        tls: ssl.SSLContext | None,
        clock: Clock,
        own: str | None,
    ) -> None:
        self._own = own
        self.fronts: dict[str, Front] = {}
        self._clock = clock
        self._lobby = lobby
        self._settings = settings
        self._book = book
        self._answers = answers
        self._tls = tls
        self._names: dict[str, str] = {}
        self._advertise = settings.advertise_host or settings.broker_listen_host

    def ensure(self, address: str, name: str | None) -> str:
        """The gateway's address for a broker, listening. ``Unavailable`` without a free port, ``Invalid`` for no address."""
        if name is not None:
            self._names[address] = name
        front = self.fronts.get(address)
        if front is None:
            front = self._open(address)
        self._book.note(address, front.port, name)
        return f"{self._advertise}:{front.port}"

    async def ask(self, address: str, request: Command, seconds: float) -> Command:
        """A request of the gateway's own to the broker at ``address``. ``Unavailable`` without an answer."""
        upstream = self.fronts[address].upstream
        return await upstream.ask(request, seconds=seconds, max_frame_bytes=self._settings.max_frame_bytes)

    def archived(self) -> list[ConnectionInfo]:
        """The addresses of the broker whose archive it is, as if somebody were connected; none before its name is known."""
        return [
            ConnectionInfo(0, "", address, self._own)
            for address in self.fronts
            if self._own is not None and self._names.get(address) == self._own
        ]

    def problem(self, address: str) -> str | None:
        """Why clients of a broker are refused; ``None``: they are not. May be called from any thread."""
        front = self.fronts.get(address)
        return front.outage.problem if front is not None and front.outage is not None else None

    def suspect(self) -> None:
        """Look whether each broker is there."""
        for front in self.fronts.values():
            if front.outage is not None:
                front.outage.suspect()

    def _open(self, address: str) -> Front:
        upstream = Upstream([split_address(address, key="a broker's address")], self._tls)
        front = Front(self._lobby, BROKER, address, upstream, self._answers, lambda: self._names.get(address))
        ports = port_range(self._settings.broker_listen_ports)
        if len(self.fronts) >= (MAX_FRONTS if ports is None else min(MAX_FRONTS, len(ports))):
            self._close_oldest()
        if len(self.fronts) >= MAX_FRONTS:
            raise exhausted(address, ports)
        taken = {other.port for other in self.fronts.values()}
        for port in self._book.candidates(address, taken.__contains__):
            try:
                front.listen(self._settings.broker_listen_host, port)
            except OSError as error:
                shared = self._lobby.shared
                unsaid = shared.sparse.due("port", shared.clock.monotonic())  # each route request may try all
                if unsaid is not None:
                    log.warning(
                        "a port for a broker cannot be used",
                        extra={"broker": address, "port": port, "error": error.strerror, "unsaid": unsaid},
                    )
                continue
            self.fronts[address] = front
            self._lobby.shared.metrics.gateway_brokers.set(len(self.fronts))
            log.info("listening for a broker", extra={"broker": address, "port": front.port})
            return front
        raise exhausted(address, ports)

    def _close_oldest(self) -> None:
        """Make room: of the brokers that nobody is connected to, the one that no name server has named for longest."""
        before = self._clock.now_ms() - UNSEEN_MS
        places = self._book.places
        seen = {
            address: places[address].seen_ms if address in places else 0
            for address, front in self.fronts.items()
            if not front.sessions
        }
        oldest = min(seen, key=seen.__getitem__, default=None)
        if oldest is None or seen[oldest] > before:
            return
        self.fronts.pop(oldest).deafen()
        self._names.pop(oldest, None)
        log.info("no longer listening for a broker that is not there any more", extra={"broker": oldest})


class GatewayApp:
    """Both kinds of fronts. ``open`` binds, ``run`` serves until told to stop. For one event loop."""

    def __init__(
        self,
        settings: Gateway,
        clock: Clock,
        metrics: Metrics,
        answers: Answering,
        state: Path | None,
        own: str | None = None,
        tenants: Tenants | None = None,
    ) -> None:
        """``answers`` decides about brokers' answers; ``state`` is where ports are remembered. Raises ``Invalid``.

        ``own``: name of the broker whose archive it is; with ``gateway.brokers=own`` no other gets a port. ``tenants``: whose
        answers take turns where they wait for ``gateway.answer_bytes``.
        """
        if settings.broker_listen_host in _ANY_HOST and not settings.advertise_host:
            raise Invalid(
                "gateway.advertise_host is not set",
                found=f"gateway.broker_listen_host={settings.broker_listen_host!r}",
                hint="set gateway.advertise_host to the address under which clients reach this machine",
            )
        self.traffic = Traffic()
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        budget = fair_budget(settings.answer_bytes, tenants or Tenants())
        shared = Shared(settings, clock, metrics, self.traffic, budget, Sparse())
        seats, tls = Seats(settings.max_connections), server_context(settings)
        towards = upstream_context(settings)
        namesrv = split_addresses(settings.namesrv_upstream, key="gateway.namesrv_upstream")
        self._budget = budget
        ports = port_range(settings.broker_listen_ports)
        self._book = PortBook(ports, state, clock)
        self.brokers = BrokerFronts(
            Lobby(shared, seats, tls), settings, self._book, answers, towards, clock, own
        )
        self._stands_for = Brokers(self.brokers.ensure, own if settings.brokers == "own" else None)
        upstream = Upstream(namesrv, towards)
        # Routes flow while answers from the archive queue up.
        routes = Lobby(replace(shared, budget=ByteBudget(ROUTE_BYTES)), seats, tls)
        self.namesrv = Front(
            routes,
            NAMESRV,
            settings.namesrv_upstream,
            upstream,
            RouteAnswers(self._stands_for),
        )
        self._discovery = Discovery(upstream, self._stands_for, settings.max_frame_bytes)
        self._seats = seats

    def open(self) -> None:
        """Bind the name-server front and the brokers known from before. ``Invalid`` if the first cannot be bound."""
        host, port = split_address(
            self._settings.namesrv_listen, key="gateway.namesrv_listen", listening=True
        )
        try:
            self.namesrv.listen(host, port)
        except OSError as error:
            raise Invalid(
                "the gateway's name-server address cannot be bound",
                key="gateway.namesrv_listen",
                address=self._settings.namesrv_listen,
                found=error.strerror,
                hint="choose another gateway.namesrv_listen, or stop what listens there",
            ) from None
        self._book.load()
        for address, place in sorted(self._book.places.items()):
            if not self._stands_for.includes(place.name):
                continue
            try:
                self.brokers.ensure(address, place.name)
            except TieredError as error:
                log.warning("a broker known from before: %s", error)
        log.info("listening for name-server requests", extra={"address": f"{host}:{self.namesrv.port}"})

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then end every connection. Call ``open`` first."""
        chores = [asyncio.create_task(self._discovery.run()), asyncio.create_task(self._look())]
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((*chores, stopping), return_when=asyncio.FIRST_COMPLETED)
            for chore in chores:
                if chore.done():
                    chore.result()  # a chore never ends by itself
        finally:
            for task in (*chores, stopping):
                task.cancel()
            await self._close()

    def ready(self) -> tuple[bool, str]:
        """Whether clients can be served, and what is missing if not."""
        fronts = tuple(self.brokers.fronts)
        away = [address for address in fronts if self.brokers.problem(address)]
        said = f"; brokers away: {', '.join(away)}" if away else ""
        if self._discovery.problem is not None and len(away) == len(fronts):
            return False, self._discovery.problem + said
        return True, "ready" + said

    def publish(self) -> None:
        """Bring the metrics up to date. May be called from any thread."""
        self.traffic.publish(self._metrics)
        self._metrics.gateway_answer_bytes.set(self._budget.taken)

    def status(self) -> Mapping[str, object]:
        """Facts for the status page. May be called from any thread."""
        return {
            "namesrv": {"upstream": self._settings.namesrv_upstream, "problem": self._discovery.problem},
            "connections": self._seats.taken,
            "brokers": [
                {
                    "broker": address,
                    "name": place.name,
                    "port": place.port,
                    "problem": self.brokers.problem(address),
                }
                for address, place in sorted(dict(self._book.places).items())
            ],
        }

    async def _look(self) -> None:
        """Look after all sessions now and then, and after the brokers while no name server speaks for them."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = self._clock.monotonic()
            if self._discovery.problem is not None:  # and perhaps no client is there who would find out
                self.brokers.suspect()
            for front in self._fronts():
                for session in tuple(front.sessions):
                    session.look(now)

    async def _close(self) -> None:
        fronts = self._fronts()
        for front in fronts:
            front.deafen()
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        while any(session.answering for front in fronts for session in front.sessions):
            if self._clock.monotonic() >= deadline:
                break
            await asyncio.sleep(0.02)
        await asyncio.gather(*(front.close() for front in fronts))

    def _fronts(self) -> list[Front]:
        return [self.namesrv, *self.brokers.fronts.values()]
