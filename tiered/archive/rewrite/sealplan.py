"""Which runs are sealed, and into which file: a pure function of a fold and a moment.

A file holds one topic and one UTC day of store time, and of that only live runs, or only what one rewind closed. A day is
sealed once it is over for long enough. A run whose store times reach over midnight is a source of the first of its days: what
belongs to others is written anew beside the file ("sealing"), and is then a source of the next.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.plan import NOTHING, WALKED_AT_ONCE, Job, KnownObjects, LeftOut, codes, live_bytes
from tiered.archive.state.keys import CLOSED, RUN, queue_of, topic_key
from tiered.archive.state.layout import OPEN, RUN_RECORD_DTYPE, table
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Bools, Ints
from tiered.model import ObjectRef
from tiered.settings import ONE_DAY_MS

SEGMENT_LEVEL = 2

_EPOCH_DAY = date(1970, 1, 1)
_FIRST_DAY = (date.min - _EPOCH_DAY).days
_BEHIND_TOPIC = {RUN: 16, CLOSED: 36}
"""Bytes of a run's key behind its topic: queue id, generation, place in its queue."""
_NO_QUEUE = bytes(4)


@dataclass(frozen=True, slots=True)
class SealBounds:
    """``min_age_ms``: how long a day must be over. One job reads at most ``job_objects`` objects and replaces at most
    ``job_runs`` runs."""

    min_age_ms: int
    job_objects: int
    job_runs: int

    def cutoff_ms(self, now_ms: int) -> int:
        """The end of the last day that is old enough."""
        return (now_ms - self.min_age_ms) // ONE_DAY_MS * ONE_DAY_MS


@dataclass(frozen=True, slots=True, order=True)
class TopicDay:
    """What is sealed together, the oldest first. ``day``: days since 1970. ``closed_by``: the rewind that closed the runs;
    ``OPEN`` for live ones."""

    day: int
    topic: str
    closed_by: int

    @property
    def date(self) -> date:
        """The day in the calendar."""
        return _EPOCH_DAY + timedelta(days=self.day)

    def holds(self, store_times_ms: Ints) -> Bools:
        """Which messages are of this day. What claims a time before the calendar begins is of its first day."""
        found: Bools = days_of(store_times_ms) == self.day
        return found


@dataclass(frozen=True, slots=True)
class Sealable:
    """A topic's day that waits, and the runs that begin in it: as many as are left, also of other days. ``mixed_messages``: in
    runs that reach into later days, of which only their records say what is of this one."""

    what: TopicDay
    runs: int
    messages: int
    record_bytes: int
    mixed_messages: int


