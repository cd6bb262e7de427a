"""Which messages of a feed a sink is given, each once and in the order of its queue, and what is missing between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tiered.codec.record.batch import MessageBatch
from tiered.codec.types import Ints
from tiered.feed.base import FeedBatch, Follow, Passed
from tiered.feed.ends import queue_ends
from tiered.model import MessageQueue


class LostRange(NamedTuple):
    """Queue offsets [``first``, ``end``) that a sink was never given, or had and the broker lost, and why. ``generation``: of
    which life of the queue, in the latter case."""

    queue: MessageQueue
    first: int
    end: int
    why: str
    generation: int = 0

    @property
    def messages(self) -> int:
        """How many offsets."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Chosen:
    """``rows`` to give, ascending. ``lost``: what is missing before or between them. ``anew``: queues that begin again."""

    rows: Ints
    lost: tuple[LostRange, ...] = ()
    anew: tuple[MessageQueue, ...] = ()


NOWHERE_TO_BE_HAD = "not in the log, nor in the archive"
_NO_ROWS = np.empty(0, np.int64)


class Chooser:
    """How far a sink is in each queue, moved by what it is given. One thread.

    ``changed``: queues that moved since it was last emptied; ``back``: whether one of them began anew. Only topics that are
    ``wanted`` have rows. ``counts_inner``: as of ``Life``.
    """

    def __init__(
        self,
        follows: Mapping[MessageQueue, Follow],
        wanted: Callable[[str], bool],
        counts_inner: Callable[[str, int], bool],
    ) -> None:
        self.follows = dict(follows)
        self.wanted = wanted
        self._counts_inner = counts_inner
        self.changed: dict[MessageQueue, Follow] = {}
        self.back = False

    def following(self, queue: MessageQueue) -> Follow:
        """For a feed that reads queue by queue. What is not to be compared with the log is not: ``reconciled`` did that."""
        return Follow(self.follows.get(queue, Follow()).next)

    def choose(self, batch: FeedBatch) -> Chosen:
        """What of a batch is new. Offsets below a queue's next are repeats, unless they lie behind its last message in the log:
        then the queue began anew."""
        if batch.anew is not None:
            self._move(batch.anew, Follow())
        lost: list[LostRange] = []
        anew: list[MessageQueue] = [] if batch.anew is None else [batch.anew]
        taken, messages = [_NO_ROWS], batch.messages
        wanted = np.fromiter(map(self.wanted, messages.topics), np.bool_, len(messages.topics))
        mine = np.flatnonzero(wanted[messages.headers["topic_index"]]) if len(messages) else _NO_ROWS
        if len(mine):
            ends = queue_ends(messages)
            for queue, rows in _by_queue(messages, mine):
                taken.append(self._queue(queue, rows, messages, ends, batch, lost, anew))
        if batch.passed is not None:
            self._pass(batch.passed, batch.lost, lost)
        return Chosen(np.sort(np.concatenate(taken)), tuple(lost), tuple(anew))

    def _pass(self, passed: Passed, why: str | None, lost: list[LostRange]) -> None:
        """No message follows that would show what is missing of a queue."""
        follow = self.follows.get(passed.queue, Follow())
        if follow.next < passed.end:
            lost.append(LostRange(passed.queue, follow.next, passed.end, why or NOWHERE_TO_BE_HAD))
            self._move(passed.queue, Follow(passed.end, follow.physical))

    def _queue(
        self,
        queue: MessageQueue,
        rows: Ints,
        messages: MessageBatch,
        ends: Ints,
        batch: FeedBatch,
        lost: list[LostRange],
        anew: list[MessageQueue],
    ) -> Ints:
        """The new ones of a queue's rows, which are in the order of the log."""
        offsets = messages.headers["queue_offset"][rows].astype(np.int64)
        physical = messages.headers["physical_offset"][rows].astype(np.int64)
        own = ends[rows]
        if (own > offsets + 1).any() and not self._counts_inner(queue.topic, queue.queue_id):
            own = offsets + 1
        follow = self.follows.get(queue, Follow())
        lives = [0, *(np.flatnonzero(np.diff(offsets) <= 0) + 1).tolist(), len(rows)]
        taken: list[Ints] = []
        for first, end in pairwise(lives):
            if offsets[first] < follow.next:
                if follow.physical is not None and physical[first] > follow.physical:
                    anew.append(queue)
                    follow, self.back = Follow(), True
                else:
                    first += int(np.searchsorted(offsets[first:end], follow.next))
            if first == end:
                continue
            before = np.concatenate(([follow.next], own[first : end - 1]))
            for gap in np.flatnonzero(offsets[first:end] > before).tolist():
                why = batch.lost if gap == 0 and batch.lost else NOWHERE_TO_BE_HAD
                lost.append(LostRange(queue, int(before[gap]), int(offsets[first + gap]), why))
            follow = Follow(int(own[end - 1]), int(physical[end - 1]))
            taken.append(rows[first:end])
        self._move(queue, follow)
        return np.concatenate(taken) if taken else np.empty(0, np.int64)

    def _move(self, queue: MessageQueue, follow: Follow) -> None:
        before = self.follows.get(queue, Follow())
        if before != follow:
            self.back = self.back or follow.next < before.next
            self.follows[queue] = self.changed[queue] = follow


def _by_queue(messages: MessageBatch, rows: Ints) -> list[tuple[MessageQueue, Ints]]:
    """Rows of each queue, in their order."""
    headers = messages.headers
    code = (headers["topic_index"][rows].astype(np.int64) << 32) | headers["queue_id"][rows].astype(np.int64)
    order = np.argsort(code, kind="stable")
    cuts = (np.flatnonzero(np.diff(code[order])) + 1).tolist()
    found = []
    for part in np.split(order, cuts):
        row = headers[rows[part[0]]]
        queue = MessageQueue(messages.topics[int(row["topic_index"])], int(row["queue_id"]))
        found.append((queue, rows[part]))
    return found
