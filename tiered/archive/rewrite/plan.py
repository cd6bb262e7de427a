"""Which runs are merged, and in which jobs: a pure function of the fold.

Small runs of level 0, and all that lie in commits, are taken in windows of consecutive objects, each bounded, so that an object
is read once. A small run of level 1 in front of them is taken along once there is at least as much behind it: each message is
merged again only about as often as its run doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.keys import CLOSED, RUN
from tiered.archive.state.layout import RUN_RECORD_DTYPE, table
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.sections import SectionKind
from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt, NotFound
from tiered.model import ObjectRef

ROW_BYTES = 256
"""What a message takes on its way beside its record: its columns, as read and as sorted."""
KEY_SECTION_FACTOR = 6
"""What keys take on their way, by the stored length of their section: a hash of eight bytes each does not compress."""

_WALKED_AT_ONCE = 8192
_PLACE_IN_QUEUE = {RUN: 8, CLOSED: 20}
"""Bytes at the end of a run's key that say where in its queue, generation and state it lies."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """``block_bytes``: below it a run is small. ``job_bytes``: records and tables of one job, more only if one object holds
    more. ``job_runs``: runs that one job replaces."""

    block_bytes: int
    job_bytes: int
    job_runs: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What no job takes: objects that cannot be read, and runs (their keys in the fold) whose live part cannot be written anew:
    a trim may cut into an inner batch, whose offsets all belong to one record."""

    objects: frozenset[ObjectRef] = frozenset()
    runs: frozenset[bytes] = frozenset()

    def and_objects(self, objects: frozenset[ObjectRef]) -> LeftOut:
        """With these objects, too."""
        return LeftOut(self.objects | objects, self.runs)


NOTHING = LeftOut()

DamagedObjects = Callable[[ArchiveState], frozenset[ObjectRef]]
"""Which objects of a fold are known to be damaged: no job takes them."""


