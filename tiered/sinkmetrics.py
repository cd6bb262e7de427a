"""Figures of sinks, by name: an archive has at most some dozens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Gauge

_FIGURES = {
    "standing": "1 while a sink does not move and should: away, waiting or stopped",
    "away": "1 while a sink's destination does not answer",
    "stopped": "1 while a sink has stopped: waiting does not mend it",
    "paused": "1 while an operator has paused a sink",
    "required": "1 if retention waits for a sink",
    "stale_seconds": "Time since a sink last had everything that there is for it",
    "lag_bytes": "Bytes of the broker's log behind a sink's position in it; none while it reads the archive",
    "backlog_messages": "Messages that a sink still has to read from the archive before it joins the log",
    "messages": "Messages that this process gave to a sink",
    "dead_letters": "Messages that a destination took as what it cannot take",
    "left_out": "Messages that a sink's shape did not let pass",
    "came_back": "Messages that a sink did not send since the destination had them first",
    "lost_messages": "Messages that a sink was never given: trimmed, or in no archive",
    "lost_at_source": "Messages that a sink has had and the broker lost",
    "begun_anew": "Queues that began again since their topics were deleted and made anew",
}


class SinkMetrics:
    """Gauges with a label ``sink``, and three of all sinks together."""

    def __init__(self, gauge: Callable[..., Gauge]) -> None:
        self._gauges = {name: gauge(f"sink_{name}", text, "sink") for name, text in _FIGURES.items()}
        self._orders_age = gauge(
            "sinks_orders_age_seconds", "Time since the orders of sinks were last read from the bucket"
        )
        self._progress_refused = gauge(
            "sinks_progress_refused", "1 while the archive does not take the progress of sinks"
        )
        self._file_refused = gauge(
            "sinks_file_refused", "1 while what sinks.orders_file declares is not in force"
        )

    def show(
        self,
        found: Mapping[str, Mapping[str, float | None]],
        orders_age_seconds: float,
        *,
        progress_refused: bool,
        file_refused: bool,
    ) -> None:
        """Set what is known of each sink; of what is not known, and of sinks that are no more, nothing is shown."""
        self._orders_age.set(orders_age_seconds)
        self._progress_refused.set(1 if progress_refused else 0)
        self._file_refused.set(1 if file_refused else 0)
        for name, gauge in self._gauges.items():
            gauge.clear()
            for sink, values in found.items():
                value = values[name]
                if value is not None:
                    gauge.labels(sink).set(value)
