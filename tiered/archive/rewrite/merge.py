"""Merging, as a task: small runs of all queues become one object sorted by queue (level 0 to 1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tiered.archive.keys import Area, ObjectKey, build
from tiered.archive.log.flush import DataObject
from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Turn
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.mergeplan import (
    Bounds,
    FreshRuns,
    MergeCut,
    Window,
    fresh_windows,
    growing_window,
    job,
    windows,
)
from tiered.archive.rewrite.plan import NOTHING, DamagedObjects, Job, KnownObjects, LeftOut, none_damaged
from tiered.archive.rewrite.sources import Sources, UnevenCut
from tiered.archive.rewrite.swap import Replacement, Swap
from tiered.archive.rewrite.writing import MERGED_LEVEL, Layout, Rewritten, rewrite
from tiered.clock import Clock
from tiered.codec.format.object import encode_object
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Corrupt, NotFound
from tiered.provider.resolve import put_own
from tiered.settings import MIB, Settings

TABLE_BYTES = 64 * MIB
"""Tables of objects that several jobs of a window read, decoded, and as much of them as they are stored."""
GROWTH = 10
"""How much larger a merged run becomes when it is written again: twice as much would be fewer rewrites, and twice as many small
runs of each queue until then."""
BEHIND = 4
"""Times ``MergeOptions.waiting_runs``: more wait where merging does not keep up with archiving."""


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """When, how much at once, and in which form. ``waiting_runs``: a round begins once so many are fresh, if not before."""

    interval_seconds: float
    waiting_runs: int
    bounds: Bounds
    layout: Layout

    @classmethod
    def of(cls, settings: Settings) -> MergeOptions:
        """As the settings say: blocks are those of fresh data."""
        care, block_bytes = settings.maintenance, settings.dispatch.block_bytes
        return cls(
            care.merge_interval_ms / 1000,
            care.merge_waiting_runs,
            Bounds(block_bytes, 2 * block_bytes, GROWTH, care.merge_bytes, care.merge_runs),
            Layout.of(settings),
        )


class Merge:
    """The task. A turn is one job: its memory is what ``Bounds.job_bytes`` allows, as read (stored) and as written, a window of
    opened records, and twice ``TABLE_BYTES`` of tables that the next job of its window reads, too. A round takes what is fresh,
    then what is to grow, unless enough is fresh again; each of both is planned by a walk over all runs, and its jobs walk once
    more.

    What cannot be read, or not be written anew, is left out until the next round: its runs stay as they are, all others are
    merged.
    """

    name = "merge"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        options: MergeOptions,
        own_keys: OwnKeys,
        random_bytes: Callable[[int], bytes] = os.urandom,
        *,
        damaged: DamagedObjects = none_damaged,
    ) -> None:
        self._log = log
        self._clock = clock
        self._options = options
        self._own_keys = own_keys
        self._random_bytes = random_bytes
        self._damaged = damaged
        self._next = clock.monotonic() + options.interval_seconds
        self._left_out = NOTHING
        self._fresh = FreshRuns()
        self._rounds = 0
        self._spend: Callable[[int], None] = lambda n: None  # of the turn that is under way
        self._round: list[Window] | None = None  # what is left of it
        self._grows = False  # merged runs are among it, or there were none
        self._start = b""  # of the next job, in the first window
        self._sources: Sources | None = None  # of the window
        self._objects: KnownObjects | None = None  # of the round

    def due(self, now: float) -> bool:
        """While there is a round; an interval after the last one ended, or once much is fresh."""
        return self._round is not None or now >= self._next or self._much_is_fresh()

    def _much_is_fresh(self) -> bool:
        return self._fresh.count(self._log.proven()) >= self._options.waiting_runs

    def plan(self) -> Outlook:
        """See ``Task``."""
        found = self._windows()
        jobs = sum(each.jobs(self._options.bounds) for each in found)
        sums = [
            sum(values) for values in zip(*((w.runs, w.messages, w.record_bytes) for w in found), strict=True)
        ]
        runs, messages, record_bytes = sums or (0, 0, 0)
        figures: Figures = {"runs": runs, "messages": messages, "record_bytes": record_bytes}
        said = f"{runs} small runs with {messages} messages, {record_bytes} bytes, in {jobs} jobs"
        return Outlook(jobs, said if found else "no small runs", figures, tuple(map(_row, found)))

    def run_once(self, turn: Turn) -> Done:
        """Merge the oldest of what there is."""
        trouble = None
        if self._round is None or (self._grows and self._much_is_fresh()):
            trouble = self._begin()
        done = Done(more=False)
        while (window := self._window()) is not None:
            state, avoided = self._log.frozen(), self._avoided()
            self._objects = KnownObjects.of(state, avoided, self._objects)
            cut = job(state, self._options.bounds, window, self._objects, self._start, avoided)
            if cut is not None:
                done = self._merge(cut, turn)
                break
            self._go_on(None)
        if not done.more:  # what was archived meanwhile waits for the next round
            self._left_out, self._round, self._sources, self._objects = NOTHING, None, None, None
            self._next = self._clock.monotonic() + self._options.interval_seconds
        return replace(done, trouble=done.trouble or trouble)

    def _begin(self) -> str | None:
        """Begin a round; what is to be told of it: runs that wait are fresh, or were to grow in the round before."""
        state = self._log.frozen()
        left = sum(each.runs for each in self._round or ())
        self._fresh.begin(state)
        self._round, self._grows = fresh_windows(state, self._options.bounds, self._avoided()), False
        self._start, self._sources = b"", None
        self._rounds += 1
        waiting = left + sum(each.runs for each in self._round)
        limit = BEHIND * self._options.waiting_runs
        if self._rounds == 1 or waiting <= limit:
            return None
        return (
            f"merging does not keep up with archiving: {waiting} runs wait, more than {limit}, and the state grows with them; "
            "raise maintenance.max_bytes_per_second, or dispatch.group_commit_interval_ms for fewer runs"
        )

    def _window(self) -> Window | None:
        """The one at hand: fresh runs first, then merged ones as they are by then; ``None`` at the end of the round."""
        assert self._round is not None
        if not self._round and not self._grows:
            growing = growing_window(self._log.frozen(), self._options.bounds, self._avoided())
            self._round, self._grows = [] if growing is None else [growing], True
        return self._round[0] if self._round else None

    def _go_on(self, behind: bytes | None) -> None:
        """To the next job of the window, or to the next window."""
        assert self._round is not None
        if behind is None:
            self._round.pop(0)
            self._sources = None
        self._start = behind or b""

    def _windows(self) -> list[Window]:
        return windows(self._log.frozen(), self._options.bounds, self._avoided())

    def _avoided(self) -> LeftOut:
        return self._left_out.and_objects(self._damaged(self._log.frozen()))

    def _merge(self, cut: MergeCut, turn: Turn) -> Done:
        made = cut.job
        try:
            rewritten = self._rewrite(made, turn)
        except UnevenCut as uneven:
            runs = self._left_out.runs | {made.keys[i] for i in uneven.runs.tolist()}
            self._left_out = replace(self._left_out, runs=runs)
            return Done(more=True)
        except (Corrupt, NotFound) as error:
            damaged = made.object_of(error, self._log.reader.keys)
            if damaged is None:
                raise
            self._left_out = replace(self._left_out, objects=self._left_out.objects | {damaged.ref})
            return Done(more=True, trouble=f"an object cannot be merged: {error}")
        return self._swap(cut, rewritten, turn)

    def _rewrite(self, made: Job, turn: Turn) -> Rewritten:
        self._spend = turn.spend
        if self._sources is None:
            reader = self._log.reader
            self._sources = Sources(
                reader.provider, reader.keys, reader.identity.archive_id, lambda n: self._spend(n),
                table_bytes=TABLE_BYTES,
            )  # fmt: skip
        return rewrite(made, self._sources.gather(made), self._options.layout, lambda: turn.spend(0))

    def _swap(self, cut: MergeCut, rewritten: Rewritten, turn: Turn) -> Done:
        """Put the object, then have the commit that names it; its part of the window is then done."""
        made, tables = cut.job, rewritten.tables
        written_bytes = replaced(
            self._log, self._own_keys, made, rewritten, turn, self._clock.monotonic(), self._random_bytes(16)
        )
        if written_bytes is None:
            return Done(more=True, figures={"dropped_jobs": 1})
        self._go_on(cut.behind)
        reach(CrashPoint.AFTER_MERGE)
        figures: Figures = {
            "merged_runs": len(made.runs),
            "made_runs": len(rewritten.targets),
            "messages": len(tables.rows),
            "record_bytes": int(tables.runs["bytes"].sum(dtype=np.int64)),
            "read_objects": len(made.objects),
            "written_objects": 1,
            "written_bytes": written_bytes,
        }
        return Done(self._window() is not None, figures)


def replaced(
    log: CommitLog,
    own_keys: OwnKeys,
    made: Job,
    rewritten: Rewritten,
    turn: Turn,
    now: float,
    object_id: bytes,
) -> int | None:
    """Put what a job was rewritten to, then have the commit that names it; how many bytes that are. ``None``: no source is as
    it was."""
    reader, head = log.reader, log.proven().head()
    assert head is not None  # there are runs
    path = build(ObjectKey(Area.DATA, head.epoch, object_id))
    tables, archive_id = rewritten.tables, reader.identity.archive_id
    encoded = encode_object(tables, object_id=object_id, archive_id=archive_id, level=MERGED_LEVEL)
    reach(CrashPoint.BEFORE_MERGED)
    turn.spend(encoded.length)
    with own_keys.making(path) as counted:
        put_own(reader.provider, reader.keys.key(path), encoded.parts)
        reach(CrashPoint.AFTER_MERGED)
        data = DataObject(path, object_id, encoded, there=True)
        merged = Replacement(data, MERGED_LEVEL, tables.runs, rewritten.targets)
        proven = turn.commit(Swap(made, (merged,), now))
        if proven is None:
            return None
        counted()
    return encoded.length


def _row(window: Window) -> Figures:
    """Runs that are taken together, in a dry run."""
    return {
        "level": window.level,
        "first_commit": window.first.commit_seq,
        "last_commit": window.last.commit_seq,
        "runs": window.runs,
        "messages": window.messages,
        "record_bytes": window.record_bytes,
    }
