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
from tiered.archive.rewrite.plan import (
    NOTHING,
    Bounds,
    DamagedObjects,
    Job,
    LeftOut,
    Window,
    job,
    none_damaged,
    windows,
)
from tiered.archive.rewrite.sources import Sources, UnevenCut
from tiered.archive.rewrite.swap import Replacement, Swap
from tiered.archive.rewrite.writing import MERGED_LEVEL, Layout, Rewritten, rewrite
from tiered.clock import Clock
from tiered.codec.format.object import encode_object
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Corrupt, NotFound
from tiered.provider.resolve import put_own
from tiered.settings import MIB, Settings

WINDOW_BYTES = 16 * MIB
"""Records opened at once."""


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """When, how much at once, and in which form."""

    interval_seconds: float
    bounds: Bounds
    layout: Layout

    @classmethod
    def of(cls, settings: Settings) -> MergeOptions:
        """As the settings say: blocks are those of fresh data."""
        care, dispatch = settings.maintenance, settings.dispatch
        level = dispatch.compression_level if dispatch.compression == "zstd" else 0
        return cls(
            care.merge_interval_ms / 1000,
            Bounds(dispatch.block_bytes, care.merge_bytes, care.merge_runs),
            Layout(dispatch.block_bytes, level, min(WINDOW_BYTES, care.merge_bytes)),
        )


class Merge:
    """The task. A turn is one job: its memory is what ``Bounds.job_bytes`` allows, as read (stored) and as written, and a
    window of opened records. A round plans its jobs once, by a walk over all runs, and walks once more for each of them.

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
        self._round: list[Window] | None = None  # what is left of it

    def due(self, now: float) -> bool:
        """An interval after the last round ended."""
        return now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``."""
        found = self._windows()
        sums = [
            sum(values) for values in zip(*((w.runs, w.messages, w.record_bytes) for w in found), strict=True)
        ]
        runs, messages, record_bytes = sums or (0, 0, 0)
        figures: Figures = {"runs": runs, "messages": messages, "record_bytes": record_bytes}
        said = f"{runs} small runs with {messages} messages, {record_bytes} bytes, in {len(found)} jobs"
        return Outlook(len(found), said if found else "no small runs", figures, tuple(map(_row, found)))

    def run_once(self, turn: Turn) -> Done:
        """Merge the oldest of what there is."""
        if self._round is None:
            self._round = self._windows()
        made = None
        while self._round and made is None:
            made = job(self._log.frozen(), self._options.bounds, self._round[0], self._avoided())
            if made is None:
                del self._round[0]
        done = Done(more=False) if made is None else self._merge(made, turn, self._round)
        if not done.more:  # what was archived meanwhile waits for the next round
            self._left_out, self._round = NOTHING, None
            self._next = self._clock.monotonic() + self._options.interval_seconds
        return done

    def _windows(self) -> list[Window]:
        return windows(self._log.frozen(), self._options.bounds, self._avoided())

    def _avoided(self) -> LeftOut:
        return self._left_out.and_objects(self._damaged(self._log.proven()))

    def _merge(self, made: Job, turn: Turn, left: list[Window]) -> Done:
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
        return self._swap(made, rewritten, turn, left)

    def _rewrite(self, made: Job, turn: Turn) -> Rewritten:
        reader = self._log.reader
        sources = Sources(reader.provider, reader.keys, reader.identity.archive_id, turn.spend)
        return rewrite(made, sources.gather(made), self._options.layout, lambda: turn.spend(0))

    def _swap(self, made: Job, rewritten: Rewritten, turn: Turn, left: list[Window]) -> Done:
        """Put the object, then have the commit that names it; the first of the windows that are ``left`` is then done."""
        tables = rewritten.tables
        written_bytes = replaced(
            self._log, self._own_keys, made, rewritten, turn, self._clock.monotonic(), self._random_bytes(16)
        )
        if written_bytes is None:
            return Done(more=True, figures={"dropped_jobs": 1})
        del left[0]
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
        return Done(bool(left), figures)


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
    """A job in a dry run."""
    return {
        "first_commit": window.first.commit_seq,
        "last_commit": window.last.commit_seq,
        "runs": window.runs,
        "messages": window.messages,
        "record_bytes": window.record_bytes,
    }
