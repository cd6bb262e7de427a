"""Topics and queues in order, all of them or from a name on: walked once, as arrays, with the gaps beside them.

What lists an archive of a million queues works on these. Nothing is kept but the piece of the walk that is in hand.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np

from tiered.archive.state.keys import GAP, QUEUE, queue_key, queue_of, topic_beginning, topic_key
from tiered.archive.state.layout import NO_TIME_HIGH, NO_TIME_LOW, QUEUE_DTYPE, QueueRecord, table
from tiered.archive.state.values import GapState, QueueState, gap_state, queue_state
from tiered.metadata.base import MetadataView
from tiered.model import MessageQueue

_FIRST_CHUNK, _CHUNK = 64, 8192
"""Records looked at together: few at first, since many want a page."""
_ID_BYTES = 4
_GAP_TAIL = 12  # generation u4, start u8


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's queues together. Store times bound the live runs; ``None`` without any. ``gaps``: ranges of queue offsets that
    can never be served."""

    topic: str
    queues: int
    messages: int
    bytes: int
    min_store_time: int | None
    max_store_time: int | None
    gaps: int


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """A queue and its gaps, by generation and offset."""

    queue: QueueState
    gaps: tuple[GapState, ...]


def list_topics(view: MetadataView, *, prefix: str = "", after: str | None = None) -> Iterator[TopicState]:
    """Topics whose names begin with ``prefix``, in the order of their bytes; those above ``after``."""
    # The topic's part of a key ends in 01, so that nothing of it lies at or above the same with 02.
    start = None if after is None else topic_key(after)[:-1] + b"\x02"
    gaps = _Gaps(view, prefix, start, _GAP_TAIL + _ID_BYTES)
    open_topic: TopicState | None = None
    for keys, values in _chunks(view, prefix, start):
        names = [key[1:-_ID_BYTES] for key in keys]
        begins = np.flatnonzero(np.fromiter(map(operator.ne, names, [b"", *names]), np.bool_, len(names)))
        records = table(values, QUEUE_DTYPE)
        sums = [np.add.reduceat(records[name], begins).tolist() for name in ("messages", "bytes")]
        low = np.minimum.reduceat(records["min_store_time"], begins).tolist()
        high = np.maximum.reduceat(records["max_store_time"], begins).tolist()
        counts = np.diff(begins, append=len(names)).tolist()
        for begin, count, messages, size, oldest, newest in zip(
            begins.tolist(), counts, *sums, low, high, strict=True
        ):
            made = TopicState(
                queue_of(keys[begin][1:]).topic, count, messages, size,
                None if oldest == NO_TIME_LOW else oldest, None if newest == NO_TIME_HIGH else newest, 0,
            )  # fmt: skip
            if open_topic is None:
                open_topic = made
            elif open_topic.topic == made.topic:
                open_topic = _together(open_topic, made)
            else:
                yield _with_gaps(open_topic, gaps)
                open_topic = made
    if open_topic is not None:
        yield _with_gaps(open_topic, gaps)


def list_queues(
    view: MetadataView, *, topic: str | None = None, prefix: str = "", after: MessageQueue | None = None
) -> Iterator[ListedQueue]:
    """Queues of a topic, or of the topics whose names begin with ``prefix``, by topic and id; those above ``after``."""
    start = None if after is None else queue_key(after) + b"\0"
    gaps = _Gaps(view, prefix, start, _GAP_TAIL, topic)
    for keys, values in _chunks(view, prefix, start, topic):
        for key, record in zip(keys, table(values, QUEUE_DTYPE).tolist(), strict=True):
            queue = queue_of(key[1:])
            yield ListedQueue(queue_state(queue, QueueRecord(*record)), gaps.of(key[1:]))


class _Gaps:
    """Gaps of queues or topics, asked for in the order of their keys. ``tail``: bytes of a key behind what is asked for."""

    def __init__(
        self, view: MetadataView, prefix: str, start: bytes | None, tail: int, topic: str | None = None
    ) -> None:
        pairs = view.iterate(GAP + _beginning(prefix, topic), start=None if start is None else GAP + start)
        self._groups = groupby(pairs, key=lambda pair: pair[0][1:-tail])
        self._next = next(self._groups, None)

    def of(self, wanted: bytes) -> tuple[GapState, ...]:
        while self._next is not None and self._next[0] < wanted:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] != wanted:
            return ()
        found = tuple(gap_state(key, value) for key, value in self._next[1])
        self._next = next(self._groups, None)
        return found


def _chunks(
    view: MetadataView, prefix: str, start: bytes | None, topic: str | None = None
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    pairs = view.iterate(QUEUE + _beginning(prefix, topic), start=None if start is None else QUEUE + start)
    size = _FIRST_CHUNK
    while chunk := list(islice(pairs, size)):
        yield [key for key, _ in chunk], [value for _, value in chunk]
        size = min(2 * size, _CHUNK)


def _beginning(prefix: str, topic: str | None) -> bytes:
    return topic_beginning(prefix) if topic is None else topic_key(topic)


def _with_gaps(topic: TopicState, gaps: _Gaps) -> TopicState:
    found = gaps.of(topic_key(topic.topic))
    return replace(topic, gaps=len(found)) if found else topic


def _together(one: TopicState, other: TopicState) -> TopicState:
    oldest = [t for t in (one.min_store_time, other.min_store_time) if t is not None]
    newest = [t for t in (one.max_store_time, other.max_store_time) if t is not None]
    return TopicState(
        one.topic, one.queues + other.queues, one.messages + other.messages, one.bytes + other.bytes,
        min(oldest, default=None), max(newest, default=None), 0,
    )  # fmt: skip
