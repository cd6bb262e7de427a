"""Walks over the fold for many queues at once: pages of queues, and what lies below another prefix for just these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import QUEUE
from tiered.archive.state.tallies import records
from tiered.metadata.base import MetadataView

QUEUE_ID_BYTES = 4
RUNS_OF_A_PAGE = 1 << 16
_MISSES = 16
"""Pairs of other queues that are passed before the walk jumps to the next queue asked for: a jump costs about as much."""

Page = tuple[list[bytes], npt.NDArray[np.void]]
"""Keys of queues, ascending, and their records (``QUEUE_DTYPE``)."""


def pages(view: MetadataView, *, whole_topics: bool) -> Iterator[Page]:
    """All queues, some thousand at a time, those of a page with about ``RUNS_OF_A_PAGE`` live runs at most. ``whole_topics``: a
    topic's queues are in one page, however many they are."""
    waiting: list[bytes] = []
    tables: list[npt.NDArray[np.void]] = []
    for chunk, found in records(view, QUEUE):
        keys = [key[1:] for key, _ in chunk]
        if waiting and _head(waiting[-1]) == _head(keys[0]):
            first = _begin(keys, 1, whole_topics)
            waiting += keys[:first]
            tables.append(found[:first])
            keys, found = keys[first:], found[first:]
            if not keys:
                continue
        if waiting:
            yield from _cut(waiting, np.concatenate(tables), whole_topics)
        waiting, tables = keys, [found]
    if waiting:
        yield from _cut(waiting, np.concatenate(tables), whole_topics)


def _head(key: bytes) -> bytes:
    return key[:-QUEUE_ID_BYTES]


def _begin(keys: Sequence[bytes], at: int, whole_topics: bool) -> int:
    """The first place from ``at`` on where a page may begin."""
    while whole_topics and at < len(keys) and _head(keys[at]) == _head(keys[at - 1]):
        at += 1
    return min(at, len(keys))


def _cut(keys: list[bytes], found: npt.NDArray[np.void], whole_topics: bool) -> Iterator[Page]:
    ends, first = np.cumsum(found["runs"]), 0
    while first < len(keys):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + RUNS_OF_A_PAGE, "right")), first + 1)
        last = _begin(keys, last, whole_topics)
        yield keys[first:last], found[first:last]
        first = last


def pairs_of(
    view: MetadataView, prefix: bytes, queues: Sequence[bytes], tail: int
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs below ``prefix`` of these queues (keys, ascending, each once), in order. ``tail``: bytes of a key behind its queue.

    Queues that lie side by side are one walk; where others lie between them it jumps.
    """
    at, count = 0, len(queues)
    while at < count:
        misses, wanted = 0, queues[at]
        for pair in view.iterate(prefix, start=prefix + wanted):
            queue = pair[0][1:-tail]
            while wanted < queue:
                at += 1
                if at == count:
                    return
                wanted = queues[at]
            if wanted == queue:
                misses = 0
                yield pair
            elif misses == _MISSES:
                break
            else:
                misses += 1
        else:
            return
