"""Which runs are merged, and in which jobs: a pure function of the fold.

Fresh runs (small ones of level 0, and all that lie in commits) are taken first, in windows of consecutive objects. Merged runs
are merged again in tiers: the youngest small ones of a queue that follow each other become one as soon as that is ``growth``
times as large as the largest of them, so a message is written again once each time its run has grown so much, until the run is
``settled_bytes`` long. Both are taken by ranges of queues, in the order of the fold, a job each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np

from tiered.archive.rewrite.plan import (
    NOTHING,
    ROW_BYTES,
    WALKED_AT_ONCE,
    Job,
    KnownObjects,
    LeftOut,
    code_of,
    live_bytes,
)
from tiered.archive.rewrite.walkedruns import WalkedRuns, walked_runs
from tiered.archive.state.keys import OBJECT, U8_U4
from tiered.archive.state.layout import RUN_RECORD_DTYPE, table
from tiered.archive.state.values import ObjectState, unpack_object
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.sections import SectionKind
from tiered.codec.types import Bools, Ints
from tiered.model import ObjectRef

KEY_SECTION_FACTOR = 6
"""What keys take on their way, by the stored length of their section: a hash of eight bytes each does not compress."""
MOST_RANGES = 8
"""Jobs that a window is divided into at most: each of them asks each of its objects."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """``block_bytes``: below it a fresh run is small. ``settled_bytes``: below it a merged run is. ``growth``: see the module.
    ``job_bytes``: records and tables of one job, more only if one run holds more. ``job_runs``: runs that one job replaces."""

    block_bytes: int
    settled_bytes: int
    growth: int
    job_bytes: int
    job_runs: int


@dataclass(frozen=True, slots=True)
class Window:
    """Runs that are taken together. ``level`` 0: fresh ones of consecutive objects, ``first`` to ``last``, which ``commits``
    commits brought. ``level`` 1: merged ones, all that are to grow. ``weight``: what they take in memory."""

    level: int
    first: ObjectRef
    last: ObjectRef
    commits: int
    runs: int
    messages: int
    record_bytes: int
    weight: int

    @property
    def row_bytes(self) -> int:
        """What a message takes beside its record."""
        return ceil((self.weight - self.record_bytes) / max(1, self.messages))

    @property
    def merged_run_bytes(self) -> int:
        """About how long a run of a queue will be: a commit has one of each of its queues."""
        return self.record_bytes * self.commits // max(1, self.runs)

    def jobs(self, bounds: Bounds) -> int:
        """About how many jobs take it."""
        return max(ceil(self.weight / bounds.job_bytes), ceil(self.runs / bounds.job_runs))


@dataclass(frozen=True, slots=True)
class MergeCut:
    """The next job of a window. ``behind``: the key of the fold where the one after it begins; ``None`` for the last."""

    job: Job
    behind: bytes | None


def windows(state: ArchiveState, bounds: Bounds, left_out: LeftOut = NOTHING) -> list[Window]:
    """All that is to be merged now: fresh runs, oldest first, then merged ones."""
    growing = growing_window(state, bounds, left_out)
    return [*fresh_windows(state, bounds, left_out), *([] if growing is None else [growing])]


def fresh_windows(state: ArchiveState, bounds: Bounds, left_out: LeftOut = NOTHING) -> list[Window]:
    """Windows of fresh runs, oldest first: each a job's worth, or more where the runs that are made of it would be small."""
    sums = FreshSums(KnownObjects.of(state, left_out), bounds, left_out)
    for some in walked_runs(state.view, sums.objects):
        sums.add(some)
    return sums.windows()


class FreshSums:
    """``fresh_windows`` of what walks over the fold, or over pieces of it, pass."""

    def __init__(self, objects: KnownObjects, bounds: Bounds, left_out: LeftOut = NOTHING) -> None:
        self.objects = objects
        self._bounds, self._left_out = bounds, left_out
        self._sums = np.zeros((3, len(objects.states)), np.int64)  # runs, messages, bytes

    def add(self, some: WalkedRuns) -> None:
        """Runs that no walk passed before."""
        fresh = _small(some, self._bounds, self.objects, self._left_out, 0)
        at, runs = some.at[fresh], some.runs[fresh]
        for row, values in enumerate((np.ones(len(at)), runs["rows"], live_bytes(runs))):
            self._sums[row] += np.bincount(at, values, self._sums.shape[1]).astype(np.int64)

    def windows(self) -> list[Window]:
        """Of all that were added."""
        found: list[Window] = []
        for i in np.flatnonzero(self._sums[0]).tolist():
            one = _window_of(self.objects.states[i], self._sums[:, i])
            both = _joined(found[-1], one) if found else one
            if found and both.jobs(self._bounds) <= 1:
                found[-1] = both
            else:
                found.append(one)
        return _ranged(found, self._bounds)