def days_of(store_times_ms: Ints) -> Ints:
    """Days since 1970, none before the calendar's first."""
    found: Ints = np.maximum(store_times_ms // ONE_DAY_MS, _FIRST_DAY)
    return found


def sealable(
    state: ArchiveState, bounds: SealBounds, now_ms: int, left_out: LeftOut = NOTHING
) -> list[Sealable]:
    """All that is to be sealed at this moment, the oldest day first."""
    objects, sums = KnownObjects.of(state, left_out), SealSums(bounds, now_ms)
    for prefix in (RUN, CLOSED):
        for keys, _, runs in _walk(state, prefix, objects, left_out):
            sums.add(keys, runs)
    return sums.sealable()


class SealSums:
    """``sealable`` of what walks over the fold, or over pieces of it, pass."""

    def __init__(self, bounds: SealBounds, now_ms: int) -> None:
        self._cutoff_ms = bounds.cutoff_ms(now_ms)
        self._sums: dict[tuple[int, bytes, int], Ints] = {}

    def add(self, keys: Sequence[bytes], runs: npt.NDArray[np.void]) -> None:
        """Runs that are not sealed, of one kind (``RUN`` or ``CLOSED``), ascending, with their keys."""
        due = np.flatnonzero(runs["min_store_time"] < self._cutoff_ms)
        if not len(due):
            return
        runs, tail = runs[due], -_BEHIND_TOPIC[keys[0][:1]]
        topics = [keys[i][1:tail] for i in due.tolist()]
        other = np.fromiter(map(operator.ne, topics, [topics[0], *topics]), np.bool_, len(topics))
        day, closed_by = days_of(runs["min_store_time"]), runs["closed_by"]
        rewinds, rewind = np.unique(closed_by, return_inverse=True)
        wide = int(day.max() - day.min()) + 1
        code = (np.cumsum(other) * wide + day - day.min()) * len(rewinds) + rewind
        _, first, mine = np.unique(code, return_index=True, return_inverse=True)
        rows, ends = runs["rows"].astype(np.int64), days_of(runs["max_store_time"])
        figures = (np.ones(len(runs), np.int64), rows, live_bytes(runs), np.where(ends > day, rows, 0))
        sums = np.zeros((len(first), len(figures)), np.int64)
        for column, values in enumerate(figures):
            np.add.at(sums[:, column], mine, values)
        for row, i in enumerate(first.tolist()):
            name = (int(day[i]), topics[i], int(closed_by[i]))
            self._sums[name] = self._sums.get(name, 0) + sums[row]

    def sealable(self) -> list[Sealable]:
        """Of all that were added."""
        found = [
            Sealable(TopicDay(day, queue_of(topic + _NO_QUEUE).topic, closed_by), *figures.tolist())
            for (day, topic, closed_by), figures in self._sums.items()
        ]
        return sorted(found, key=lambda each: each.what)


def slab_end(
    state: ArchiveState, bounds: SealBounds, what: TopicDay, objects: KnownObjects, left_out: LeftOut
) -> ObjectRef | None:
    """The last of the oldest objects that one job may read, of those with runs that begin in a topic's day;
    ``None`` if there are none. ``objects``: those of this fold."""
    there = np.zeros(len(objects.states), np.bool_)
    for _, _, runs in _walk(state, _prefix(what), objects, left_out):
        there[objects.rows(runs)[_begins(runs, what)]] = True
    found = np.flatnonzero(there)[: bounds.job_objects]
    return objects.states[int(found[-1])].ref if len(found) else None


def seal_job(
    state: ArchiveState,
    bounds: SealBounds,
    what: TopicDay,
    last: ObjectRef,
    objects: KnownObjects,
    left_out: LeftOut,
) -> Job | None:
    """The runs that begin in a topic's day, by queue, generation and offset, in objects up to ``last``; ``None`` if there is
    nothing left in them."""
    end = codes(np.array([[last.commit_seq, last.index]], np.int64))[0]
    keys: list[bytes] = []
    values: list[bytes] = []
    at: list[Ints] = []
    for some_keys, some_values, runs in _walk(state, _prefix(what), objects, left_out):
        rows = objects.rows(runs)
        taken = np.flatnonzero(_begins(runs, what) & (objects.code[rows] <= end))
        taken = taken[: bounds.job_runs - len(keys)]
        keys += [some_keys[i] for i in taken.tolist()]
        values += [some_values[i] for i in taken.tolist()]
        at.append(rows[taken])
        if len(keys) == bounds.job_runs:
            break
    if not keys:
        return None
    return Job(
        tuple(keys),
        tuple(values),
        table(values, RUN_RECORD_DTYPE),
        np.arange(len(keys), dtype=np.int64),
        tuple(objects.states[i] for i in np.unique(np.concatenate(at)).tolist()),
    )


def _prefix(what: TopicDay) -> bytes:
    return (RUN if what.closed_by == OPEN else CLOSED) + topic_key(what.topic)


def _begins(runs: npt.NDArray[np.void], what: TopicDay) -> Bools:
    """Which runs hold messages of this day and none of a day before: of one that reaches into the day from another, whose turn
    was lost, there may be nothing to seal, and it would be written anew for ever."""
    found: Bools = (runs["closed_by"] == what.closed_by) & (days_of(runs["min_store_time"]) == what.day)
    return found


def _walk(
    state: ArchiveState, prefix: bytes, objects: KnownObjects, left_out: LeftOut
) -> Iterator[tuple[list[bytes], list[bytes], npt.NDArray[np.void]]]:
    """Runs below a prefix that are not sealed yet, some at a time: keys, values, and these side by side."""
    pairs = state.view.iterate(prefix)
    while some := list(islice(pairs, WALKED_AT_ONCE)):
        runs = table([value for _, value in some], RUN_RECORD_DTYPE)
        taken = np.flatnonzero(unsealed(objects, objects.rows(runs))).tolist()
        kept = [i for i in taken if some[i][0] not in left_out.runs]
        if kept:
            yield [some[i][0] for i in kept], [some[i][1] for i in kept], runs[kept]


def unsealed(objects: KnownObjects, at: Ints) -> Bools:
    """Of runs in these objects (rows), which are not sealed yet."""
    found: Bools = (objects.level[at] < SEGMENT_LEVEL) & objects.usable[at]
    return found
