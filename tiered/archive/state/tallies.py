"""What the records of all queues say together: walks that read them as arrays, and make no object for a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import (
    ALIAS,
    CLOSED,
    GENERATION,
    LITE_QUEUE,
    QUEUE,
    split_closed_key,
    topic_key,
    topic_of,
)
from tiered.archive.state.layout import QUEUE_DTYPE, table
from tiered.metadata.base import MetadataView

RECORDS_AT_ONCE = 8192
_QUEUE_ID_BYTES = 4


def records(
    view: MetadataView, prefix: bytes, kind: np.dtype[np.void] = QUEUE_DTYPE
) -> Iterator[tuple[Sequence[tuple[bytes, bytes]], npt.NDArray[np.void]]]:
    """Pairs of queues or of their earlier generations, some thousand at a time, and their records; or, of another ``kind``, of
    runs (``RUN_RECORD_DTYPE``)."""
    pairs = view.iterate(prefix)
    while chunk := list(islice(pairs, RECORDS_AT_ONCE)):
        yield chunk, table([value for _, value in chunk], kind)


@dataclass(frozen=True, slots=True)
class Totals:
    """All queues' current generations together."""

    queues: int
    messages: int
    bytes: int
    runs: int


def totals(view: MetadataView, prefix: bytes = QUEUE) -> Totals:
    """What all queues of this kind hold."""
    sums = np.zeros(4, np.int64)
    for chunk, found in records(view, prefix):
        sums += [len(chunk), *(int(found[name].sum()) for name in ("messages", "bytes", "runs"))]
    return Totals(*sums.tolist())


def count(view: MetadataView, prefix: bytes) -> int:
    """How many records of a kind there are."""
    return sum(1 for _ in view.iterate(prefix))


def message_count(view: MetadataView) -> int:
    """Messages that can be read, of all queues."""
    return sum(int(found["messages"].sum()) for _, found in records(view, QUEUE))


def lite_tally(view: MetadataView) -> Totals | None:
    """All lite queues together, with the bytes that their alias runs take in the fold; ``None`` where none was ever seen."""
    found = totals(view, LITE_QUEUE)
    size = sum(len(key) + len(value) for key, value in view.iterate(ALIAS)) if found.queues else 0
    return replace(found, bytes=size) if found.queues else None


def topic_bytes(view: MetadataView, topic: str) -> int:
    """Bytes of a topic's live records, of all generations of its queues."""
    head = topic_key(topic)
    return sum(
        int(found["bytes"].sum())
        for prefix in (QUEUE, GENERATION)
        for _, found in records(view, prefix + head)
    )


def kept_topics(view: MetadataView) -> set[str]:
    """Topics of which a live run or a closed part is kept: of others there is nothing left to trim."""
    heads: set[bytes] = set()
    for prefix, tail in ((QUEUE, _QUEUE_ID_BYTES), (GENERATION, 2 * _QUEUE_ID_BYTES)):
        for chunk, found in records(view, prefix):
            heads.update(chunk[at][0][1:-tail] for at in np.flatnonzero(found["runs"] > 0).tolist())
    heads.update(split_closed_key(key)[0][:-_QUEUE_ID_BYTES] for key, _ in view.iterate(CLOSED))
    return set(map(topic_of, heads))


def empty_topics(view: MetadataView) -> dict[str, int]:
    """Topics that have queues, and of which neither a live run nor a closed part is kept, with how many queues each has."""
    heads: Counter[bytes] = Counter()
    for chunk, found in records(view, QUEUE):
        heads.update(chunk[at][0][1:-_QUEUE_ID_BYTES] for at in np.flatnonzero(found["runs"] == 0).tolist())
    kept = kept_topics(view) if heads else set()
    return {
        topic: queues
        for topic, queues in zip(map(topic_of, heads), heads.values(), strict=True)
        if topic not in kept
    }
