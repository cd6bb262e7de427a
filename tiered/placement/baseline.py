"""The forecast that needs no model: a moving average of each queue, and of what it had a day ago."""

from __future__ import annotations

import numpy as np

from tiered.placement.history import Loads

DAY_STEPS = 24
LEVEL = 0.4
"""Weight of the newest step in the moving average."""
SEASON = 0.3
"""The same for the average of one hour over days."""


class SeasonalBaseline:
    """Of ``queues`` series at once; ``see`` each step, then ``forecast`` the next. The forecast is the mean of what the moving
    average says and what that hour had on former days, times how the queue is doing against former days of late."""

    def __init__(self, queues: int, day_steps: int = DAY_STEPS) -> None:
        self._day = day_steps
        self._level = np.zeros(queues)
        self._usual = np.zeros(queues)
        self._season = np.full((queues, day_steps), np.nan)
        self._begun = np.zeros(queues, bool)
        self._steps = 0

    def see(self, loads: Loads) -> None:
        """What each queue had in the step that is over."""
        begins = ~self._begun & (
            loads > 0
        )  # of a queue that is new nothing is known but this: former days are not zero
        self._begun |= begins
        weight = np.where(begins, 1.0, LEVEL)
        self._level += weight * (loads - self._level)
        hour = self._steps % self._day
        usual = self._season[:, hour]
        self._usual += weight * (np.where(np.isnan(usual), loads, usual) - self._usual)
        learnt = np.where(np.isnan(usual), loads, usual + SEASON * (loads - usual))
        self._season[:, hour] = np.where(self._begun, learnt, np.nan)
        self._steps += 1

    def season(self) -> Loads:
        """What the next hour had on former days; the moving average where there was none."""
        usual = self._season[:, self._steps % self._day]
        return np.where(np.isnan(usual), self._level, usual)

    def level(self) -> Loads:
        """The moving average."""
        return self._level.copy()

    def forecast(self) -> Loads:
        """What each queue will have in the next step."""
        usual = self._season[:, self._steps % self._day]
        trend = np.clip((self._level + 1.0) / (self._usual + 1.0), 0.25, 4.0)
        return np.where(np.isnan(usual), self._level, 0.25 * self._level + 0.75 * usual * trend)
