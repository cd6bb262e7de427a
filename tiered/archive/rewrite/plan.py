"""What a rewriting job is, and of which objects of a fold it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.keys import CLOSED, RUN
from tiered.archive.state.layout import RUN_RECORD_DTYPE, table
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt, NotFound
from tiered.model import ObjectRef

ROW_BYTES = 256
"""What a message takes on its way beside its record: its columns, as read and as sorted."""

WALKED_AT_ONCE = 8192
"""Pairs of the fold that a walk over runs takes."""


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
    def of(cls, state: ArchiveState, left_out: LeftOut, before: KnownObjects | None = None) -> KnownObjects:
        """Those of this fold. ``before``: those of an earlier one, so that only what was added since is looked at; it may name
        some that are deleted by now, in which no run lies."""
        new = list(state.objects(before.states[-1].ref if before and before.states else None))
        code = codes(np.array([(o.ref.commit_seq, o.ref.index) for o in new], np.int64).reshape(-1, 2))
        level = np.array([o.level for o in new], np.int64)
        inline = np.array([not o.path for o in new], np.bool_)
        if before is not None:
            new = [*before.states, *new]
            code = np.concatenate((before.code, code))
            level = np.concatenate((before.level, level))
            inline = np.concatenate((before.inline, inline))
        usable = ~np.isin(code, np.array([code_of(ref) for ref in left_out.objects], np.int64))
        return cls(new, code, level, inline, usable)

    def rows(self, runs: npt.NDArray[np.void]) -> Ints:
        """Which of them each run lies in."""
        found: Ints = np.searchsorted(self.code, codes(refs_of(runs)))
        return found


def codes(refs: Ints) -> Ints:
    """Commit and index as one number. An index is below 2^20: a commit holds no more edits."""
    found: Ints = (refs[:, 0] << 20) | refs[:, 1]
    return found


def code_of(ref: ObjectRef) -> int:
    """One reference as a number."""
    return ref.commit_seq << 20 | ref.index


def refs_of(runs: npt.NDArray[np.void]) -> Ints:
    """Commit and index of the object of each run."""
    return np.stack([runs["commit_seq"], runs["object"].astype(np.int64)], axis=1)


def live_bytes(runs: npt.NDArray[np.void]) -> Ints:
    """At most what the live part of each run takes: a trim at the front is not known in bytes."""
    found: Ints = runs["flat_end"] - runs["first_flat_offset"]
    return found


def job_of(state: ArchiveState, item: ObjectState, most_bytes: int) -> Job | None:
    """Runs of one object, live ones first, each a stretch of its own: as many as ``most_bytes`` allow, one at least. ``None``
    if nothing lies in it."""
    keys: list[bytes] = []
    values: list[bytes] = []
    weight = 0
    for prefix in (RUN, CLOSED):
        pairs = state.view.iterate(prefix)
        while some := list(islice(pairs, WALKED_AT_ONCE)):
            runs = table([value for _, value in some], RUN_RECORD_DTYPE)
            weights = live_bytes(runs) + ROW_BYTES * runs["rows"].astype(np.int64)
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
