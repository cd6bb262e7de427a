"""A histogram for Prometheus that is fed whole arrays: its own client takes one value at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector


class ArrayHistogram(Collector):
    """A histogram fed whole arrays: one call per flush, however many messages it holds.

    ``bounds_seconds`` are the upper, inclusive bucket bounds, ascending; a last bucket takes everything
    above. Values below zero (a broker whose clock runs ahead) count as zero.
    """

    def __init__(self, name: str, documentation: str, bounds_seconds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = np.asarray(bounds_seconds, dtype=np.float64)
        self._counts = np.zeros(len(self._bounds) + 1, dtype=np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe_many(self, seconds: npt.NDArray[np.float64]) -> None:
        """Count every value of a float array, in seconds."""
        values = np.maximum(np.asarray(seconds, dtype=np.float64), 0.0)
        slots = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(slots, minlength=len(self._counts))
        with self._lock:
            self._counts += counts
            self._sum += float(values.sum())

    def count(self) -> int:
        """Values counted so far."""
        with self._lock:
            return int(self._counts.sum())

    def quantile(self, q: float) -> float | None:
        """Upper bound in seconds of the bucket that holds quantile ``q`` (0 to 1); ``None`` without values."""
        with self._lock:
            running = np.cumsum(self._counts)
        if not running[-1]:
            return None
        slot = int(np.searchsorted(running, q * running[-1], side="left"))
        return float(self._bounds[slot]) if slot < len(self._bounds) else float("inf")

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """One family in Prometheus' cumulative form."""
        with self._lock:
            running, total = np.cumsum(self._counts).tolist(), self._sum
        names = [f"{bound:g}" for bound in self._bounds] + ["+Inf"]
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], buckets=list(zip(names, running, strict=True)), sum_value=total)
        return [family]
