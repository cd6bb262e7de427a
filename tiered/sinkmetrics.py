"""Figures of sinks, by name: an archive has at most some dozens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Gauge

_FIGURES = {
    "standing": "1 while a sink does not move and should: away, waiting or stopped",
    "stale_seconds": "Time since a sink last had everything that there is for it",
    "lag_bytes": "Bytes of the broker's log behind a sink's position in it; none while it reads the archive",
    "messages": "Messages that this process gave to a sink",
    "dead_letters": "Messages that a destination took as what it cannot take",
    "lost_messages": "Messages that a sink was never given: trimmed, or in no archive",
    "lost_at_source": "Messages that a sink has had and the broker lost",
}


class SinkMetrics:
    """Gauges with a label ``sink``."""

    def __init__(self, gauge: Callable[[str, str, str], Gauge]) -> None:
        self._gauges = {name: gauge(f"sink_{name}", text, "sink") for name, text in _FIGURES.items()}

    def show(self, found: Mapping[str, Mapping[str, float | None]]) -> None:
        """Set what is known of each sink; of what is not known, and of sinks that are no more, nothing is shown."""
        for name, gauge in self._gauges.items():
            gauge.clear()
            for sink, values in found.items():
                value = values[name]
                if value is not None:
                    gauge.labels(sink).set(value)
