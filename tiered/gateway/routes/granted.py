"""Ports of a gateway with several workers: all listen at one port for one broker, so one process gives them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from tiered.clock import Clock
from tiered.gateway.routes.rewriting import SEEN_MS, BrokerPort, PortBook

Granting = Callable[[Mapping[str, str | None]], Awaitable[Mapping[str, BrokerPort]]]
"""Broker addresses with names → the places of those that have a port. ``Unavailable``: nobody answers who gives them out."""


class GrantedPorts(PortBook):
    """The ports that this worker was told. It remembers nothing in a file: who gives them out does."""

    def __init__(self, grant: Granting, clock: Clock) -> None:
        super().__init__(None, None, clock)
        self._grant = grant

    async def prepare(self, found: Mapping[str, str | None]) -> None:
        """Have a port for each of these brokers, where there is one, before they are asked for."""
        before = self._clock.now_ms() - SEEN_MS
        news = {}
        for address, name in found.items():
            place = self.places.get(address)
            if place is None or name not in (None, place.name) or place.seen_ms <= before:
                news[address] = name
        if news:
            self.places.update(await self._grant(news))

    def candidates(self, address: str, taken: Callable[[int], bool]) -> Iterator[int]:
        """The one port that was given to ``address``; no other may be tried."""
        if (place := self.places.get(address)) is not None:
            yield place.port
