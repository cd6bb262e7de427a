"""What a comparison found: numbers for each queue, in arrays, and the words for them."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tiered.sink.comparison.holes import Holes
from tiered.sink.comparison.scope import QueueScope

DIFFERENCES = ("lost", "doubled", "reordered", "changed", "extra")
COUNTS = ("same", *DIFFERENCES, "dead_letters", "not_comparable", "ahead", "others")
TOTALS = (*COUNTS, "other_sinks")
"""``same``: there once, with the same content. ``lost``: given by the sink's word, and not there. ``doubled``: further times
that one is there. ``reordered``: behind a later one of its queue. ``changed``: there, with another content. ``extra``: at an
offset that the archive has no message for, or one that the sink's shape leaves out. ``dead_letters``: not there, but in the
place for what the destination cannot take. ``not_comparable``: on one side only because the other deleted it, or the sink
never was to have it. ``ahead``: behind the position. ``others``: of another broker, or of an earlier life of the queue.
``other_sinks``: of another sink, whose records say so; of all that was read."""
NONE = np.iinfo(np.int64).max


class SinkVerdict(StrEnum):
    """``INCOMPLETE``: what could be compared is the same, and that was not all."""

    SAME = "same"
    DIFFERENT = "DIFFERENT"
    INCOMPLETE = "incomplete"


class QueueFound(NamedTuple):
    """Of one queue. ``first``: the kind of the first difference by its offset, ``first_offset``; ``None``: there is none."""

    topic: str
    queue_id: int
    same: int
    lost: int
    doubled: int
    reordered: int
    changed: int
    extra: int
    dead_letters: int
    not_comparable: int
    ahead: int
    others: int
    first: str | None
    first_offset: int | None

    @property
    def different(self) -> bool:
        """Whether anything is not as it should be."""
        return self.first is not None


class Compared(NamedTuple):
    """``queues``: those with anything to tell but ``same``, the first of them; ``totals`` are of all. ``unread``: what could
    not be compared, in words."""

    verdict: SinkVerdict
    compared_queues: int
    different_queues: int
    totals: dict[str, int]
    queues: tuple[QueueFound, ...]
    unread: tuple[str, ...]


class Tally:
    """Numbers by queue."""

    def __init__(self, queues: int) -> None:
        self.counts: npt.NDArray[np.int64] = np.zeros((len(COUNTS), queues), np.int64)
        self.first: npt.NDArray[np.int64] = np.full((len(DIFFERENCES), queues), NONE, np.int64)

    def add(self, kind: str, queue: int, count: int, first: int | None = None) -> None:
        """So many messages; ``first``: the first offset, of differences."""
        if count:
            self.counts[COUNTS.index(kind), queue] += count
        if count and first is not None:
            at = DIFFERENCES.index(kind)
            self.first[at, queue] = min(int(self.first[at, queue]), first)

    def move(self, queue: int, old: str, new: str, first: int | None = None) -> None:
        """One message that was counted as ``old``."""
        self.counts[COUNTS.index(old), queue] -= 1
        self.add(new, queue, 1, first)

    def told(self, queue: int, scope: QueueScope, holes: Holes) -> QueueFound:
        """Of one queue."""
        counts = dict(zip(COUNTS, self.counts[:, queue].tolist(), strict=True))
        firsts = {
            kind: int(first)
            for kind, first in zip(DIFFERENCES, self.first[:, queue], strict=True)
            if counts[kind]
        }
        still = holes.first(queue)
        if "lost" in firsts and still is not None:
            firsts["lost"] = still
        first = min(firsts, key=firsts.__getitem__, default=None)
        place = scope.queue
        return QueueFound(
            place.topic, place.queue_id, **counts, first=first, first_offset=None if first is None else firsts[first]
        )  # fmt: skip