def none_damaged(state: ArchiveState) -> frozenset[ObjectRef]:
    """Nobody looked."""
    return frozenset()


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive objects whose fresh runs one job takes: ``first`` to ``last``. ``weight``: what they take in memory."""

    first: ObjectRef
    last: ObjectRef
    runs: int
    messages: int
    record_bytes: int
    weight: int


@dataclass(frozen=True, slots=True)
class Job:
    """Runs that one object and one ``ReplaceRuns`` replace: as the fold holds them, by queue, generation, state and offset.

    ``stretch``: number of the target of each, ascending: sources of one target follow each other without a hole.
    ``objects``: what they lie in, in the order of the log.
    """

    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]
    runs: npt.NDArray[np.void]
    stretch: Ints
    objects: tuple[ObjectState, ...]

    @property
    def record_bytes(self) -> int:
        """Bytes of the live records."""
        return int((self.runs["flat_end"] - self.runs["first_flat_offset"]).sum())

    def part(self, first: int, end: int) -> Job:
        """Some consecutive runs of it, each a stretch of its own."""
        runs = self.runs[first:end]
        stretch = np.arange(len(runs), dtype=np.int64)
        return Job(self.keys[first:end], self.values[first:end], runs, stretch, self.objects_of(runs))

    def without(self, rows: Ints) -> Job | None:
        """All but some of its runs, each a stretch of its own; ``None`` if none is left."""
        kept = np.setdiff1d(np.arange(len(self.runs)), rows)
        if not len(kept):
            return None
        keys, values = (tuple(some[i] for i in kept.tolist()) for some in (self.keys, self.values))
        runs = self.runs[kept]
        return Job(keys, values, runs, np.arange(len(runs), dtype=np.int64), self.objects_of(runs))

    def objects_of(self, runs: npt.NDArray[np.void]) -> tuple[ObjectState, ...]:
        """What some of its runs lie in."""
        wanted = set(map(tuple, refs_of(runs).tolist()))
        return tuple(item for item in self.objects if (item.ref.commit_seq, item.ref.index) in wanted)

    def object_of(self, error: Corrupt | NotFound, keys: ArchiveKeys) -> ObjectState | None:
        """The one that an error names."""
        named = error.fields.get("key")
        return next(
            (o for o in self.objects if (keys.key(o.path) if o.path else keys.commit(o.ref.commit_seq)) == named), None
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """All objects of a fold, side by side; ``code`` sorts as they were added; ``usable``: not left out."""

    states: list[ObjectState]
    code: Ints
    level: Ints
    inline: Bools
    usable: Bools

    @classmethod
    def of(cls, state: ArchiveState, left_out: LeftOut) -> KnownObjects:
        """Those of this fold."""
        states = list(state.objects())
        return cls(
            states,
            codes(np.array([(o.ref.commit_seq, o.ref.index) for o in states], np.int64).reshape(-1, 2)),
            np.array([o.level for o in states], np.int64),
            np.array([not o.path for o in states], np.bool_),
            np.array([o.ref not in left_out.objects for o in states], np.bool_),
        )

    def rows(self, runs: npt.NDArray[np.void]) -> Ints:
        """Which of them each run lies in."""
        found: Ints = np.searchsorted(self.code, codes(refs_of(runs)))
        return found


def codes(refs: Ints) -> Ints:
    """Commit and index as one number. An index is below 2^20: a commit holds no more edits."""
    found: Ints = (refs[:, 0] << 20) | refs[:, 1]
    return found


def refs_of(runs: npt.NDArray[np.void]) -> Ints:
    """Commit and index of the object of each run."""
    return np.stack([runs["commit_seq"], runs["object"].astype(np.int64)], axis=1)


def windows(state: ArchiveState, bounds: Bounds, left_out: LeftOut = NOTHING) -> list[Window]:
    """All that is to be merged now, oldest first."""
    objects = KnownObjects.of(state, left_out)
    count = len(objects.states)
    sums = np.zeros((3, count), np.int64)  # runs, messages, bytes
    for chunk in _walk(state, bounds, objects, left_out.runs):
        fresh = chunk.fresh
        at = chunk.at[fresh]
        sizes = _live_bytes(chunk.runs[fresh])
        for row, values in enumerate((np.ones(len(at)), chunk.runs["rows"][fresh], sizes)):
            sums[row] += np.bincount(at, values, count).astype(np.int64)
    found: list[Window] = []
    begin: int | None = None
    for i in np.flatnonzero(sums[0]).tolist():
        if begin is None or _passes(found[-1], objects.states[i], sums[:, i], bounds):
            begin = i
            found.append(_window(objects.states[i], objects.states[i], sums[:, i]))
        else:
            found[-1] = _joined(found[-1], _window(objects.states[i], objects.states[i], sums[:, i]))
    return found


def _window(first: ObjectState, last: ObjectState, sums: Ints) -> Window:
    runs, messages, record_bytes = sums.tolist()
    keys = first.sections.get(SectionKind.KEYS, (0, 0, 0))[1]
    weight = record_bytes + ROW_BYTES * messages + KEY_SECTION_FACTOR * keys
    return Window(first.ref, last.ref, runs, messages, record_bytes, weight)


def _joined(one: Window, other: Window) -> Window:
    return Window(
        one.first, other.last, one.runs + other.runs, one.messages + other.messages,
        one.record_bytes + other.record_bytes, one.weight + other.weight,
    )  # fmt: skip


def _passes(window: Window, item: ObjectState, sums: Ints, bounds: Bounds) -> bool:
    """Whether one more object would be too much for a job."""
    both = _joined(window, _window(item, item, sums))
    return both.weight > bounds.job_bytes or both.runs > bounds.job_runs


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Small runs, as they were walked over: ``rows`` of ``pairs``. ``at``: row of their object; ``fresh``: which are of level
    0."""

    pairs: list[tuple[bytes, bytes]]
    rows: Ints
    runs: npt.NDArray[np.void]
    at: Ints
    fresh: Bools


def _walk(
    state: ArchiveState, bounds: Bounds, objects: KnownObjects, left_out: frozenset[bytes]
) -> Iterator[_Chunk]:
    """Runs that a merge may take, live ones first."""
    for prefix in (RUN, CLOSED):
        pairs = state.view.iterate(prefix)
        while some := list(islice(pairs, _WALKED_AT_ONCE)):
            runs = table([value for _, value in some], RUN_RECORD_DTYPE)
            at = objects.rows(runs)
            level = objects.level[at]
            small = _live_bytes(runs) < bounds.block_bytes
            fresh = (level == 0) & (small | objects.inline[at])
            kept = np.flatnonzero((fresh | ((level == 1) & small)) & objects.usable[at])
            if left_out:
                kept = kept[[some[i][0] not in left_out for i in kept.tolist()]]
            if len(kept):
                yield _Chunk(some, kept, runs[kept], at[kept], fresh[kept])


def _live_bytes(runs: npt.NDArray[np.void]) -> Ints:
    """At most what the live part of each run takes: a trim at the front is not known in bytes."""
    found: Ints = runs["flat_end"] - runs["first_flat_offset"]
    return found


