"""How far a stream is in an archive: behind a commit, or inside one that is too large for a batch.

Inside a commit its messages have an order that nothing changes: by queue, and by queue offset. Merging keeps the commit of each
message and its offset, so a position means the same before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiered.codec.types import Bools, Ints
from tiered.model import MessageQueue

Shown = int | list[Any]
"""A position in JSON: a commit that is included whole, or ``[commit, topic, queue id, queue offset]``: all before that commit,
and of it what lies before that message. Streams of earlier versions have the former alone."""

BEGIN = -1
"""Before the first commit."""


@dataclass(frozen=True, slots=True)
class Position:
    """All commits before ``commit``, and of it everything; or, with a ``queue``, its messages of the queues before that one,
    and of that one those before ``offset``."""

    commit: int = BEGIN
    queue: MessageQueue | None = None
    offset: int = 0

    @classmethod
    def parse(cls, shown: object) -> Position:
        """``ValueError`` for what is none."""
        if isinstance(shown, int):
            return cls(shown)
        if not isinstance(shown, list):
            raise ValueError
        commit, topic, queue_id, offset = shown
        if not isinstance(topic, str) or not all(isinstance(n, int) for n in (commit, queue_id, offset)):
            raise ValueError
        return cls(commit, MessageQueue(topic, queue_id), offset)

    @property
    def shown(self) -> Shown:
        """In JSON."""
        if self.queue is None:
            return self.commit
        return [self.commit, self.queue.topic, self.queue.queue_id, self.offset]

    @property
    def whole(self) -> int:
        """The last commit that is included whole."""
        return self.commit if self.queue is None else self.commit - 1

    def __lt__(self, other: Position) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, bool, MessageQueue, int]:
        return self.commit, self.queue is None, self.queue or MessageQueue("", 0), self.offset

    def sides(self, queues: Sequence[MessageQueue]) -> Ints:
        """Of each queue, whether it comes before (-1) or behind (1) the one that this position lies in, or is it (0)."""
        mine = self.queue
        assert mine is not None
        return np.array([(queue > mine) - (queue < mine) for queue in queues], np.int64)

    def includes(self, commits: Ints, offsets: Ints, queues: Sequence[MessageQueue], queue_of: Ints) -> Bools:
        """Which messages are before it: of each its commit, its offset and its queue, an index of ``queues``."""
        if self.queue is None:
            return commits <= self.commit
        side = self.sides(queues)[queue_of]
        inside = (side < 0) | ((side == 0) & (offsets < self.offset))
        found: Bools = (commits < self.commit) | ((commits == self.commit) & inside)
        return found


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """What commits appended behind ``start``, up to ``end``: a batch."""

    start: Position
    end: Position

    def takes(self, commits: Ints, offsets: Ints, queues: Sequence[MessageQueue], queue_of: Ints) -> Bools:
        """Which messages are in it. As of ``Position.includes``."""
        asked = (commits, offsets, queues, queue_of)
        return self.end.includes(*asked) & ~self.start.includes(*asked)
