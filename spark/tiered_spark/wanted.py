"""What messages must be like, as far as it says which runs and blocks cannot hold a wanted one. All of it comes from options.

Not from a query's filters: Spark hands them to a Python data source, but keeps the plan that it made of them with the frame. It
reads other queries of the frame, those of a view, and both sides of a union with whichever plan came last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered_spark.options import Options
from tiered_spark.ranges import Range


@dataclass(frozen=True, slots=True)
class Wanted:
    """What messages must be like; ``None``: whatever. ``times`` in ms. ``keys``: one of them, as a key or unique key."""

    queue_ids: frozenset[int] | None = None
    offsets: Range = field(default_factory=Range)
    times: Range = field(default_factory=Range)
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None

    def runs(self, records: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Which runs (``RUN_DTYPE``) may hold wanted messages."""
        good = (records["start"] <= self.offsets.high) & (records["end"] > self.offsets.low)
        good &= records["min_store_time"] <= self.times.high
        good &= records["max_store_time"] >= self.times.low
        found: npt.NDArray[np.bool_] = good
        return found

    def blocks(self, table: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which blocks of a table may hold wanted messages; ``ends``: the queue offset behind each."""
        good = (table["min_store_time"] <= self.times.high) & (table["max_store_time"] >= self.times.low)
        found: npt.NDArray[np.bool_] = (
            good & (table["first_queue_offset"] <= self.offsets.high) & (ends > self.offsets.low)
        )
        return found


def first_wish(options: Options) -> Wanted:
    """What the options say."""
    return Wanted(
        queue_ids=frozenset(options.queue_ids) or None,
        offsets=options.offsets,
        times=options.times,
        tags=frozenset(options.tags) or None,
        keys=frozenset(options.keys) or None,
    )
