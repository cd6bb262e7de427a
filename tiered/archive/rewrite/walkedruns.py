"""A walk over all runs of a fold, some thousand at a time as arrays: what plans of merging are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.plan import WALKED_AT_ONCE, KnownObjects
from tiered.archive.state.keys import CLOSED, RUN
from tiered.archive.state.layout import RUN_RECORD_DTYPE, table
from tiered.codec.types import Ints
from tiered.metadata.base import MetadataView

_KINDS = (RUN, CLOSED)
"""Live runs go first."""
_PLACE_IN_QUEUE = {RUN: 8, CLOSED: 20}
"""Bytes at the end of a run's key that say where in its queue, generation and state it lies."""


@dataclass(frozen=True, slots=True)
class WalkedRuns:
    """Runs as they were walked over. ``at``: row of the object of each; ``stretch``: see ``Job``, -1 before it is known."""

    keys: list[bytes]
    values: list[bytes]
    runs: npt.NDArray[np.void]
    at: Ints
    stretch: Ints

    def first(self, end: int) -> WalkedRuns:
        """Those up to a number."""
        return WalkedRuns(
            self.keys[:end], self.values[:end], self.runs[:end], self.at[:end], self.stretch[:end]
        )

    def of(self, rows: Ints) -> WalkedRuns:
        """Some of them."""
        keys, values = ([some[i] for i in rows.tolist()] for some in (self.keys, self.values))
        return WalkedRuns(keys, values, self.runs[rows], self.at[rows], self.stretch[rows])

    def then(self, other: WalkedRuns) -> WalkedRuns:
        """With others behind them."""
        return WalkedRuns(
            self.keys + other.keys, self.values + other.values, np.concatenate([self.runs, other.runs]),
            np.concatenate([self.at, other.at]), np.concatenate([self.stretch, other.stretch]),
        )  # fmt: skip

    def queues(self) -> list[bytes]:
        """Queue, generation and state of each."""
        return [key[: -_PLACE_IN_QUEUE[key[:1]]] for key in self.keys]


def walked_runs(view: MetadataView, objects: KnownObjects, start: bytes = b"") -> Iterator[WalkedRuns]:
    """All runs from a key on, live ones first, some at a time."""
    for kind in _KINDS[_KINDS.index(start[:1]) if start else 0 :]:
        pairs = view.iterate(kind, start=start if start[:1] == kind else None)
        while some := list(islice(pairs, WALKED_AT_ONCE)):
            keys, values = [key for key, _ in some], [value for _, value in some]
            runs = table(values, RUN_RECORD_DTYPE)
            yield WalkedRuns(keys, values, runs, objects.rows(runs), np.full(len(runs), -1, np.int64))