def _window_of(item: ObjectState, sums: Ints) -> Window:
    runs, messages, record_bytes = sums.tolist()
    weight = record_bytes + ROW_BYTES * messages + KEY_SECTION_FACTOR * _keys_length(item)
    return Window(0, item.ref, item.ref, 1, runs, messages, record_bytes, weight)


def _keys_length(item: ObjectState) -> int:
    return item.sections.get(SectionKind.KEYS, (0, 0, 0))[1]


def _joined(one: Window, other: Window) -> Window:
    return Window(
        0, one.first, other.last, one.commits + other.commits - (one.last.commit_seq == other.first.commit_seq),
        one.runs + other.runs, one.messages + other.messages, one.record_bytes + other.record_bytes,
        one.weight + other.weight,
    )  # fmt: skip


def _ranged(found: list[Window], bounds: Bounds) -> list[Window]:
    """Neighbours joined while their merged runs would be small, and so would soon be written again."""
    joined: list[Window] = []
    for one in found:
        both = _joined(joined[-1], one) if joined else one
        if joined and joined[-1].merged_run_bytes < bounds.settled_bytes and both.jobs(bounds) <= MOST_RANGES:
            joined[-1] = both
        else:
            joined.append(one)
    return joined


def growing_window(state: ArchiveState, bounds: Bounds, left_out: LeftOut = NOTHING) -> Window | None:
    """The merged runs that are to become larger ones; ``None`` if none are."""
    sums = GrowingSums(KnownObjects.of(state, left_out), bounds, left_out)
    for some in walked_runs(state.view, sums.objects):
        sums.add(some)
    return sums.window()


class GrowingSums:
    """``growing_window`` of what walks over the fold pass, or over pieces of it in which queues are whole."""

    def __init__(self, objects: KnownObjects, bounds: Bounds, left_out: LeftOut = NOTHING) -> None:
        self.objects = objects
        self._cut = _Stretches(bounds, objects, left_out, _MERGED)
        self._rows, self._sums = np.zeros(len(objects.states), np.int64), np.zeros(3, np.int64)
        self._holding = np.zeros(len(objects.states), np.bool_)

    def add(self, some: WalkedRuns) -> None:
        """Runs in the order of a walk."""
        self._rows += np.bincount(some.at, some.runs["rows"], len(self._rows)).astype(np.int64)
        self._take(self._cut.add(some))

    def window(self) -> Window | None:
        """Of all that were added; nothing is added behind it."""
        self._take(self._cut.rest())
        held = np.flatnonzero(self._holding).tolist()
        if not held:
            return None
        states, (runs, messages, record_bytes) = self.objects.states, self._sums.tolist()
        keys = sum(_keys_length(states[i]) for i in held) / max(1, int(self._rows[held].sum()))
        weight = record_bytes + ceil((ROW_BYTES + KEY_SECTION_FACTOR * keys) * messages)
        first, last = states[held[0]].ref, states[held[-1]].ref
        return Window(1, first, last, 0, runs, messages, record_bytes, weight)

    def _take(self, cut: Iterator[WalkedRuns]) -> None:
        for some in cut:
            self._sums += (len(some.runs), some.runs["rows"].sum(dtype=np.int64), live_bytes(some.runs).sum())
            self._holding[some.at] = True


_MERGED = Window(1, ObjectRef(0, 0), ObjectRef(0, 0), 0, 0, 0, 0, 0)


def job(
    state: ArchiveState,
    bounds: Bounds,
    window: Window,
    objects: KnownObjects,
    start: bytes,
    left_out: LeftOut,
) -> MergeCut | None:
    """The job of a window that begins at a key of the fold; ``None`` if there is nothing in it from there on.

    ``objects``: those of this fold.
    """
    taken: list[WalkedRuns] = []
    weight = count = 0
    behind: bytes | None = None
    for some in _stretches(walked_runs(state.view, objects, start), bounds, objects, left_out, window):
        weights = np.cumsum(live_bytes(some.runs) + window.row_bytes * some.runs["rows"].astype(np.int64))
        room = int(np.searchsorted(weights, bounds.job_bytes - weight, "right"))
        end = max(0, min(room, bounds.job_runs - count))
        if end < len(some.runs):
            whole = int(
                np.searchsorted(some.stretch, some.stretch[end])
            )  # where the stretch that is cut begins
            end = whole or (0 if taken else max(end, 1 + window.level))
        if end:
            taken.append(some.first(end))
            weight, count = weight + int(weights[end - 1]), count + end
        if end < len(some.runs):
            behind = some.keys[end]
            break
    return MergeCut(_job(taken, objects), behind) if taken else None


def _job(taken: list[WalkedRuns], objects: KnownObjects) -> Job:
    keys = tuple(key for some in taken for key in some.keys)
    values = tuple(value for some in taken for value in some.values)
    new = np.concatenate([np.diff(some.stretch, prepend=-1) != 0 for some in taken])
    rows = np.unique(np.concatenate([some.at for some in taken])).tolist()
    return Job(
        keys,
        values,
        table(values, RUN_RECORD_DTYPE),
        np.cumsum(new) - 1,
        tuple(objects.states[i] for i in rows),
    )


