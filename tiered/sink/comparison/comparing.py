"""Finding differences: windows of what the destination has, in its order, each held against the same offsets of the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tiered.codec.types import Bools, Ints
from tiered.model import MessageQueue
from tiered.sink.comparison.archived import ArchivedMarks
from tiered.sink.comparison.base import ANOTHER_SINKS, Digests, Marks, ReadBack
from tiered.sink.comparison.found import COUNTS, TOTALS, Compared, QueueFound, SinkVerdict, Tally
from tiered.sink.comparison.holes import Holes
from tiered.sink.comparison.scope import QueueScope, SinkScope

WINDOW = 262_144
"""Marks held at once; each queue of a window is looked up in the archive once."""
MAX_TOLD = 1_000
"""Queues that are told one by one; all are counted."""
_NOT_BEGUN = -1


class _There(NamedTuple):
    """Messages of one queue at the destination, as they come."""

    offset: Ints
    origin: Digests
    content: Digests

    def some(self, which: Bools) -> _There:
        return _There(self.offset[which], self.origin[which], self.content[which])


class _Absent:
    """Ranges of offsets whose messages are not at the destination: they end only where one is."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []
        self._open = False

    def take(self, offsets: Ints, present: Bools) -> None:
        """Consecutive messages of the archive, ascending, and which of them are there."""
        if not len(offsets):
            return
        edges = np.flatnonzero(np.diff(present)) + 1
        for part in np.split(np.arange(len(offsets)), edges):
            if present[part[0]]:
                self._open = False
                continue
            first, end = int(offsets[part[0]]), int(offsets[part[-1]]) + 1
            if self._open:
                self._ranges[-1][1:] = [end, self._ranges[-1][2] + len(part)]
            else:
                self._ranges.append([first, end, len(part)])
            self._open = True

    def ranges(self) -> Ints:
        """Rows of (first, end, messages)."""
        return np.array(self._ranges, np.int64).reshape(-1, 3)


