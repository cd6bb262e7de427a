"""Queues of which nothing is left, and what is known of those that were forgotten (DESIGN.md, "Queues that are gone")."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.archive.state.keys import (
    ALIAS,
    CLOSED,
    GAP,
    GENERATION,
    QUEUE,
    RUN,
    prefixed,
    split_closed_key,
    split_run_key,
    topic_of,
)
from tiered.archive.state.layout import QUEUE_DTYPE, RUN_RECORD_DTYPE, packed_table, table
from tiered.archive.state.tallies import records
from tiered.archive.state.walking import QUEUE_ID_BYTES
from tiered.codec.types import Ints
from tiered.metadata.base import MetadataView

FORGOTTEN_QUEUES = "forgotten-queues"
"""Required by the ``OpenEpoch`` of archives in which queues may be forgotten."""

LEFT_BEHIND = (RUN, CLOSED, GAP, ALIAS)
"""Prefixes under which a queue has something that keeps it."""

Walk = Callable[[bytes, bytes], Iterator[tuple[bytes, bytes]]]
"""Pairs below a prefix from a key on, ascending."""


def occupied(walk: Walk, prefix: bytes, queues: Sequence[bytes]) -> Iterator[bytes]:
    """Which of these queues (keys, ascending) have a pair below ``prefix``.

    As many steps as there are such queues, or stretches of queues without any between others that have some: from each pair
    that is met it goes on behind the last queue that is not above it.
    """
    at = 0
    while at < len(queues):
        found = next(walk(prefix, prefix + queues[at]), None)
        if found is None:
            return
        rest = found[0][1:]
        number = bisect_right(queues, rest) - 1  # no queue's key is the beginning of another's
        if rest.startswith(queues[number]):
            yield queues[number]
        at = number + 1


def without_anything(view: MetadataView, queues: Sequence[bytes]) -> list[bytes]:
    """Those of these queues (keys, ascending) that have no live run, closed part, gap or alias, in any generation."""

    def walk(prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return view.iterate(prefix, start=start)

    some = {queue for prefix in LEFT_BEHIND for queue in occupied(walk, prefix, queues)}
    return [queue for queue in queues if queue not in some]


@dataclass(frozen=True, slots=True)
class KeptBack:
    """How many queues of a topic something keeps beside live messages. ``lost``: the newest messages, which the broker lost and
    wrote nothing in place of (Q10); else ``closed``: parts of earlier generations; else ``gaps``: notes of lost messages."""

    lost: int
    closed: int
    gaps: int


def kept_back(view: MetadataView) -> Iterator[tuple[str, KeptBack]]:
    """What keeps queues from being forgotten, of each topic that has such. As many steps as there are closed parts and gaps."""
    heads = {split_closed_key(key)[0][:-QUEUE_ID_BYTES] for key, _ in view.iterate(CLOSED)}
    heads.update(split_run_key(key)[0][:-QUEUE_ID_BYTES] for key, _ in view.iterate(GAP))
    for head in sorted(heads):
        yield topic_of(head), _of_topic(view, head)


def _of_topic(view: MetadataView, of_topic: bytes) -> KeptBack:
    parts = list(view.iterate(CLOSED + of_topic))
    names = [split_closed_key(key) for key, _ in parts]
    records = table([value for _, value in parts], RUN_RECORD_DTYPE)
    ends = records["end"].tolist()
    queues = sorted({queue for queue, _ in names})
    found, _ = packed_table(view.get_many(prefixed(QUEUE, queues)))
    now = dict(
        zip(queues, zip(found["generation"].tolist(), found["max_offset"].tolist(), strict=True), strict=True)
    )
    lost = {
        queue
        for (queue, generation), end in zip(names, ends, strict=True)
        if generation == now[queue][0] and end > now[queue][1]  # no trim of this generation goes so far
    }
    gaps = {split_run_key(key)[0] for key, _ in view.iterate(GAP + of_topic)}
    return KeptBack(len(lost), len(queues) - len(lost), len(gaps.difference(queues)))


def empty_queues(view: MetadataView, topics: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Queues (keys, ascending) without anything, some thousand at a time; of topics with these ``topic_key`` alone."""
    wanted = frozenset(topics)
    for chunk, found in records(view, QUEUE):
        rows = np.flatnonzero(found["runs"] == 0).tolist()
        keys = [key for key in (chunk[row][0][1:] for row in rows) if key[:-4] in wanted]
        if keys:
            yield without_anything(view, keys)


def written_last(view: MetadataView, queues: Sequence[bytes]) -> tuple[list[bytes | None], Ints, Ints, Ints]:
    """Of queues (keys, ascending): their records, ``None`` where unknown, and what a ``ForgetQueues`` says of each: the highest
    generation, the lineage that was written last, and where its records end there."""

    def walk(prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return view.iterate(prefix, start=start)

    values = view.get_many(prefixed(QUEUE, queues))
    found, _ = packed_table(values)
    generation = found["highest_generation"].astype(np.int64)
    lineage, end = found["lineage"].astype(np.int64), found["last_physical_end"].astype(np.int64)
    number = {queue: row for row, queue in enumerate(queues)}
    for queue in occupied(walk, GENERATION, queues):
        row = number[queue]
        earlier = table([value for _, value in view.iterate(GENERATION + queue)], QUEUE_DTYPE)
        if found["generation"][row] == 0:
            lineage[row], end[row] = int(earlier["lineage"][-1]), 0
        same = earlier["last_physical_end"][earlier["lineage"] == lineage[row]]
        end[row] = max(int(end[row]), int(same.max(initial=0)))
    return values, generation, lineage, end
