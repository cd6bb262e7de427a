"""Which queues a partial view of an archive is about. What is of no queue (head, marks, objects) every view has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import (
    ALIAS,
    CLOSED,
    GAP,
    GENERATION,
    LITE_QUEUE,
    QUEUE,
    RUN,
    SINK,
    SINK_MAP,
    SINK_QUEUE,
    U4,
    queue_of,
    topic_beginning,
    topic_key,
)
from tiered.codec.format.edits import EditBatch

OF_QUEUES = frozenset((QUEUE, GENERATION, RUN, CLOSED, GAP, LITE_QUEUE, ALIAS))
"""Prefixes of keys that begin with a queue."""

OF_SINKS = frozenset((SINK, SINK_QUEUE, SINK_MAP))
"""What is of no queue, and yet is only folded with everything: a reader of some queues is never asked for it."""

Pair = tuple[bytes, bytes]

KNOWN_TOPICS = 1 << 15
"""Of so many topics is kept whether they lie in a stretch: each commit that is folded for it asks again."""

_TOPIC_END = topic_key("")
_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Scope:
    """Queues by topic: some ids, or all with ``None``; all of topics whose names begin with one of ``beginnings``; and all of
    those whose ``topic_key`` lies in ``stretch``, from the first key on to below the second (``None``: to the end).
    ``topics`` ``None``: every queue there is."""

    topics: Mapping[str, frozenset[int] | None] | None = None
    beginnings: tuple[str, ...] = ()
    stretch: tuple[bytes, bytes | None] | None = None
    _inside: _Inside = field(init=False, compare=False, repr=False)
    prefixes: tuple[bytes, ...] = field(init=False, compare=False)
    """What the queue part of a key begins with; sorted, none of them the beginning of another."""

    def __post_init__(self) -> None:
        made = [b""] if self.topics is None else []
        for topic, ids in (self.topics or {}).items():
            head = topic_key(topic)
            if not topic.startswith(self.beginnings):
                made += [head] if ids is None else [head + U4.pack(i) for i in sorted(ids)]
        made += [topic_beginning(name) for name in _outermost(self.beginnings)]
        object.__setattr__(self, "_inside", _Inside(self.stretch or (b"", b"")))
        object.__setattr__(self, "prefixes", tuple(sorted(made)))

    @classmethod
    def queue(cls, topic: str, queue_id: int) -> Scope:
        """One queue."""
        return cls({topic: frozenset((queue_id,))})

    @classmethod
    def topic(cls, topic: str) -> Scope:
        """All queues of a topic."""
        return cls({topic: None})

    @classmethod
    def beginning(cls, prefix: str) -> Scope:
        """All queues of the topics whose names begin with ``prefix``."""
        return cls({}, (prefix,)) if prefix else cls()

    @classmethod
    def between(cls, first: bytes, end: bytes | None) -> Scope:
        """All queues of the topics of a stretch of the keys."""
        return cls({}, stretch=(first, end))

    @property
    def everything(self) -> bool:
        """Whether every queue is in it."""
        return self.topics is None

    @property
    def width(self) -> int | None:
        """How many queues, or topics as wholes, it names; ``None``: nobody can say."""
        if self.topics is None or self.beginnings or self.stretch is not None:
            return None
        return sum(1 if ids is None else len(ids) for ids in self.topics.values())

    def has(self, topic: str, queue_id: int) -> bool:
        """Whether a queue is in it."""
        if self.topics is None or topic.startswith(self.beginnings) or self._stretches(topic_key(topic)):
            return True
        ids = self.topics.get(topic, frozenset())
        return ids is None or queue_id in ids

    def has_key(self, queue: bytes) -> bool:
        """``has`` for a queue's key."""
        return queue.startswith(self.prefixes) or self._stretches(queue)

    def walk(self, scan: Callable[..., Iterator[Pair]], kind: bytes) -> Iterator[Pair]:
        """Pairs of one of ``OF_QUEUES`` whose queues are in it, as ``scan`` (``MetadataView.iterate``) finds them."""
        for prefix in self.prefixes:
            yield from scan(kind + prefix)
        if self.stretch is not None:
            first, end = self.stretch
            pairs = scan(kind, start=kind + first)
            yield from pairs if end is None else takewhile(lambda pair: pair[0] < kind + end, pairs)

    def _stretches(self, key: bytes) -> bool:
        """Whether a key that begins with a ``topic_key`` lies in the stretch."""
        return self.stretch is not None and _lies(key, *self.stretch)

    def rows(self, batch: EditBatch) -> npt.NDArray[np.int64] | None:
        """Rows of a batch with a topic and a queue id whose queues are in it; ``None``: all, without a look at them."""
        if self.topics is None:
            return None
        topics: Sequence[str] = batch.columns["topic"]
        named = np.fromiter(map(self.topics.__contains__, topics), np.bool_, len(topics))
        if self.beginnings:
            named |= np.fromiter((t.startswith(self.beginnings) for t in topics), np.bool_, len(topics))
        if self.stretch is not None:
            self._inside.make_room()
            named |= np.fromiter(map(self._inside.__getitem__, topics), np.bool_, len(topics))
        rows = np.flatnonzero(named)
        if not self.topics:
            return rows  # whole topics, all of them
        ids = batch.ints("queue_id")
        return np.array([r for r in rows.tolist() if self.has(topics[r], int(ids[r]))], np.int64)

    def covers(self, prefix: bytes) -> bool:
        """Whether every key of the fold that begins with ``prefix`` is in it."""
        if self.topics is None:
            return True
        if not prefix or prefix[:1] in OF_SINKS:
            return False
        if prefix[:1] not in OF_QUEUES or prefix[1:].startswith(self.prefixes):
            return True
        return _TOPIC_END in prefix and self._stretches(prefix[1:])

    def wider(self, prefix: bytes) -> Scope:
        """This and what covers ``prefix``: a queue, a topic, or else everything."""
        queue = prefix[1:]
        at = queue.find(_TOPIC_END)
        if self.topics is None or prefix[:1] not in OF_QUEUES or at < 0:
            return Scope()
        end = at + len(_TOPIC_END)
        if len(queue) < end + _ID_BYTES:
            return self | Scope.topic(queue_of(queue[:end] + bytes(_ID_BYTES)).topic)
        mq = queue_of(queue[: end + _ID_BYTES])
        return self | Scope.queue(mq.topic, mq.queue_id)

    def __or__(self, other: Scope) -> Scope:
        if self.topics is None or other.topics is None or (self.stretch or other.stretch) is not None:
            return Scope()
        made = dict(self.topics)
        for topic, ids in other.topics.items():
            mine = made.get(topic, frozenset())
            made[topic] = None if mine is None or ids is None else mine | ids
        return Scope(made, _outermost((*self.beginnings, *other.beginnings)))


class _Inside(dict[str, bool]):
    """Which topics lie in a stretch, as far as it was asked."""

    def __init__(self, stretch: tuple[bytes, bytes | None]) -> None:
        super().__init__()
        self._stretch = stretch

    def __missing__(self, topic: str) -> bool:
        found = self[topic] = _lies(topic_key(topic), *self._stretch)
        return found

    def make_room(self) -> None:
        """Forget all of them if they are many."""
        if len(self) > KNOWN_TOPICS:
            self.clear()


def _lies(key: bytes, first: bytes, end: bytes | None) -> bool:
    return key >= first and (end is None or key < end)


def _outermost(names: Sequence[str]) -> tuple[str, ...]:
    """Those that begin with none of the others."""
    made: list[str] = []
    for name in sorted(set(names)):
        if not made or not name.startswith(made[-1]):
            made.append(name)
    return tuple(made)


EVERYTHING = Scope()
