"""A registry of metrics of its own, and how a metric is declared in it."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Buckets of the time that a request takes."""


class MetricRegistry:
    """Metrics of one process, by names that start with ``tiered_``."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody asks for
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

    def _gauge(self, name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(f"tiered_{name}", doc, labels, registry=self.registry)

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(f"tiered_{name}", doc, labels, registry=self.registry)

    def _histogram(self, name: str, doc: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"tiered_{name}", doc, labels, buckets=buckets, registry=self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        """The present value of a sample (``tiered_requests_total``), for the status page; ``None`` if there
        is none.
        """
        return self.registry.get_sample_value(name, labels)

    def expose(self) -> bytes:
        """The Prometheus text format (``CONTENT_TYPE``)."""
        return generate_latest(self.registry)
