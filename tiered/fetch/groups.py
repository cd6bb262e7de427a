"""Where each reader is in each queue, and how fast it goes: positions and rates, in bounded memory. Pure: times are passed in.

A position is kept per (``ReaderId``, queue): one for a consumer group, one for each client of a broadcasting group. Its
rate, in queue offsets a second, is a time-weighted moving average (EWMA) of what each step covered. A reader that falls
silent keeps its rate, because it usually goes on as before; instead it is expected to stay silent for as long again as it
has been silent beyond its habit. Positions are counted, and the one not heard of for longest is forgotten for a new one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from operator import attrgetter

from tiered.fetch.base import ReaderId
from tiered.model import MessageQueue

RATE_SECONDS = 10.0
"""Time constant of the moving average: what happened this long ago weighs 1/e."""

MIN_STEP_SECONDS = 0.01
"""Steps nearer to each other than this are counted as one."""

HABIT = 4.0
"""A step longer than this many usual ones is a pause, not the reader's speed; at half of it silence begins to count."""

SEEK_OFFSETS = 1 << 16
"""A leap over more offsets than this was no reading: the position moves, the rate does not."""


class ReaderPosition:
    """One reader in one queue. ``offset``: everything below it is behind the reader; ``seen``: when it last said so."""

    __slots__ = (
        "_covered",
        "_gap",
        "_rate",
        "_stepped",
        "_weight",
        "offset",
        "queue",
        "reader",
        "seen",
        "since",
    )

    def __init__(self, reader: ReaderId, queue: MessageQueue, offset: int, now: float) -> None:
        self.reader = reader
        self.queue = queue
        self.offset = offset
        self.since = self.seen = now
        self._stepped = now
        self._covered = 0
        self._gap = 0.0
        self._rate = 0.0
        self._weight = 0.0

    @property
    def rate(self) -> float | None:
        """Queue offsets a second; None before the second sign of life. Zero: it is there and does not move."""
        return self._rate / self._weight if self._weight else None

    def step(self, offset: int, covered: int, now: float) -> None:
        """The reader is at ``offset`` now and has read ``covered`` offsets since it was last seen."""
        self.offset, self.seen = offset, now
        self._covered += covered
        took = now - self._stepped
        if took < MIN_STEP_SECONDS:
            return
        usual = self._gap or took
        took = min(took, HABIT * usual)
        self._gap = usual + (took - usual) / 4
        fading = math.exp(-took / RATE_SECONDS)
        self._rate = self._rate * fading + self._covered / took * (1 - fading)
        self._weight = self._weight * fading + (1 - fading)
        self._covered, self._stepped = 0, now

    def arrival(self, offset: int, now: float) -> float | None:
        """When it will want ``offset``: ``now`` if it is there already, never (inf) if it does not move, None if its rate
        is not known yet."""
        silent = max(0.0, now - self.seen - max(self._gap * HABIT / 2, 1.0))
        if offset <= self.offset:
            return now + silent
        rate = self.rate
        if rate is None:
            return None
        return now + silent + (offset - self.offset) / rate if rate > 0 else math.inf


class _Line:
    """The readers of one queue, by offset."""

    __slots__ = ("arrived", "positions")

    def __init__(self) -> None:
        self.positions: list[ReaderPosition] = []
        self.arrived = -math.inf  # when the newest reader was first seen

    def add(self, position: ReaderPosition) -> None:
        insort(self.positions, position, key=_OFFSET)

    def move(self, position: ReaderPosition, offset: int, covered: int, now: float) -> None:
        """``position`` takes a step to another offset (``ReaderPosition.step``), and its place among the others."""
        alone = len(self.positions) == 1
        if not alone:
            self.take(position)
        position.step(offset, covered, now)
        if not alone:
            self.add(position)

    def take(self, position: ReaderPosition) -> None:
        at = bisect_left(self.positions, position.offset, key=_OFFSET)
        while self.positions[at] is not position:
            at += 1
        del self.positions[at]


_OFFSET = attrgetter("offset")


