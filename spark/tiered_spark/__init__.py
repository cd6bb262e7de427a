"""The archive as a PySpark data source: ``spark.dataSource.register(TieredDataSource)``, then
``spark.read.format("rocketmq_tiered")``; and a sink that sends rows to a broker again, ``TieredReplay``.

Owns: options, planning, pushed filters, and how records become Arrow batches. Reads through ``tiered.archive`` and what lies
below it; needs no daemon, no broker and no local state, on the driver as on the executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiered_spark.datasource import TieredDataSource, register
from tiered_spark.steady import SteadyQuery

if TYPE_CHECKING:
    from tiered_spark.late import late_frame, view
    from tiered_spark.noted import metrics
    from tiered_spark.replay.source import TieredReplay
    from tiered_spark.sealedframe import frame

__all__ = [
    "SteadyQuery",
    "TieredDataSource",
    "TieredReplay",
    "frame",
    "late_frame",
    "metrics",
    "register",
    "view",
]


def __getattr__(name: str) -> Any:
    """What the processes that plan a scan do not need is imported when it is asked for."""
    if name == "TieredReplay":
        from tiered_spark.replay.source import TieredReplay

        return TieredReplay
    if name == "metrics":
        from tiered_spark.noted import metrics

        return metrics
    if name == "frame":
        from tiered_spark.sealedframe import frame

        return frame
    if name in ("late_frame", "view"):
        from tiered_spark import late

        return getattr(late, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
