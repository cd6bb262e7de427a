"""Retention planned topic by topic and queue by queue, with an object for each: what the plan by arrays is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.policy import LegalHold, Moment, RetentionPolicy, RetentionRule
from tiered.archive.rewrite.trims import Trim, TrimReason
from tiered.archive.state.listing import list_topics
from tiered.archive.state.values import GenerationState
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Bools, Ints

_NEVER = -(1 << 62)


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


def plain_trims(state: ArchiveState, policy: RetentionPolicy, moment: Moment) -> list[Trim]:
    """The trims that ``policy`` asks for at ``moment``, by topic, queue and generation."""
    trims: list[Trim] = []
    for topic in (found.topic for found in list_topics(state.view)):
        rule, holds, reason = policy.rule(topic), policy.holds_of(topic), None
        if policy.expired(topic):
            rule, reason = RetentionRule(keep_ms=0), TrimReason.DELETED
        if rule.forever:
            continue
        histories = [
            _history(state, generation)
            for queue in state.queues(topic)
            for generation in state.generations(queue.queue)
        ]
        aged_ms, cutoff_ms = _cutoffs(histories, rule, moment.now_ms, policy.min_age_ms)
        for history in histories:
            trim = _trim(history, aged_ms, cutoff_ms, moment.aged_seq, holds)
            if trim is not None:
                trims.append(trim if reason is None else replace(trim, reason=reason))
    return trims


def _history(state: ArchiveState, generation: GenerationState) -> _History:
    runs, parts = (
        find(generation.queue, generation.generation) for find in (state.run_table, state.closed_table)
    )
    if len(parts):  # joining takes numpy longer than all else here
        runs = np.concatenate((runs, parts))
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
    goes = runs["end"] <= first
    touched = runs["start"] < first
    live = history.live
    if not touched.any():
        return None
    newest_ms = int(runs["max_store_time"][touched].max())
    kept_by = None
    if stays is not None and history.newest[stays] < cutoff_ms and runs["commit_seq"][stays] <= aged_seq:
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
        reason=_reason(newest_ms, aged_ms),
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