class FreshRuns:
    """How many fresh runs came since the last round began, large ones too: each object of the fold knows how many lie in it,
    and only those that are new since the last look are looked at."""

    def __init__(self) -> None:
        self._after = b""
        self._count = 0

    def begin(self, state: ArchiveState) -> None:
        """All that this fold holds is of the round that begins."""
        self.count(state)
        self._count = 0

    def count(self, state: ArchiveState) -> int:
        """Those of a later fold than at the last call, too."""
        for key, value in state.view.iterate(OBJECT, start=self._after or None):
            item = unpack_object(ObjectRef(*U8_U4.unpack_from(key, 1)), value)
            self._count += 0 if item.level else item.references
            self._after = key + b"\0"
        return self._count


def _small(some: WalkedRuns, bounds: Bounds, objects: KnownObjects, left_out: LeftOut, level: int) -> Ints:
    """Which of them are fresh (level 0), or merged and small (level 1)."""
    size = live_bytes(some.runs)
    if level == 0:
        wanted: Bools = (size < bounds.block_bytes) | objects.inline[some.at]
    else:
        wanted = size < bounds.settled_bytes
    found = np.flatnonzero(wanted & (objects.level[some.at] == level) & objects.usable[some.at])
    if left_out.runs:
        found = found[[some.keys[i] not in left_out.runs for i in found.tolist()]]
    return found


def _stretches(
    walk: Iterator[WalkedRuns], bounds: Bounds, objects: KnownObjects, left_out: LeftOut, window: Window
) -> Iterator[WalkedRuns]:
    """The runs of a window with their stretches, all of a queue at once."""
    cut = _Stretches(bounds, objects, left_out, window)
    for chunk in walk:
        yield from cut.add(chunk)
    yield from cut.rest()


class _Stretches:
    """``_stretches`` of a walk that somebody else makes."""

    def __init__(self, bounds: Bounds, objects: KnownObjects, left_out: LeftOut, window: Window) -> None:
        self._bounds, self._objects, self._left_out, self._level = bounds, objects, left_out, window.level
        self._low, self._high = code_of(window.first), code_of(window.last)
        self._waiting: WalkedRuns | None = None

    def add(self, chunk: WalkedRuns) -> Iterator[WalkedRuns]:
        some = chunk.of(_small(chunk, self._bounds, self._objects, self._left_out, self._level))
        if self._level == 0:
            code = self._objects.code[some.at]
            some = some.of(np.flatnonzero((code >= self._low) & (code <= self._high)))
        if not some.keys:
            return
        some = some if self._waiting is None else self._waiting.then(some)
        queues = some.queues()
        last = queues.index(queues[-1])  # more of that queue may follow
        if not last and len(queues) >= WALKED_AT_ONCE:
            last = len(queues)
        self._waiting = some.of(np.arange(last, len(queues))) if last < len(queues) else None
        if last:
            yield from _with_stretches(some.first(last), queues[:last], self._bounds, self._level)

    def rest(self) -> Iterator[WalkedRuns]:
        if self._waiting is not None:
            yield from _with_stretches(self._waiting, self._waiting.queues(), self._bounds, self._level)


def _with_stretches(
    some: WalkedRuns, queues: list[bytes], bounds: Bounds, level: int
) -> Iterator[WalkedRuns]:
    """Runs that follow each other without a hole are of one stretch; of merged ones, those that are to grow."""
    follows = np.array([one == other for one, other in pairwise(queues)], np.bool_)
    follows &= some.runs["end"][:-1] == some.runs["start"][1:]
    some = replace(some, stretch=np.cumsum(np.append(True, ~follows)) - 1)
    if level:
        some = some.of(due_runs(live_bytes(some.runs), some.stretch, bounds.growth))
    if some.keys:
        yield some


def due_runs(size: Ints, stretch: Ints, growth: int) -> Ints:
    """Which runs are merged again: of each stretch the longest end that is ``growth`` times as large as its largest run."""
    firsts = np.flatnonzero(np.diff(stretch, prepend=-1))
    ends = np.append(firsts[1:], len(size))
    before = np.append(0, np.cumsum(size))
    behind = before[ends][stretch] - before[:-1]  # from each run to the end of its stretch
    rank = (stretch[-1] - stretch) << int(
        size.max()
    ).bit_length()  # the largest is sought anew in each stretch
    largest = np.maximum.accumulate((rank + size)[::-1])[::-1] - rank
    begins = np.flatnonzero(behind >= growth * largest)
    first = np.full(len(firsts), len(size))
    np.minimum.at(first, stretch[begins], begins)
    found: Ints = np.flatnonzero(np.arange(len(size)) >= first[stretch])
    return found
