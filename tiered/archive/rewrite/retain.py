"""Retention as a pure function: a fold, a policy and a moment give the trims, each with its reason.

Trims end where runs end. The fold knows each run's store times and nothing of what lies between them, so this needs no request;
a run is about a second of a queue when fresh and at most a day of it when merged, and only a whole run frees an object. So a
message may stay that much longer than its rule says, and none goes earlier.

A queue is trimmed from its front only: the first run that must stay, by age, by size or by a legal hold, keeps everything
behind it. Closed parts lie in the same offsets and are judged like runs: one that must stay keeps what lies above its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from itertools import groupby

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.policy import LegalHold, Moment, RetentionPolicy, RetentionRule
from tiered.archive.state.values import GenerationState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.codec.types import Bools, Ints
from tiered.errors import Refused
from tiered.model import MessageQueue

_NEVER = -(1 << 62)
"""A cutoff that nothing is older than."""


class TrimReason(Enum):
    """What took the newest message of a trim: a half of its rule, or the end of its topic."""

    AGE = "age"
    SIZE = "size"
    DELETED = "topic deleted"


@dataclass(frozen=True, slots=True)
class Trim:
    """A generation of a queue begins at ``first_offset`` from now on.

    ``messages`` (queue offsets), ``bytes`` (records) and ``runs`` are those that readers lose; ``closed_parts``: what goes of
    closed history. ``newest_ms``: the latest store time of all that. ``cutoff_ms``: what is older may go. ``kept_by``: the
    legal hold that stopped the trim, if one did.
    """

    queue: MessageQueue
    generation: int
    min_offset: int
    first_offset: int
    messages: int
    bytes: int
    runs: int
    closed_parts: int
    newest_ms: int
    cutoff_ms: int
    reason: TrimReason
    kept_by: str | None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What a run of retention does. ``live_bytes``: records of the archive before it. ``unmatched``: patterns, of rules and
    holds, that no topic of the archive fits."""

    trims: tuple[Trim, ...]
    live_bytes: int
    unmatched: tuple[str, ...]

    @property
    def trimmed_bytes(self) -> int:
        """Bytes of records that readers lose."""
        return sum(trim.bytes for trim in self.trims)


@dataclass(frozen=True, slots=True)
class _History:
    """A generation with its live runs and closed parts, by first offset; ``newest``: the latest store time up to each."""

    generation: GenerationState
    runs: npt.NDArray[np.void]
    newest: Ints

    @property
    def live(self) -> Bools:
        """Which of them are live."""
        found: Bools = self.runs["closed_by"] < 0
        return found

    @property
    def sizes(self) -> Ints:
        """Bytes of live runs; 0 for a closed part, and for a run that was trimmed in part: counted too small, more stays."""
        whole = self.live & (self.runs["start"] == self.runs["first_queue_offset"])
        sizes: Ints = np.where(whole, self.runs["flat_end"] - self.runs["first_flat_offset"], 0)
        return sizes


def plan_retention(state: ArchiveState, policy: RetentionPolicy, moment: Moment) -> RetentionPlan:
    """The trims that ``policy`` asks for at ``moment``, by topic, queue and generation. Nothing is changed."""
    trims: list[Trim] = []
    live_bytes = 0
    topics = []
    for topic, queues in groupby(state.queues(), lambda found: found.queue.topic):
        topics.append(topic)
        histories = [
            _history(state, generation) for queue in queues for generation in state.generations(queue.queue)
        ]
        live_bytes += sum(history.generation.bytes for history in histories)
        rule, holds, reason = policy.rule(topic), policy.holds_of(topic), None
        if policy.expired(topic):
            rule, reason = RetentionRule(keep_ms=0), TrimReason.DELETED
        if rule.forever:
            continue
        aged_ms, cutoff_ms = _cutoffs(histories, rule, moment.now_ms, policy.min_age_ms)
        for history in histories:
            trim = _trim(history, aged_ms, cutoff_ms, moment.aged_seq, holds)
            if trim is not None:
                trims.append(trim if reason is None else replace(trim, reason=reason))
    return RetentionPlan(tuple(trims), live_bytes, tuple(_unmatched(policy, topics)))


