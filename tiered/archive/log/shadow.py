"""The fold of what lies in the bucket, beside the writer's own: what a checkpoint is made from.

A checkpoint outlives every local state and is believed by every reader, so it is not made from the writer's cached fold alone.
The shadow reads the commits back and folds them itself, from where its own state ends; both folds must then be the same, pair
by pair. Where they are not, all commits are folded once more from the beginning, or, where the first ones were removed, from
the oldest checkpoint that is kept: what comes of that is the truth, and the side that differs from it is named.
"""

from __future__ import annotations

from enum import Enum
from itertools import zip_longest
from operator import ne

from tiered.archive.checkpoint.store import fold_pairs
from tiered.archive.log.reader import LogReader
from tiered.archive.state.view import ArchiveState
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataStore, MetadataView


class FoldCheck(Enum):
    """What a comparison found."""

    SAME = "same"
    CHECKPOINT_WRONG = "a checkpoint was wrong"
    LOCAL_WRONG = "the local fold is wrong"


class Shadow:
    """A second fold of one archive. One thread. ``store`` is this fold's own and may be of any former life: it is checked."""

    def __init__(self, reader: LogReader, store: MetadataStore) -> None:
        self._reader = reader
        self._store = store

    @property
    def view(self) -> MetadataView:
        """The fold; nothing changes it until the next call."""
        return self._store

    def compare(self, view: MetadataView) -> FoldCheck:
        """Fold the bucket up to the head of ``view`` and compare; ``self.view`` is the fold of the log afterwards.

        ``NotFound`` and ``Corrupt`` if the bucket cannot be folded; ``Unavailable``.
        """
        head = ArchiveState(view).head()
        if head is None:
            raise Corrupt("an empty fold cannot be compared", expected="a head", found="none")
        self._reader.fold_until(self._store, head.seq)
        if difference(self._store, view) is None:
            return FoldCheck.SAME
        folded = ArchiveState(self._store).head()
        floor = max(head.floor, 0 if folded is None else folded.floor)
        self._reader.fold_all(self._store, head.seq, floor=floor)
        return FoldCheck.CHECKPOINT_WRONG if difference(self._store, view) is None else FoldCheck.LOCAL_WRONG


def difference(one: MetadataView, other: MetadataView) -> bytes | None:
    """The first key at which two folds differ; ``None`` if they are the same."""
    pairs = zip_longest(fold_pairs(one), fold_pairs(other))
    left, right = next((both for both in pairs if ne(*both)), (None, None))
    present = [pair[0] for pair in (left, right) if pair is not None]
    return min(present, default=None)