def job(state: ArchiveState, bounds: Bounds, window: Window, left_out: LeftOut = NOTHING) -> Job | None:
    """The job of a window; ``None`` if there is nothing in it any more."""
    objects = KnownObjects.of(state, left_out)
    first, last = (
        int(codes(np.array([[ref.commit_seq, ref.index]], np.int64))[0])
        for ref in (window.first, window.last)
    )
    keys: list[bytes] = []
    values: list[bytes] = []
    at: list[Ints] = []
    fresh: list[Bools] = []
    for chunk in _walk(state, bounds, objects, left_out.runs):
        code = objects.code[chunk.at]
        wanted = np.flatnonzero(~chunk.fresh | ((code >= first) & (code <= last)))
        pairs = [chunk.pairs[i] for i in chunk.rows[wanted].tolist()]
        keys += [key for key, _ in pairs]
        values += [value for _, value in pairs]
        at.append(chunk.at[wanted])
        fresh.append(chunk.fresh[wanted])
    if not keys:
        return None
    runs = table(values, RUN_RECORD_DTYPE)
    chosen, stretch = _chosen(keys, runs, np.concatenate(fresh), bounds.job_bytes - window.weight)
    if not len(chosen):
        return None
    rows = np.unique(np.concatenate(at)[chosen])
    return Job(
        tuple(keys[i] for i in chosen.tolist()),
        tuple(values[i] for i in chosen.tolist()),
        runs[chosen],
        stretch,
        tuple(objects.states[i] for i in rows.tolist()),
    )


def job_of(state: ArchiveState, item: ObjectState, most_bytes: int) -> Job | None:
    """Runs of one object, live ones first, each a stretch of its own: as many as ``most_bytes`` allow, one at least. ``None``
    if nothing lies in it."""
    keys: list[bytes] = []
    values: list[bytes] = []
    weight = 0
    for prefix in (RUN, CLOSED):
        pairs = state.view.iterate(prefix)
        while some := list(islice(pairs, _WALKED_AT_ONCE)):
            runs = table([value for _, value in some], RUN_RECORD_DTYPE)
            weights = _live_bytes(runs) + ROW_BYTES * runs["rows"].astype(np.int64)
            mine = (refs_of(runs) == (item.ref.commit_seq, item.ref.index)).all(axis=1)
            for i in np.flatnonzero(mine).tolist():
                weight += int(weights[i])
                if keys and weight > most_bytes:
                    return _one_each(keys, values, item)
                keys.append(some[i][0])
                values.append(some[i][1])
    return _one_each(keys, values, item) if keys else None


def _one_each(keys: list[bytes], values: list[bytes], item: ObjectState) -> Job:
    stretch = np.arange(len(keys), dtype=np.int64)
    return Job(tuple(keys), tuple(values), table(values, RUN_RECORD_DTYPE), stretch, (item,))


def _chosen(keys: list[bytes], runs: npt.NDArray[np.void], fresh: Bools, room: int) -> tuple[Ints, Ints]:
    """Numbers of the runs that are taken, ascending, and the stretch of each. ``room``: for those merged before."""
    places = [_PLACE_IN_QUEUE[key[:1]] for key in keys]
    queues = [key[:-place] for key, place in zip(keys, places, strict=True)]
    if fresh.all():
        behind = np.array([one == other for one, other in pairwise(queues)], np.bool_)
        goes_on = np.append(False, behind & (runs["end"][:-1] == runs["start"][1:]))
        return np.arange(len(keys), dtype=np.int64), np.cumsum(~goes_on) - 1
    starts, ends = runs["start"].tolist(), runs["end"].tolist()
    weights = (_live_bytes(runs) + ROW_BYTES * runs["rows"].astype(np.int64)).tolist()
    chosen: list[int] = []
    begins: list[bool] = []
    gathered = 0  # weight of what is taken of the stretch that is walked, from its end
    for i, is_fresh in reversed(list(enumerate(fresh.tolist()))):
        adjacent = (
            bool(chosen) and chosen[-1] == i + 1 and ends[i] == starts[i + 1] and queues[i] == queues[i + 1]
        )
        if not adjacent:
            gathered = 0
        if not is_fresh:
            if not gathered or weights[i] > min(gathered, room):
                continue
            room -= weights[i]
        if adjacent:
            begins[-1] = False
        chosen.append(i)
        begins.append(True)
        gathered += weights[i]
    numbers: Ints = np.array(chosen[::-1], np.int64)
    stretch: Ints = np.cumsum(np.array(begins[::-1], np.bool_)) - 1
    return numbers, stretch
