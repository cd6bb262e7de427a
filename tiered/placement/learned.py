"""The model: scikit-learn's ``SGDRegressor``, trained online by ``partial_fit``, a step of all queues at a time.

Of the libraries that train online it works on numpy's columns, as the forecast does; ``river``, about as large and as slow to
import, takes one row at a time as a dict. It is an extra, imported when a model is made: importing takes 1 to 2 s.
"""

from __future__ import annotations

import numpy as np

from tiered.errors import not_installed
from tiered.placement.history import Loads

FIRST_STEP = 0.02
"""Step length at the start; it falls with the fourth root of the rows seen."""


class OnlineRegression:
    """``LoadModel``: one regression for all queues, from an all-zero start, so it begins as the baseline. Deterministic."""

    def __init__(self) -> None:
        """``Invalid`` where scikit-learn is not installed."""
        try:
            from sklearn.linear_model import SGDRegressor
        except ImportError as error:
            raise not_installed("placement that learns", error.name or "scikit-learn", "placement") from None
        self._model = SGDRegressor(
            loss="huber", epsilon=0.5, alpha=1e-5, learning_rate="invscaling", eta0=FIRST_STEP, shuffle=False
        )
        self._learnt = False

    def predict(self, features: Loads) -> Loads:
        """Zero before anything was learnt."""
        if not self._learnt or not len(features):
            return np.zeros(len(features))
        return np.asarray(self._model.predict(features), np.float64)

    def learn(self, features: Loads, targets: Loads) -> None:
        """One pass over the rows."""
        if len(features):
            self._model.partial_fit(features, np.clip(targets, -4.0, 4.0))
            self._learnt = True
