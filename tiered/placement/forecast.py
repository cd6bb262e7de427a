"""The forecast of loads: a moving average of each queue, and of what it had at that hour of former days."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiered.placement.history import LoadHistory, Loads

DAY_STEPS = 24
LEVEL = 0.4
"""Weight of the newest step in the moving average."""
SEASON = 0.3
"""The same for the average of one hour over days."""
MEMORY = 0.08
"""Weight of the newest step in the rolling error: about the last half day counts."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted bytes of each queue in the next step. ``error``: of forecasts of late, the sum of absolute differences over the
    sum of loads."""

    loads: Loads
    error: float


class Forecaster:
    """Steps of ``queues`` series one after the other; deterministic. A forecast is the mean of what the moving average says and
    of what that hour had on former days, times how the queue is doing against former days of late."""

    def __init__(self, queues: int) -> None:
        self._level = np.zeros(queues)
        self._usual = np.zeros(queues)
        self._season = np.full((queues, DAY_STEPS), np.nan)
        self._begun = np.zeros(queues, bool)
        self._steps = 0
        self._error: float | None = None
        self._said = np.zeros(queues)

    def see(self, loads: Loads) -> Forecast:
        """A step is over: its loads; the forecast of the next one."""
        self._judge(loads)
        begins = ~self._begun & (
            loads > 0
        )  # of a queue that is new nothing is known but this: former days are not zero
        self._begun |= begins
        weight = np.where(begins, 1.0, LEVEL)
        self._level += weight * (loads - self._level)
        hour = self._steps % DAY_STEPS
        usual = self._season[:, hour]
        self._usual += weight * (np.where(np.isnan(usual), loads, usual) - self._usual)
        learnt = np.where(np.isnan(usual), loads, usual + SEASON * (loads - usual))
        self._season[:, hour] = np.where(self._begun, learnt, np.nan)
        self._steps += 1
        self._said = self._next()
        return Forecast(self._said, self._error or 0.0)

    def _next(self) -> Loads:
        usual = self._season[:, self._steps % DAY_STEPS]
        trend = np.clip((self._level + 1.0) / (self._usual + 1.0), 0.25, 4.0)
        return np.where(np.isnan(usual), self._level, 0.25 * self._level + 0.75 * usual * trend)

    def _judge(self, loads: Loads) -> None:
        total = float(loads.sum())
        if self._steps and total > 0:
            error = float(np.abs(self._said - loads).sum()) / total
            before = error if self._error is None else self._error
            self._error = before + MEMORY * (error - before)


def forecast(history: LoadHistory) -> Forecast:
    """The next step after a history, by all of it; the same for whoever has the same history."""
    made = Forecaster(len(history.queues))
    found = Forecast(np.zeros(len(history.queues)), 0.0)
    for step in range(history.steps):
        found = made.see(history.loads[:, step])
    return found