class SinkComparison:
    """Of one sink, once. ``most``: holes that are remembered."""

    def __init__(
        self,
        archive: ArchivedMarks,
        reader: ReadBack,
        scope: SinkScope,
        *,
        window: int = WINDOW,
        holes: Holes | None = None,
    ) -> None:
        self._archive, self._reader, self._scope = archive, reader, scope
        self._window = window
        self._holes = Holes() if holes is None else holes
        self._numbers = {reader.target(each.queue): at for at, each in enumerate(scope.queues)}
        self._tally = Tally(len(scope.queues))
        self._next = np.full(len(scope.queues), _NOT_BEGUN, np.int64)
        """Up to where each queue was accounted for."""
        self._elsewhere = self._other_sinks = 0

    def run(self) -> Compared:
        """Read both sides. Errors as of ``ReadBack`` and of reading an archive."""
        for marks in _windows(self._mine(self._reader.read(self._numbers)), self._window):
            self._compare(marks)
        for at in range(len(self._scope.queues)):
            self._finish(at)
        for marks in self._mine(self._reader.buried()):
            for at, offset in zip(marks.queue.tolist(), marks.queue_offset.tolist(), strict=True):
                if self._holes.fill(at, offset):
                    self._tally.move(at, "lost", "dead_letters")
        return self._told()

    def _mine(self, parts: Iterable[Marks]) -> Iterator[Marks]:
        """Marks of the queues that are compared, by their numbers."""
        for marks in parts:
            known = [self._numbers.get(queue, -1) for queue in marks.queues]
            number = np.array(known, np.int64)[marks.queue] if known else np.empty(0, np.int64)
            others = marks.origin == ANOTHER_SINKS
            mine = (number >= 0) & ~others
            self._other_sinks += int(others.sum())
            self._elsewhere += len(mine) - int((mine | others).sum())
            yield Marks((), number[mine], marks.queue_offset[mine], marks.origin[mine], marks.content[mine])

    def _compare(self, marks: Marks) -> None:
        order = np.argsort(marks.queue, kind="stable")
        cuts = np.flatnonzero(np.diff(marks.queue[order])) + 1
        for part in np.split(order, cuts):
            if len(part):
                there = _There(marks.queue_offset[part], marks.origin[part], marks.content[part])
                self._queue(int(marks.queue[part[0]]), there)

    def _queue(self, at: int, there: _There) -> None:
        """Messages of one queue: those that can be compared are looked up, and judged."""
        scope, tally = self._scope.queues[at], self._tally
        within = there.offset < (scope.end or 0)
        tally.add("ahead", at, int((~within).sum()))
        there = there.some(within)
        kept = there.offset >= self._archive.least(scope.queue)
        tally.add("not_comparable", at, int((~kept).sum()))
        there = there.some(kept)
        if not len(there.offset):
            return
        begin = int(self._next[at])
        if begin == _NOT_BEGUN:
            begin = self._begins(scope.queue, there)
        known, ours, same, absent = self._looked_up(scope.queue, there, begin)
        tally.add("extra", at, int((~known).sum()), _least(there.offset[~known]))
        tally.add("others", at, int((known & ~ours).sum()))
        if not ours.any():
            return
        if self._next[at] == _NOT_BEGUN and begin:
            tally.add("not_comparable", at, max(0, begin - self._archive.least(scope.queue)))
        end = int(there.offset[ours].max()) + 1
        only_others = np.setdiff1d(there.offset[known & ~ours], there.offset[ours])
        single = np.stack([only_others, only_others + 1, np.ones_like(only_others)], axis=1)
        absent = np.concatenate([absent, single[only_others >= begin]])
        absent = absent[absent[:, 0] < end]
        self._lose(at, absent[np.argsort(absent[:, 0])])
        self._judge(at, there.offset[ours], same[ours], begin)
        self._next[at] = max(begin, end)

    def _begins(self, queue: MessageQueue, there: _There) -> int:
        late = self._scope.from_first or self._reader.begins_late(self._reader.target(queue))
        return int(there.offset[0]) if late else 0

    def _looked_up(self, queue: MessageQueue, there: _There, begin: int) -> tuple[Bools, Bools, Bools, Ints]:
        """Of each message: whether the archive has one at its offset, whether it is that very one, and its content the same;
        and (first, end, messages) of what is not there at all from ``begin`` on: as many ranges as messages, and no more."""
        count = len(there.offset)
        known, ours, same = (np.zeros(count, np.bool_) for _ in range(3))
        absent = _Absent()
        low, high = min(begin, int(there.offset.min())), int(there.offset.max()) + 1
        for marks in self._archive.between(queue, low, high):
            if not len(marks.queue_offset):
                continue
            place = np.searchsorted(marks.queue_offset, there.offset)
            hit = np.flatnonzero(place < len(marks.queue_offset))
            hit = hit[marks.queue_offset[place[hit]] == there.offset[hit]]
            known[hit] = True
            ours[hit] = marks.origin[place[hit]] == there.origin[hit]
            same[hit] = marks.content[place[hit]] == there.content[hit]
            behind = marks.queue_offset[marks.queue_offset >= begin]
            absent.take(behind, np.isin(behind, there.offset))
        if (ours & ~same).any():
            ours &= same | ~self._archive.replaced(queue, there.offset)
        return known, ours, same, absent.ranges()

    def _judge(self, at: int, offsets: Ints, same: Bools, begin: int) -> None:
        """Messages that are the archive's own, as they come: new, late, or there before."""
        tally = self._tally
        _, where = np.unique(offsets, return_index=True)
        first = np.zeros(len(offsets), np.bool_)
        first[where] = True
        tally.add("doubled", at, int((~first).sum()), _least(offsets[~first]))
        fresh = first & (offsets >= begin)
        for row in np.flatnonzero(first & (offsets < begin)).tolist():
            offset = int(offsets[row])
            if self._holes.fill(at, offset):
                tally.move(at, "lost", "same" if same[row] else "changed", None if same[row] else offset)
                if self._reader.ordered:
                    tally.add("reordered", at, 1, offset)
            elif at not in self._holes.forgotten:
                tally.add("doubled", at, 1, offset)
        new = offsets[fresh]
        wrong = new[~same[fresh]]
        tally.add("same", at, len(new) - len(wrong))
        tally.add("changed", at, len(wrong), _least(wrong))
        if self._reader.ordered and len(new):
            late = new < np.maximum.accumulate(new)
            tally.add("reordered", at, int(late.sum()), _least(new[late]))

    def _lose(self, at: int, ranges: Ints) -> None:
        self._holes.add(at, ranges)
        self._tally.add("lost", at, int(ranges[:, 2].sum()), _least(ranges[:, 0]))

    def _finish(self, at: int) -> None:
        """What is behind the last message that is there."""
        scope, begin = self._scope.queues[at], int(self._next[at])
        if scope.end is None:
            if self._scope.physical is not None:
                self._lose_all(at, self._archive.before(scope.queue, self._scope.physical))
            return
        if begin == _NOT_BEGUN:
            if self._scope.from_first or self._reader.begins_late(self._reader.target(scope.queue)):
                least = self._archive.least(scope.queue)
                self._tally.add("not_comparable", at, max(0, scope.end - least))
                return
            begin = 0
        self._lose_all(at, self._archive.between(scope.queue, begin, scope.end))

    def _lose_all(self, at: int, parts: Iterator[Marks]) -> None:
        absent = _Absent()
        for marks in parts:
            absent.take(marks.queue_offset, np.zeros(len(marks.queue_offset), np.bool_))
        self._lose(at, absent.ranges())

    def _told(self) -> Compared:
        found = [self._tally.told(at, each, self._holes) for at, each in self._interesting()]
        totals = dict(zip(COUNTS, self._tally.counts.sum(axis=1).tolist(), strict=True))
        different = sum(each.different for each in found)
        unread = [words for words in (self._reader.unread(),) if words]
        if self._holes.forgotten:
            unread.append(
                f"{len(self._holes.forgotten)} queues have too many holes to be compared to their end"
            )
        totals["others"] += self._elsewhere
        totals["other_sinks"] = self._other_sinks
        verdict = SinkVerdict.DIFFERENT if different else SinkVerdict.SAME
        if not different and (unread or totals["not_comparable"]):
            verdict = SinkVerdict.INCOMPLETE
        found.sort(key=lambda each: (not each.different, each.topic, each.queue_id))
        return Compared(
            verdict, len(self._scope.queues), different, totals, tuple(found[:MAX_TOLD]), tuple(unread)
        )

    def _interesting(self) -> Iterator[tuple[int, QueueScope]]:
        told = self._tally.counts[[COUNTS.index(k) for k in COUNTS if k not in ("same", "ahead")]].any(axis=0)
        for at in np.flatnonzero(told).tolist():
            yield at, self._scope.queues[at]


