"""A broker that does not answer: its front refuses clients, as the broker itself would, until it answers again.

A client that gets a connection believes its broker to be up: RocketMQ's clients then heartbeat at once, are cut, and connect
again, some hundred times a second; and one whose heartbeat fell into that time is unknown to the broker that came back, and
gets nothing before its next heartbeat, up to 30 seconds later. Refused, they wait as they do without a gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.errors import Unavailable
from tiered.gateway.transport.listener import FULL, Listener
from tiered.gateway.transport.upstream import Upstream
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")

PROBES = Backoff(0.2, 1.0)
CALM_SECONDS = 5.0
"""An outage that begins sooner than this after the last one waits on where that one was, so that a flapping broker is not
hammered."""


class BrokerOutage:
    """Watches one broker when there is reason to doubt that it is there. For one event loop."""

    def __init__(
        self, leads_to: str, upstream: Upstream, listener: Listener, clock: Clock, metrics: Metrics
    ) -> None:
        self.problem: str | None = None
        """Why clients are refused; ``None``: they are not."""
        self._leads_to = leads_to
        self._upstream = upstream
        self._listener = listener
        self._clock = clock
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._pauses = PROBES.pauses()
        self._ended = -CALM_SECONDS
        self._closed = False

    def begin(self, error: Unavailable) -> None:
        """The broker could not be reached. An error of this machine's own is not an outage of the broker."""
        if self._closed or self.problem is not None or getattr(error.__cause__, "errno", None) in FULL:
            return
        self.problem = str(error)
        self._listener.refuse()
        self._metrics.gateway_brokers_away.inc()
        log.warning(
            "a broker is away: its clients are refused until it answers: %s",
            error,
            extra={"broker": self._leads_to},
        )
        self._replace(self._until_back())

    def suspect(self) -> None:
        """The broker has closed a connection: look whether it is there, before its client connects again."""
        if not self._closed and (self._task is None or self._task.done()):
            self._replace(self._look())

    def close(self) -> None:
        """Watch no more."""
        self._closed = True
        if self.problem is not None:
            self._metrics.gateway_brokers_away.dec()
        self.problem = None
        if self._task is not None:
            self._task.cancel()

    def _replace(self, doing: Coroutine[object, object, None]) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(doing)

    async def _look(self) -> None:
        try:
            await self._upstream.probe()
        except Unavailable as error:
            self.begin(error)

    async def _until_back(self) -> None:
        """Probe until the broker answers and the front listens again."""
        now = self._clock.monotonic
        began = now()
        if began - self._ended > CALM_SECONDS:
            self._pauses = PROBES.pauses()
        while True:
            await asyncio.sleep(next(self._pauses))
            try:
                await self._upstream.probe()
                self._listener.accept()
            except Unavailable as error:
                self.problem = str(error)
            except OSError as error:
                self._cannot_listen(error)
            else:
                break
        self.problem = None
        self._ended = now()
        self._metrics.gateway_brokers_away.dec()
        log.info(
            "a broker is back", extra={"broker": self._leads_to, "seconds": round(self._ended - began, 1)}
        )

    def _cannot_listen(self, error: OSError) -> None:
        problem = f"port {self._listener.port} cannot be listened at: {error.strerror}"
        if problem != self.problem:
            log.error("a broker is back, its clients cannot be served: %s", problem)
        self.problem = problem