class GroupProgress:
    """Positions of all readers in all queues. Not thread-safe: its owner has the lock.

    ``live_seconds``: a reader is live in a queue for so long after it was seen there, or anywhere by ``alive``.
    ``most_positions``: kept at once; beyond it, the one seen longest ago goes.
    """

    def __init__(self, *, live_seconds: float, most_positions: int) -> None:
        self._live_seconds = live_seconds
        self._most_positions = most_positions
        self._positions: OrderedDict[tuple[ReaderId, MessageQueue], ReaderPosition] = OrderedDict()
        self._lines: dict[MessageQueue, _Line] = {}
        self._alive: OrderedDict[ReaderId, float] = OrderedDict()

    def __len__(self) -> int:
        """Positions kept."""
        return len(self._positions)

    def __iter__(self) -> Iterator[ReaderPosition]:
        """Every position kept, that seen longest ago first."""
        return iter(self._positions.values())

    def observe(
        self, reader: ReaderId, queue: MessageQueue, offset: int, now: float, *, begin: int | None = None
    ) -> None:
        """``reader`` has read ``queue`` up to ``offset``; ``begin``: where that read began, if the caller knows.

        A ``begin`` that is not where the reader was tells a seek; so does a step back or a leap. A seek counts for the position
        alone.
        """
        position = self._positions.get((reader, queue))
        if position is None:
            self._add(ReaderPosition(reader, queue, offset, now))
            return
        before = position.offset if begin is None else begin
        covered = offset - before
        if not 0 <= covered <= SEEK_OFFSETS:
            covered = 0
        self._positions.move_to_end((reader, queue))
        if offset == position.offset:
            position.step(offset, covered, now)
            return
        self._lines[queue].move(position, offset, covered, now)

    def heard(self, reader: ReaderId, queue: MessageQueue, offset: int, now: float) -> None:
        """``reader`` committed ``offset``: it reads on from there, or is ahead of it already. Never a step back."""
        position = self._positions.get((reader, queue))
        if position is None or offset > position.offset:
            self.observe(reader, queue, offset, now)
        else:
            self.alive(reader, now)

    def alive(self, reader: ReaderId, now: float) -> None:
        """A sign of life (heartbeat) that says nothing of positions."""
        self._alive[reader] = now
        self._alive.move_to_end(reader)
        if len(self._alive) > self._most_positions:
            self._alive.popitem(last=False)

    def forget(self, reader: ReaderId) -> None:
        """``reader`` said good-bye: its positions hold nothing any more."""
        self._alive.pop(reader, None)
        for position in [p for p in self._positions.values() if p.reader == reader]:
            self._drop(position)

    def standing(
        self, queue: MessageQueue, end_offset: int, now: float, most: int
    ) -> tuple[list[ReaderPosition], float | None]:
        """Live readers of ``queue`` that have not passed ``end_offset``, the nearest first, at most so many of them; and when
        the newest reader of ``queue`` was first seen there, ``None`` if no live one is known."""
        line = self._lines.get(queue)
        behind: list[ReaderPosition] = []
        if line is None:
            return behind, None
        positions, dead = line.positions, False
        at = bisect_left(positions, end_offset, key=_OFFSET)
        while at and len(behind) < most:
            at -= 1
            if self._lives(positions[at], now):
                behind.append(positions[at])
            else:
                dead = True
        if dead:
            self._bury(line, now)
        if behind:
            return behind, line.arrived
        while positions:
            if self._lives(positions[-1], now):
                return behind, line.arrived
            self._drop(positions[-1])
        return behind, None

    def _lives(self, position: ReaderPosition, now: float) -> bool:
        earliest = now - self._live_seconds
        return position.seen >= earliest or self._alive.get(position.reader, -math.inf) >= earliest

    def _bury(self, line: _Line, now: float) -> None:
        for position in [p for p in line.positions if not self._lives(p, now)]:
            self._drop(position)

    def _add(self, position: ReaderPosition) -> None:
        while len(self._positions) >= self._most_positions:
            self._drop(next(iter(self._positions.values())))
        self._positions[position.reader, position.queue] = position
        line = self._lines.setdefault(position.queue, _Line())
        line.add(position)
        line.arrived = max(line.arrived, position.since)

    def _drop(self, position: ReaderPosition) -> None:
        del self._positions[position.reader, position.queue]
        line = self._lines[position.queue]
        line.take(position)
        if not line.positions:
            del self._lines[position.queue]