def merged(parts: Iterable[Compared]) -> Compared:
    """Of comparisons of different queues of one sink."""
    every = list(parts)
    totals = {name: sum(each.totals[name] for each in every) for name in TOTALS}
    different = sum(each.different_queues for each in every)
    found: list[QueueFound] = sorted(
        (queue for each in every for queue in each.queues),
        key=lambda q: (not q.different, q.topic, q.queue_id),
    )
    unread = tuple(dict.fromkeys(words for each in every for words in each.unread))
    complete = all(each.verdict is not SinkVerdict.INCOMPLETE for each in every) and not unread
    verdict = SinkVerdict.DIFFERENT if different else SinkVerdict.SAME if complete else SinkVerdict.INCOMPLETE
    queues = sum(each.compared_queues for each in every)
    return Compared(verdict, queues, different, totals, tuple(found[:MAX_TOLD]), unread)


def _windows(parts: Iterable[Marks], most: int) -> Iterator[Marks]:
    """Parts joined until they have so many marks."""
    held: list[Marks] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part.queue)
        if count >= most:
            yield _joined(held)
            held, count = [], 0
    if count:
        yield _joined(held)


def _joined(parts: list[Marks]) -> Marks:
    return Marks((), *(np.concatenate([part[field] for part in parts]) for field in range(1, 5)))


def _least(offsets: Ints) -> int | None:
    return int(offsets.min()) if len(offsets) else None
