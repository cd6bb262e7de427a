"""What the archive holds of many queues, in the order in which the broker stored it: queues are read side by side, and as much
is given at a time as no queue can have anything before.

Memory: a block of each queue, and once more what is given at a time, so the number of queues is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tiered.archive.read.flatfile import Stretch
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.layout import physical_offsets
from tiered.codec.types import Ints
from tiered.errors import Invalid
from tiered.feed.runsahead import QueueToRead

MAX_QUEUES = 1024
"""Side by side, each with a block in memory: 256 KiB, or more where a message is larger or the block is a sealed one."""

_LINEAGE = 1 << 50
"""More than any physical offset: what a later lineage has comes behind what an earlier one had."""


class _Head:
    """Where the reading of a queue is: records that were not given yet."""

    def __init__(self, queue: QueueToRead) -> None:
        self.queue = queue
        self._coming = self._stretches()
        self._stretch: Stretch | None = None
        self._places: Ints = np.empty(0, np.int64)
        self._at = 0

    def _stretches(self) -> Iterator[tuple[Stretch, int]]:
        file, first = self.queue.file, self.queue.first
        for run in file.runs(max(first, int(file.min_offset))):
            for stretch in file.read_run(run, first):
                yield stretch, run.lineage

    @property
    def holds(self) -> bool:
        """Whether something is there to give."""
        return self._at < len(self._places)

    @property
    def last(self) -> int:
        """Place of the last record that is held."""
        return int(self._places[-1])

    def fill(self) -> None:
        """Read on, if nothing is held: then nothing is only at the end."""
        while not self.holds and (found := next(self._coming, None)) is not None:
            self._stretch, lineage = found
            self._places = physical_offsets(self._stretch.data, self._stretch.starts) + lineage * _LINEAGE
            self._at = 0

    def take(self, bound: int) -> tuple[Stretch, Ints] | None:
        """The records up to a place, and their places."""
        first, end = self._at, int(np.searchsorted(self._places, bound, "right"))
        if end <= first or self._stretch is None:
            return None
        self._at = end
        return self._stretch.cut(first, end), self._places[first:end]


def in_log_order(queues: Sequence[QueueToRead], ahead: int) -> Iterator[tuple[bytes, Frames]]:
    """All records of these queues from where they are wanted, in the broker's order: stretches of them, each with the frames in
    that order. Up to ``ahead`` queues are read at once. ``Invalid`` for more than ``MAX_QUEUES``."""
    if len(queues) > MAX_QUEUES:
        raise Invalid(
            "the order of a whole log is kept of no more queues than this", found=len(queues), expected=f"≤ {MAX_QUEUES}",
            hint="tiered sink topics gives fewer topics to it, or add a sink that keeps each queue's order alone",
        )  # fmt: skip
    heads = [_Head(queue) for queue in queues]
    pool = ThreadPoolExecutor(ahead, "feed-ahead")
    try:
        while heads:
            list(pool.map(_Head.fill, [head for head in heads if not head.holds]))
            heads = [head for head in heads if head.holds]
            if heads:
                bound = _bound(heads)
                yield _merged([part for head in heads if (part := head.take(bound)) is not None])
    finally:  # whoever drops this waits for nothing
        pool.shutdown(wait=False, cancel_futures=True)


def _bound(heads: Sequence[_Head]) -> int:
    """Up to where nothing is missing: what a queue may still have lies behind the last that is held of it."""
    return min(head.last for head in heads)


def _merged(parts: Sequence[tuple[Stretch, Ints]]) -> tuple[bytes, Frames]:
    bases = np.cumsum([0, *(len(stretch.data) for stretch, _ in parts[:-1])])
    data = b"".join(stretch.data for stretch, _ in parts)
    starts = np.concatenate([s.starts + base for (s, _), base in zip(parts, bases, strict=True)])
    sizes = np.concatenate([stretch.sizes for stretch, _ in parts])
    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
    return data, Frames(starts[order], sizes[order], len(data), Stop.END)
