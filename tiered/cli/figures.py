"""What ``tiered status`` counts of all queues: one walk over each kind of record, a piece of the archive after the other."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from tiered.archive.checkpoint.pieces import all_pieces
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.mergeplan import Window
from tiered.archive.rewrite.seal import SealOptions
from tiered.archive.rewrite.sealplan import Sealable
from tiered.archive.rewrite.waiting import Waiting
from tiered.archive.state.forgotten import KeptBack, kept_back
from tiered.archive.state.keys import CLOSED, GAP, QUEUE, topic_of
from tiered.archive.state.tallies import Totals, count, lite_tally, records
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.archive.state.walking import QUEUE_ID_BYTES
from tiered.metadata.base import MetadataView
from tiered.settings import Settings

NOTHING = Totals(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all queues. ``lite``: ``None`` where no lite queue was ever seen. ``empty_queues`` have no run; ``waiting_queues`` of
    them are of topics that were asked for. ``topics``: messages of each, if they were asked for, and ``kept``: what keeps
    queues beside live messages, of those that have such. ``objects``: all, in the order of the log."""

    queues: Totals
    gaps: int
    closed_parts: int
    lite: Totals | None
    empty_queues: int
    waiting_queues: int
    topics: dict[str, int]
    kept: dict[str, KeptBack]
    merging: list[Window]
    sealing: list[Sealable]
    objects: list[ObjectState]


def figures(
    state: ArchiveState,
    settings: Settings,
    now_ms: int,
    *,
    gone: Collection[bytes] = (),
    by_topic: bool = False,
) -> Figures:
    """Figures of a fold. ``gone``: keys of topics whose empty queues are counted apart."""
    merging, sealing = MergeOptions.of(settings), SealOptions.of(settings)
    waiting = Waiting(state, merging.bounds, sealing.bounds, now_ms)
    queues, lite = _Queues(gone, by_topic), NOTHING
    gaps = closed = 0
    kept: dict[str, KeptBack] = {}
    for piece in all_pieces(state.view):
        queues.add(piece)
        waiting.add(piece)
        gaps, closed = gaps + count(piece, GAP), closed + count(piece, CLOSED)
        lite = _both(lite, lite_tally(piece) or NOTHING)
        if by_topic:
            kept.update(kept_back(piece))
    return Figures(
        queues.totals, gaps, closed, lite if lite.queues else None, queues.empty, queues.waiting,
        {topic_of(head): messages for head, messages in queues.topics.items()}, kept, waiting.merging(),
        waiting.sealing(), waiting.objects(),
    )  # fmt: skip


class _Queues:
    """Sums over the records of queues."""

    def __init__(self, gone: Collection[bytes], by_topic: bool) -> None:
        self.totals, self.empty, self.waiting = NOTHING, 0, 0
        self.topics: Counter[bytes] = Counter()
        self._gone, self._by_topic = gone, by_topic

    def add(self, piece: MetadataView) -> None:
        for chunk, found in records(piece, QUEUE):
            all_of = (int(found[name].sum()) for name in ("messages", "bytes", "runs"))
            self.totals = _both(self.totals, Totals(len(chunk), *all_of))
            empty = np.flatnonzero(found["runs"] == 0).tolist()
            self.empty += len(empty)
            if self._gone:
                self.waiting += sum(head in self._gone for head in _heads(chunk[row][0] for row in empty))
            if self._by_topic:
                heads = list(_heads(key for key, _ in chunk))
                other = np.fromiter(map(operator.ne, heads, [b"", *heads]), np.bool_, len(heads))
                first = np.flatnonzero(other)
                sums = np.add.reduceat(found["messages"], first).tolist()
                for row, messages in zip(first.tolist(), sums, strict=True):
                    self.topics[heads[row]] += messages


def _heads(keys: Iterator[bytes]) -> Iterator[bytes]:
    """Of each key of a queue's record that of its topic."""
    return (key[1:-QUEUE_ID_BYTES] for key in keys)


def _both(one: Totals, other: Totals) -> Totals:
    return Totals(
        one.queues + other.queues,
        one.messages + other.messages,
        one.bytes + other.bytes,
        one.runs + other.runs,
    )
