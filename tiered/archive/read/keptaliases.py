"""Which records that aliases name retention has left (DESIGN.md, "Lite queues", L4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tiered.archive.state.aliases import AliasRun, alias_runs, target_of
from tiered.archive.state.values import QueueState
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Bools

MOST_SKIPPED = 4096
"""Aliases of gone records that one answer passes over."""
_REMEMBERED = 65_536
_NOTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class FirstKept:
    """``offset``: the first one whose record is still archived, or where the search for it ended, at the latest behind
    the last one. ``found``: which of the two. ``passed``: aliases before it."""

    offset: int
    found: bool
    passed: int


class KeptAliases:
    """What retention has left of the queues that aliases name; remembers their minimums, so it is for one view."""

    def __init__(self, state: ArchiveState) -> None:
        self._state = state
        self._minimums: dict[bytes, int] = {}

    def minimum(self, target: bytes) -> int:
        """The first readable offset of a queue generation; above all offsets for one that is gone."""
        found = self._minimums.get(target)
        if found is None:
            queue, number = target_of(target)
            generations = self._state.generations(queue)
            found = next((g.min_offset for g in generations if g.generation == number), _NOTHING)
            if len(self._minimums) >= _REMEMBERED:
                self._minimums.clear()
            self._minimums[target] = found
        return found

    def of(self, run: AliasRun) -> Bools:
        """Which aliases of a run name a record that is still archived."""
        minimums = np.array([self.minimum(target) for target in run.targets], np.int64)
        kept: Bools = run.rows["offset"] >= minimums[run.rows["target"]]
        return kept

    def first(self, runs: Iterable[AliasRun], most: int) -> FirstKept:
        """The first in ascending ``runs``; ``most``: passed over before the search ends."""
        passed = end = 0
        for run in runs:
            if passed >= most:
                return FirstKept(run.first_offset, False, passed)
            kept = self.of(run)
            at = int(kept.argmax())
            if kept[at]:
                return FirstKept(run.first_offset + at, True, passed + at)
            passed, end = passed + len(kept), run.end
        return FirstKept(end, False, passed)


def readable_from(state: ArchiveState, known: QueueState) -> int:
    """The offset that a lite queue begins with for readers: retention may have taken records that its aliases still name, of
    which a run more than ``MOST_SKIPPED`` are passed over."""
    if known.generation is None or not known.messages:
        return known.min_offset
    runs = alias_runs(state.view, known.queue, known.generation, known.min_offset)
    return KeptAliases(state).first(runs, MOST_SKIPPED).offset
