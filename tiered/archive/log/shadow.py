"""The fold of what lies in the bucket, beside the writer's own: what a checkpoint is made from.

A checkpoint outlives every local state and is believed by every reader, so it is not made from the writer's cached fold alone.
The shadow reads the commits back and folds them itself, from where its own state ends; both folds must then be the same, pair
by pair. They are compared while the checkpoint is written: its manifest comes last, so there is none of what differs. Where
they do, all commits are folded once more from the beginning, or, where the first ones were removed, from the oldest checkpoint
that is kept: what comes of that is the truth, and the side that differs from it is named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import islice, zip_longest
from operator import ne

from tiered.archive.checkpoint.store import fold_pairs
from tiered.archive.log.reader import LogReader
from tiered.archive.state.layers import Pair
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataStore, MetadataView

COMPARED_AT_ONCE = 4096


class FoldCheck(Enum):
    """What a comparison found."""

    SAME = "same"
    CHECKPOINT_WRONG = "a checkpoint was wrong"
    LOCAL_WRONG = "the local fold is wrong"


class FoldsDiffer(Exception):
    """Two folds are not the same: ``key`` is the first at which they differ."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key.hex())
        self.key = key


class Shadow:
    """A second fold of one archive. One thread. ``store`` is this fold's own and may be of any former life: it is checked."""

    def __init__(self, reader: LogReader, store: MetadataStore) -> None:
        self._reader = reader
        self._store = store

    @property
    def view(self) -> MetadataView:
        """The fold; nothing changes it until the next call."""
        return self._store

    def follow(self, view: MetadataView) -> None:
        """Fold the bucket up to the head of ``view``. ``NotFound`` and ``Corrupt`` if it cannot be folded; ``Unavailable``."""
        self._reader.fold_until(self._store, _head(view).seq)

    def compared(self, view: MetadataView) -> Iterator[Pair]:
        """All pairs of this fold, none of which comes before it was found in ``view``, too: ``FoldsDiffer`` at the first that
        was not, and at the end if ``view`` has more."""
        return compared(self._store, view)

    def judge(self, view: MetadataView) -> FoldCheck:
        """Which was wrong, after they differed; ``self.view`` is the fold of the log afterwards. Errors as of ``follow``."""
        head = _head(view)
        folded = ArchiveState(self._store).head()
        floor = max(head.floor, 0 if folded is None else folded.floor)
        self._reader.fold_all(self._store, head.seq, floor=floor)
        return FoldCheck.CHECKPOINT_WRONG if difference(self._store, view) is None else FoldCheck.LOCAL_WRONG


def _head(view: MetadataView) -> Head:
    head = ArchiveState(view).head()
    if head is None:
        raise Corrupt("an empty fold cannot be compared", expected="a head", found="none")
    return head


def compared(one: MetadataView, other: MetadataView) -> Iterator[Pair]:
    """The pairs of ``one``, as long as ``other`` has the same; ``FoldsDiffer``."""
    sides = fold_pairs(one), fold_pairs(other)
    while True:
        left, right = (list(islice(side, COMPARED_AT_ONCE)) for side in sides)
        if left != right:
            pairs = next(both for both in zip_longest(left, right) if ne(*both))
            raise FoldsDiffer(min(pair[0] for pair in pairs if pair is not None))
        if not left:
            return
        yield from left


def difference(one: MetadataView, other: MetadataView) -> bytes | None:
    """The first key at which two folds differ; ``None`` if they are the same."""
    try:
        deque(compared(one, other), maxlen=0)
    except FoldsDiffer as found:
        return found.key
    return None
