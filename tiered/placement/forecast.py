"""Which forecast is believed: the model's, while its own error of late is below the baseline's; else the baseline's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiered.placement.baseline import DAY_STEPS, SeasonalBaseline
from tiered.placement.history import LoadHistory, Loads

MEMORY = 0.08
"""Weight of the newest step in a rolling error: about the last half day counts."""
MARGIN = 0.98
"""The model is taken while its error is below this part of the baseline's."""
LEARN_STEPS = 48
"""Steps before a model may be taken at all."""


class LoadModel(Protocol):
    """A regression that corrects the baseline, trained online."""

    def predict(self, features: Loads) -> Loads:
        """By how much ``log1p`` of the load differs from the baseline's, for each row."""
        ...

    def learn(self, features: Loads, targets: Loads) -> None:
        """What it was."""
        ...


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted bytes of each queue in the next step, and how it came about. Errors: of late, the sum of absolute differences
    over the sum of loads; ``model_error`` ``None``: no model."""

    loads: Loads
    by_model: bool
    baseline_error: float
    model_error: float | None


class Forecaster:
    """Steps of ``queues`` series one after the other; deterministic. ``model`` ``None``: the baseline alone."""

    def __init__(self, queues: int, model: LoadModel | None = None, day_steps: int = DAY_STEPS) -> None:
        self._baseline = SeasonalBaseline(queues, day_steps)
        self._model = model
        self._day = day_steps
        self._steps = 0
        self._last = np.zeros(queues)
        self._before = np.zeros(queues)
        self._features: Loads | None = None
        self._said: dict[str, Loads] = {}
        self._errors: dict[str, float] = {}

    def see(self, loads: Loads) -> Forecast:
        """A step is over: its loads; the forecast of the next one."""
        self._judge(loads)
        if self._model is not None and self._features is not None:
            self._model.learn(self._features, np.log1p(loads) - np.log1p(self._said["baseline"]))
        self._before, self._last = self._last, loads
        self._baseline.see(loads)
        self._steps += 1
        base = self._baseline.forecast()
        self._said = {"baseline": base}
        if self._model is not None:
            self._features = self._made(base)
            change = np.clip(self._model.predict(self._features), -2.0, 2.0)
            self._said["model"] = np.expm1(np.log1p(base) + change)
        baseline, model = self._errors.get("baseline", 0.0), self._errors.get("model")
        taken = model is not None and self._steps >= LEARN_STEPS and model < MARGIN * baseline
        return Forecast(self._said["model" if taken else "baseline"], taken, baseline, model)

    def _judge(self, loads: Loads) -> None:
        total = float(loads.sum())
        for name, said in self._said.items() if total > 0 else ():
            error = float(np.abs(said - loads).sum()) / total
            before = self._errors.get(name, error)
            self._errors[name] = before + MEMORY * (error - before)

    def _made(self, base: Loads) -> Loads:
        """What the model is told of each queue: differences of logarithms, so that queues of any size are alike."""
        log_base = np.log1p(base)
        angle = 2 * np.pi * (self._steps % self._day) / self._day
        fits = np.ones_like(base)
        columns = (
            np.log1p(self._last) - log_base,
            np.log1p(self._before) - log_base,
            np.log1p(self._baseline.level()) - log_base,
            np.log1p(self._baseline.season()) - log_base,
            (log_base - 12.0) / 12.0,
            np.sin(angle) * fits,
            np.cos(angle) * fits,
        )
        made: Loads = np.clip(np.stack(columns, axis=1), -4.0, 4.0)
        return made


def forecast(history: LoadHistory, model: Callable[[], LoadModel] | None = None) -> Forecast:
    """The next step after a history, learnt from all of it; the same for whoever has the same history."""
    made = Forecaster(len(history.queues), None if model is None else model())
    found = Forecast(np.zeros(len(history.queues)), False, 0.0, None)
    for step in range(history.steps):
        found = made.see(history.loads[:, step])
    return found
