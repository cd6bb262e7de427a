"""Retention, as a task: the one look that every run begins with, dry or not (holds, clocks, then the plan), and its commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.flush import Flush, Priority
from tiered.archive.log.maintenance import Done, Figures, Outlook, Turn
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog, Place
from tiered.archive.rewrite.holds import holds_in_force
from tiered.archive.rewrite.policy import Moment, RetentionPolicy, agreed_now, policy_from
from tiered.archive.rewrite.retain import (
    RetentionPlan,
    Trim,
    check_share,
    narrowed,
    plan_retention,
    trim_edit,
)
from tiered.archive.rewrite.storetime import aged_commit
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import AgeingPoint, reach
from tiered.settings.keeping import Retain
from tiered.text.human import size


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """A plan, and what it was made with: a commit of its trims needs that again."""

    plan: RetentionPlan
    policy: RetentionPolicy
    moment: Moment


def look(reader: LogReader, state: ArchiveState, settings: Retain, clock: Clock) -> RetentionRun | None:
    """What retention would do to ``state`` now; ``None`` if the settings keep everything for ever.

    ``Refused`` where clocks are apart, or the store has none; ``Corrupt`` where a hold cannot be read.
    """
    policy = policy_from(settings)
    head = state.head()
    if policy.forever or head is None:
        return None
    provider, keys = reader.provider, reader.keys
    holds = holds_in_force(provider, keys, head.archive_id)
    policy = policy_from(settings, holds)
    now_ms = agreed_now(clock.now_ms(), _store_ms(reader, keys))
    moment = Moment(now_ms, aged_commit(reader, head, settings.min_age_ms))
    return RetentionRun(plan_retention(state, policy, moment), policy, moment)


def _store_ms(reader: LogReader, keys: ArchiveKeys) -> int:
    """The store's clock."""
    return reader.provider.get(keys.identity, 0, 1).date_ms


TRIMS = 4096
"""Trims of one commit."""


@dataclass(frozen=True, slots=True)
class TrimQueues:
    """Trims on their way to their place in the log, where each is narrowed to what the fold allows then."""

    trims: Sequence[Trim]
    run: RetentionRun
    now: float
    messages: int = 0
    raw_bytes: int = 0
    priority: Priority = Priority.SEALING

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what is left of the trims; ``None`` if nothing is."""
        kept = narrowed(fold, self.trims, self.run.policy, self.run.moment.aged_seq)
        return Flush((trim_edit(kept),), None, self.now, priority=self.priority) if kept else None


class Retention:
    """The task. A turn looks anew, at holds and clocks too, and commits up to ``TRIMS`` trims; the share that a run may take is
    judged before its first, over all of them.

    ``max_trim_percent``: what an operator allowed, in place of the settings' own.
    """

    name = "retain"

    def __init__(
        self, log: CommitLog, clock: Clock, settings: Retain, max_trim_percent: int | None = None
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._percent = settings.max_trim_percent if max_trim_percent is None else max_trim_percent
        self._within_round = False
        self._next = clock.monotonic() + settings.interval_ms / 1000
        self._keeps_all = policy_from(settings).forever

    def due(self, now: float) -> bool:
        """An interval after the last round ended; never where everything is kept for ever."""
        return not self._keeps_all and now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``."""
        run = self._look()
        if run is None:
            return Outlook(0, "every message is kept for ever")
        plan = run.plan
        told = (
            f"{len(plan.trims)} queues to be trimmed by {size(plan.trimmed_bytes)} of {size(plan.live_bytes)}"
        )
        figures: Figures = {
            "trims": len(plan.trims), "trimmed_bytes": plan.trimmed_bytes, "live_bytes": plan.live_bytes,
        }  # fmt: skip
        return Outlook(
            -(-len(plan.trims) // TRIMS),
            told if plan.trims else "nothing to trim",
            figures,
            tuple(map(row, plan.trims)),
        )

    def run_once(self, turn: Turn) -> Done:
        """Trim up to ``TRIMS`` queues."""
        run = self._look()
        trims = () if run is None else run.plan.trims
        if run is None or not trims:
            return self._ended({})
        if not self._within_round:
            check_share(run.plan, self._percent)
        self._within_round = False  # an error on the way: judged again
        reach(AgeingPoint.BEFORE_TRIM)
        proven = turn.commit(TrimQueues(trims[:TRIMS], run, self._clock.monotonic()))
        reach(AgeingPoint.AFTER_TRIM)
        count = 0 if proven is None else len(proven.flush.edits[0])
        if not count or len(trims) <= TRIMS:
            return self._ended({"trimmed_queues": count})
        self._within_round = True
        return Done(True, {"trimmed_queues": count})

    def _ended(self, figures: Figures) -> Done:
        self._within_round = False
        self._next = self._clock.monotonic() + self._settings.interval_ms / 1000
        return Done(False, figures)

    def _look(self) -> RetentionRun | None:
        return look(self._log.reader, self._log.proven(), self._settings, self._clock)


def row(trim: Trim) -> Figures:
    """A trim as programs and tables show it."""
    return {
        "topic": trim.queue.topic, "queue_id": trim.queue.queue_id, "generation": trim.generation,
        "min_offset": trim.min_offset, "first_offset": trim.first_offset, "messages": trim.messages, "bytes": trim.bytes,
        "runs": trim.runs, "closed_parts": trim.closed_parts, "newest": trim.newest_ms, "reason": trim.reason.value,
        "kept_by": trim.kept_by,
    }  # fmt: skip
