"""What messages must be like, as far as it says which runs and blocks cannot hold a wanted one. All of it comes from options.

Not from a query's filters: Spark hands them to a Python data source, but keeps the plan that it made of them with the frame. It
reads other queries of the frame, those of a view, and both sides of a union with whichever plan came last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Ints
from tiered.model import MessageQueue
from tiered_spark.bounds import Bounds, limits
from tiered_spark.options import Options
from tiered_spark.queues import Queues
from tiered_spark.ranges import Range
from tiered_spark.runs import RunTable


@dataclass(frozen=True, slots=True)
class Wanted:
    """What messages must be like; ``None``: whatever. ``times`` in ms. ``keys``: one of them, as a key or unique key.

    ``lows`` and ``ends``: of single queues, offsets and times; ends are not included.
    """

    queue_ids: frozenset[int] | None = None
    offsets: Range = field(default_factory=Range)
    times: Range = field(default_factory=Range)
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    lows: tuple[Bounds, Bounds] = ((), ())
    ends: tuple[Bounds, Bounds] = ((), ())

    def limits(self, broker: str, queues: Sequence[MessageQueue]) -> Ints:
        """Of each queue: lowest and highest queue offset, lowest and highest store time."""
        whole = (self.offsets, self.times)
        if not any((*self.lows, *self.ends)):
            same = [edge for some in whole for edge in (some.low, some.high)]
            return np.repeat(np.array(same, np.int64)[:, None], len(queues), axis=1)
        return limits(broker, queues, self.lows, self.ends, whole)

    def _limits(self, broker: str, queues: Queues) -> Ints:
        """``limits`` of many queues: only those of topics that a bound names are looked at one by one."""
        rows = queues.of_topics({bound.topic for some in (*self.lows, *self.ends) for bound in some})
        whole = replace(self, lows=((), ()), ends=((), ())).limits(broker, (MessageQueue("", 0),))
        found = np.repeat(whole, len(queues), axis=1)
        found[:, rows] = self.limits(broker, queues.only(rows).names())
        return found

    def of_runs(self, broker: str, runs: RunTable) -> Ints:
        """``limits`` of the queue of each run; one column where no queue has its own."""
        if not any((*self.lows, *self.ends)):
            return self.limits(broker, (MessageQueue("", 0),))
        return self._limits(broker, runs.queues)[:, runs.queue]

    def runs(self, broker: str, runs: RunTable) -> npt.NDArray[np.bool_]:
        """Which runs may hold wanted messages."""
        low, high, early, late = self.of_runs(broker, runs)
        records = runs.records
        good = (records["start"] <= high) & (records["end"] > low)
        good &= (records["min_store_time"] <= late) & (records["max_store_time"] >= early)
        found: npt.NDArray[np.bool_] = good
        return found

    def blocks(self, table: npt.NDArray[Any], ends: Ints, limits: Ints) -> npt.NDArray[np.bool_]:
        """Which blocks of a table may hold wanted messages. Of each: ``ends``, the queue offset behind it, and ``limits``."""
        low, high, early, late = limits
        good = (table["min_store_time"] <= late) & (table["max_store_time"] >= early)
        found: npt.NDArray[np.bool_] = good & (table["first_queue_offset"] <= high) & (ends > low)
        return found


def first_wish(options: Options) -> Wanted:
    """What the options say."""
    return Wanted(
        queue_ids=frozenset(options.queue_ids) or None,
        offsets=options.offsets,
        times=options.times,
        tags=frozenset(options.tags) or None,
        keys=frozenset(options.keys) or None,
        lows=(options.starting_offsets, options.starting_times),
        ends=(options.ending_offsets, options.ending_times),
    )
