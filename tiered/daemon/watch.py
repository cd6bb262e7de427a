"""Nothing stands still in silence (S15): one line when archiving stops or writes fail, one when it goes on, and a gauge each.

Pages ask ``problem`` at any moment; ``step`` is a service. Neither waits for anything: they read what ``Stillness`` and
``Outages`` were told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tiered.clock import Clock
from tiered.daemon.outages import FailingWrite, Outages
from tiered.daemon.stillness import Stall, Stillness
from tiered.metrics import Metrics
from tiered.service import Next, Service, pause

WATCH_SECONDS = 0.5
log = logging.getLogger("tiered.daemon")


class StallWatch:
    """``why`` says what is known of the cause, from plain values: it is asked while something hangs.

    ``beside`` says why work in the background does not move, if it does not, ``index`` why the consume-queue index does not:
    that is said, and is no problem of archiving.
    """

    def __init__(
        self, clock: Clock, metrics: Metrics, stillness: Stillness, outages: Outages, why: Callable[[], str]
    ) -> None:
        self._metrics = metrics
        self._stillness = stillness
        self._outages = outages
        self._why = why
        self._stall: Stall | None = None
        self._outage: FailingWrite | None = None
        self.looking: Callable[[], None] = lambda: None
        """Called at each look, before anything is said."""
        self.beside: Callable[[], str | None] = lambda: None
        self._beside: str | None = None
        self.index: Callable[[], str | None] = lambda: None
        self._index: str | None = None
        self.service = Service("watch", self.step, clock, metrics=metrics)

    def problem(self) -> str | None:
        """One sentence on what is wrong now; ``None`` while all is well."""
        outage = self._outages.worst()
        if outage is not None:
            return str(outage)
        stall = self._stillness.stall()
        return None if stall is None else f"{stall}: {self._why()}"

    def step(self) -> Next:
        """Look, and say what changed."""
        self.looking()
        outage, stall = self._outages.worst(), self._stillness.stall()
        if outage is not None and self._outage is None:
            log.error(
                "writes are failing: they are tried until they get through",
                extra={"write": outage.name, "seconds": round(outage.seconds), "error": outage.cause},
            )
        if outage is None and self._outage is not None:
            log.warning("writes get through again", extra={"failed_seconds": round(self._outage.seconds)})
        if stall is not None and self._stall is None:
            log.error(
                "archiving stands still",
                extra={
                    "seconds": round(stall.seconds),
                    "proven": stall.proven,
                    "local_end": stall.local_end,
                    "why": self._why(),
                },
            )
        if stall is None and self._stall is not None:
            log.warning("archiving moves again", extra={"stood_seconds": round(self._stall.seconds)})
        self._outage, self._stall = outage, stall
        self._look_beside()
        self.set_gauges()
        return pause(WATCH_SECONDS)

    def _look_beside(self) -> None:
        beside = self.beside()
        if beside is not None and self._beside is None:
            log.warning("maintenance does not move; archiving goes on", extra={"why": beside})
        if beside is None and self._beside is not None:
            log.info("maintenance moves again")
        self._beside = beside
        self._metrics.stuck.labels("maintenance").set(0 if beside is None else 1)

        index = self.index()
        if index is not None and self._index is None:
            log.warning("the consume-queue index does not move; archiving goes on", extra={"why": index})
        if index is None and self._index is not None:
            log.info("the consume-queue index moves again")
        self._index = index
        self._metrics.index_stalled.set(0 if index is None else 1)

    def set_gauges(self) -> None:
        """What ``problem`` would say, as numbers."""
        self._metrics.unavailable.set(0 if self._outages.worst() is None else 1)
        self._metrics.stalled.set(0 if self._stillness.stall() is None else 1)