def check_share(plan: RetentionPlan, max_trim_percent: int) -> None:
    """``Refused``, with the figures, for a plan that takes more of the archive than this share."""
    if plan.trimmed_bytes * 100 > plan.live_bytes * max_trim_percent:
        share = -(-plan.trimmed_bytes * 100 // plan.live_bytes)
        raise Refused(
            "this run would trim more of the archive than it may without being asked",
            hint=f"look at `tiered retain --dry-run`; if it is right, run `tiered retain --max-trim-percent {share}`",
            expected=f"at most {max_trim_percent} % (retain.max_trim_percent)", found=f"{share} %",
            bytes=plan.trimmed_bytes, of=plan.live_bytes, queues=len({trim.queue for trim in plan.trims}),
        )  # fmt: skip


def narrowed(
    state: ArchiveState, trims: Sequence[Trim], policy: RetentionPolicy, aged_seq: int
) -> list[Trim]:
    """The trims as this later fold allows them: each as far as it was planned, or less where a run was merged or a tail rewound
    meanwhile; those that nothing is left of are gone."""
    made = []
    for planned in trims:
        generations = state.generations(planned.queue)
        found = next((g for g in generations if g.generation == planned.generation), None)
        if found is None:
            continue
        holds = policy.holds_of(planned.queue.topic)
        cutoff_ms = planned.cutoff_ms
        trim = _trim(_history(state, found), cutoff_ms, cutoff_ms, aged_seq, holds, planned)
        if trim is not None:
            made.append(trim)
    return made


def trim_edit(trims: Sequence[Trim]) -> EditBatch:
    """The edit of these trims."""
    return batch(
        EditKind.TRIM_QUEUE,
        topic=[trim.queue.topic for trim in trims],
        queue_id=[trim.queue.queue_id for trim in trims],
        generation=[trim.generation for trim in trims],
        first_offset=[trim.first_offset for trim in trims],
    )


def _history(state: ArchiveState, generation: GenerationState) -> _History:
    tables = [find(generation.queue, generation.generation) for find in (state.run_table, state.closed_table)]
    runs = np.concatenate(tables)
    runs = runs[np.argsort(runs["start"], kind="stable")]
    return _History(generation, runs, np.maximum.accumulate(runs["max_store_time"]))


def _cutoffs(
    histories: Sequence[_History], rule: RetentionRule, now_ms: int, min_age_ms: int
) -> tuple[int, int]:
    """What is older than the first may go by age, than the second by age or size; the least age bounds both."""
    youngest_ms = now_ms - min_age_ms
    aged_ms = _NEVER if rule.keep_ms is None else min(now_ms - rule.keep_ms, youngest_ms)
    if rule.keep_bytes is None or not histories:
        return aged_ms, aged_ms
    newest = np.concatenate([history.newest for history in histories])
    sizes = np.concatenate([history.sizes for history in histories])
    return aged_ms, max(aged_ms, min(_size_cutoff(newest, sizes, rule.keep_bytes), youngest_ms))


def _size_cutoff(newest: Ints, sizes: Ints, keep_bytes: int) -> int:
    """The time that at least ``keep_bytes`` are at or above, as late as it can be."""
    times, numbers = np.unique(newest, return_inverse=True)
    at = np.zeros(len(times), np.int64)
    np.add.at(at, numbers, sizes)
    kept = np.cumsum(at[::-1])[::-1]  # by a cutoff at each of these times
    enough = np.flatnonzero(kept >= keep_bytes)
    return int(times[enough[-1]]) if len(enough) else _NEVER


def _trim(
    history: _History,
    aged_ms: int,
    cutoff_ms: int,
    aged_seq: int,
    holds: Sequence[LegalHold],
    planned: Trim | None = None,
) -> Trim | None:
    """The trim of one generation; ``None`` where nothing goes."""
    generation, runs = history.generation, history.runs
    if not len(runs):
        return None
    free = (history.newest < cutoff_ms) & (runs["commit_seq"] <= aged_seq)
    held_by = [(hold, _held(runs, hold)) for hold in holds]
    for _, held in held_by:
        free &= ~held
    stays = int(np.argmin(free)) if not free.all() else None
    first = _first_offset(history, stays)
    if planned is not None:
        first = min(first, planned.first_offset)
    goes = runs["end"] <= first
    touched = runs["start"] < first
    live = history.live
    if not touched.any():
        return None
    newest_ms = int(runs["max_store_time"][touched].max())
    kept_by = None if planned is None else planned.kept_by
    if (
        planned is None
        and stays is not None
        and history.newest[stays] < cutoff_ms
        and runs["commit_seq"][stays] <= aged_seq
    ):
        kept_by = next(hold.name for hold, held in held_by if held[stays])
    return Trim(
        generation.queue,
        generation.generation,
        generation.min_offset,
        first,
        messages=int((runs["end"] - runs["start"])[goes & live].sum()),
        bytes=int((runs["flat_end"] - runs["first_flat_offset"])[goes & live].sum()),
        runs=int((goes & live).sum()),
        closed_parts=int((touched & ~live).sum()),
        newest_ms=newest_ms,
        cutoff_ms=cutoff_ms,
        reason=_reason(newest_ms, aged_ms) if planned is None else planned.reason,
        kept_by=kept_by,
    )


def _held(runs: npt.NDArray[np.void], hold: LegalHold) -> Bools:
    """Which of these runs of a covered topic may have a message in the hold's time."""
    held: Bools = (runs["max_store_time"] >= hold.start_ms) & (runs["min_store_time"] < hold.end_ms)
    return held


def _reason(newest_ms: int, aged_ms: int) -> TrimReason:
    return TrimReason.AGE if newest_ms < aged_ms else TrimReason.SIZE


def _first_offset(history: _History, stays: int | None) -> int:
    """Where a generation begins when everything before run ``stays``, or all, may go; never inside a live run."""
    generation, runs = history.generation, history.runs
    highest = generation.max_offset
    if not generation.current:
        highest = max(highest, int(runs["end"].max()))
    if stays is None:
        return highest
    first = int(runs["start"][stays])
    across = history.live & (runs["start"] < first) & (runs["end"] > first)
    if across.any():  # a closed part that stays begins inside it
        first = int(runs["start"][across].min())
    return min(first, highest)


def _unmatched(policy: RetentionPolicy, topics: Sequence[str]) -> Iterator[str]:
    for pattern in [*(pattern for pattern, _ in policy.patterns), *(hold.pattern for hold in policy.holds)]:
        if not any(fnmatchcase(topic, pattern) for topic in topics):
            yield pattern
