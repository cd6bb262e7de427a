"""Bytes appended to each queue by the hour, from the runs of an archive: they say when its messages were stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.state.values import RunState
from tiered.model import MessageQueue

HOUR_MS = 3_600_000
MOST_QUEUES = 4096
"""Queues with a series of their own, those with most bytes; all others have their place by hashing."""
MOST_STEPS = 24 * 28

Loads = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """``loads[q, s]``: bytes of ``queues[q]`` in step ``s``, which begins at ``begin_ms`` + s × ``step_ms``."""

    queues: tuple[MessageQueue, ...]
    loads: Loads
    begin_ms: int
    step_ms: int = HOUR_MS

    @property
    def steps(self) -> int:
        """How many steps are known."""
        return int(self.loads.shape[1])


def load_history(
    runs: Iterable[RunState], end_ms: int, *, steps: int = MOST_STEPS, step_ms: int = HOUR_MS
) -> LoadHistory:
    """The last ``steps`` whole steps before ``end_ms``. Bytes of a run count evenly over the time of its messages. Of the whole
    archive's runs only sums by queue are kept."""
    end_ms -= end_ms % step_ms
    begin_ms = end_ms - min(steps, MOST_STEPS) * step_ms
    sums: dict[MessageQueue, Loads] = {}
    for run in runs:
        first, last = run.min_store_time, run.max_store_time + 1
        if last <= begin_ms or first >= end_ms:
            continue
        series = sums.get(run.queue)
        if series is None:
            series = sums[run.queue] = np.zeros((end_ms - begin_ms) // step_ms)
            if len(sums) > 2 * MOST_QUEUES:
                sums = _busiest(sums)
        _spread(series, run.flat_end - run.first_flat_offset, first - begin_ms, last - begin_ms, step_ms)
    sums = _busiest(sums)
    names = tuple(sorted(sums))
    loads = (
        np.stack([sums[name] for name in names]) if names else np.zeros((0, (end_ms - begin_ms) // step_ms))
    )
    return LoadHistory(names, loads, begin_ms, step_ms)


def _spread(series: Loads, size: int, first: int, last: int, step: int) -> None:
    """``size`` bytes evenly over [``first``, ``last``) of a series whose steps are so long."""
    steps = np.arange(max(0, first // step), min(len(series), -(-last // step)))
    if len(steps):
        inside = np.minimum((steps + 1) * step, last) - np.maximum(steps * step, first)
        series[steps] += size * inside / (last - first)


def _busiest(sums: dict[MessageQueue, Loads]) -> dict[MessageQueue, Loads]:
    if len(sums) <= MOST_QUEUES:
        return sums
    ranked: Sequence[MessageQueue] = sorted(sums, key=lambda name: (-float(sums[name].sum()), name))
    return {name: sums[name] for name in ranked[:MOST_QUEUES]}
