"""Retention, as a task: the one look that every run begins with, dry or not (holds, clocks, then the plan), and its commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from tiered.archive.log.flush import Flush
from tiered.archive.log.identity import require_listing
from tiered.archive.log.maintenance import Done, Figures, Outlook, Turn, WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.holds import holds_in_force
from tiered.archive.rewrite.policy import (
    BrokerSays,
    Moment,
    RequiredSink,
    RetentionPolicy,
    agreed_now,
    policy_from,
)
from tiered.archive.rewrite.retain import RetentionPlan, check_share, narrowed, plan_retention
from tiered.archive.rewrite.storetime import aged_commit, store_now_ms
from tiered.archive.rewrite.trims import Trim, Trims
from tiered.archive.state.tallies import kept_topics
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import AgeingPoint, reach
from tiered.errors import Refused
from tiered.settings.keeping import Retain
from tiered.text.human import size


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """A plan, and what it was made with: a commit of its trims needs that again."""

    plan: RetentionPlan
    policy: RetentionPolicy
    moment: Moment


class BrokersWord(Protocol):
    """What the broker says of its topics, asked anew by each run."""

    def heeded(self, settings: Retain) -> bool:
        """Whether it may let something go that the settings keep. Touches no file."""
        ...

    def says(
        self, settings: Retain, topics: Callable[[], Collection[str]], now_ms: Callable[[], int]
    ) -> BrokerSays:
        """Of the archive's ``topics``. ``now_ms``: what host and store agree on. Both cost something, and are asked only where
        they matter. ``Unavailable`` where the answer matters and cannot be had now."""
        ...


class SilentBroker:
    """Nobody says anything: the settings decide alone."""

    def heeded(self, settings: Retain) -> bool:
        """See ``BrokersWord``."""
        return False

    def says(
        self, settings: Retain, topics: Callable[[], Collection[str]], now_ms: Callable[[], int]
    ) -> BrokerSays:
        """See ``BrokersWord``."""
        return BrokerSays()


SILENT = SilentBroker()


def look(
    reader: LogReader,
    state: ArchiveState,
    settings: Retain,
    clock: Clock,
    broker: BrokersWord = SILENT,
    most: int | None = None,
    required: Callable[[], Sequence[RequiredSink]] = tuple,
) -> RetentionRun | None:
    """What retention would do to ``state`` now, ``most`` trims of it; ``None`` if settings and broker keep everything for ever.

    ``required``: sinks that it waits for. ``Refused`` where clocks are apart, or the store has none; ``Corrupt`` where a hold
    or a sink's order, ``Unavailable`` where the broker's word cannot be read, or the store lists nothing at all.
    """
    head = state.head()
    if head is None:
        return None
    provider, keys = reader.provider, reader.keys
    now_ms = cache(lambda: agreed_now(clock.now_ms(), store_now_ms(reader)))
    said = broker.says(settings, lambda: kept_topics(state.view), now_ms)
    if policy_from(settings, broker=said).forever:
        return None
    holds, sinks = holds_in_force(provider, keys, head.archive_id), tuple(required())
    if not holds or not sinks:
        require_listing(provider, keys)
    policy = replace(policy_from(settings, holds, said), sinks=sinks)
    moment = Moment(now_ms(), aged_commit(reader, head, settings.min_age_ms))
    return RetentionRun(plan_retention(state, policy, moment, most=most), policy, moment)


TRIMS = 4096
"""Trims of one commit."""

COMMITS = 64
"""Of one look, which costs something for each queue that there is."""

SHOWN = 10_000
"""Trims that a dry run of the task names one by one."""


@dataclass(frozen=True, slots=True)
class TrimQueues(WithoutMessages):
    """Trims on their way to their place in the log, where each is narrowed to what the fold allows then."""

    trims: Trims
    run: RetentionRun
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what is left of the trims; ``None`` if nothing is."""
        kept = narrowed(fold, self.trims, self.run.policy, self.run.moment.aged_seq)
        return Flush((kept.edit(),), None, self.now, priority=self.priority) if len(kept) else None


class Retention:
    """The task. A turn looks anew, at settings, holds, clocks and the broker's word too, and has up to ``COMMITS`` commits; the
    share that a run may take is judged before its first, over all of them, and in each later turn over what is left: that is a
    smaller one, unless a rule or a hold went meanwhile.

    ``settings``: as they are by then. ``max_trim_percent``: what an operator allowed, in place of the settings' own.
    """

    name = "retain"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        settings: Callable[[], Retain],
        broker: BrokersWord = SILENT,
        max_trim_percent: int | None = None,
        required: Callable[[], Sequence[RequiredSink]] = tuple,
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._broker = broker
        self._percent = max_trim_percent
        self._required = required
        self._ended_at = clock.monotonic()

    def due(self, now: float) -> bool:
        """An interval after the last round ended; never where everything is kept for ever, whatever the broker says."""
        settings = self._settings()
        if now < self._ended_at + settings.interval_ms / 1000:
            return False
        return self._broker.heeded(settings) or not policy_from(settings).forever

    def plan(self) -> Outlook:
        """See ``Task``."""
        run = self._look(SHOWN)
        if run is None:
            return Outlook(0, "every message is kept for ever")
        plan = run.plan
        told = f"{plan.count} queues to be trimmed by {size(plan.trimmed_bytes)} of {size(plan.live_bytes)}"
        figures: Figures = {
            "trims": plan.count, "trimmed_bytes": plan.trimmed_bytes, "live_bytes": plan.live_bytes, "queues_ahead": plan.ahead,
        }  # fmt: skip
        ahead = f"; {said_of_ahead(plan.ahead)}" if plan.ahead else ""
        refused = self._refused(plan)
        told = told if refused is None else f"{told}: {refused}"
        return Outlook(
            -(-plan.count // TRIMS),
            (told if plan.count else "nothing to trim") + ahead,
            figures,
            tuple(map(row, plan.trims)),
            refused,
        )

    def run_once(self, turn: Turn) -> Done:
        """Trim up to ``TRIMS`` queues in each of ``COMMITS`` commits."""
        within = TRIMS * COMMITS
        run = self._look(within)
        left = {"queues_ahead": 0 if run is None else run.plan.ahead}
        if run is None or not run.plan.count:
            return self._ended({}, left)
        self._check_share(run.plan)
        count, trims = 0, run.plan.trims
        for first in range(0, len(trims), TRIMS):
            reach(AgeingPoint.BEFORE_TRIM)
            proven = turn.commit(TrimQueues(trims[first : first + TRIMS], run, self._clock.monotonic()))
            reach(AgeingPoint.AFTER_TRIM)
            count += 0 if proven is None else len(proven.flush.edits[0])
        if not count or run.plan.count <= within:
            return self._ended({"trimmed_queues": count}, left)
        return Done(True, {"trimmed_queues": count})

    def _check_share(self, plan: RetentionPlan) -> None:
        check_share(plan, self._settings().max_trim_percent if self._percent is None else self._percent)

    def _refused(self, plan: RetentionPlan) -> str | None:
        """Why a run would do nothing of this plan, if that is so."""
        try:
            self._check_share(plan)
        except Refused as error:
            return str(error)
        return None

    def _ended(self, figures: Figures, left: Mapping[str, int]) -> Done:
        self._ended_at = self._clock.monotonic()
        return Done(False, figures, left=left)

    def _look(self, most: int) -> RetentionRun | None:
        log = self._log
        return look(
            log.reader, log.frozen(), self._settings(), self._clock, self._broker, most, self._required
        )


def said_of_ahead(queues: int) -> str:
    """Of queues that cannot be trimmed for now, for people."""
    return f"{queues} queues keep old messages behind one whose store time lies ahead of now"


def row(trim: Trim) -> Figures:
    """A trim as programs and tables show it."""
    return {
        "topic": trim.queue.topic, "queue_id": trim.queue.queue_id, "generation": trim.generation,
        "min_offset": trim.min_offset, "first_offset": trim.first_offset, "messages": trim.messages, "bytes": trim.bytes,
        "runs": trim.runs, "closed_parts": trim.closed_parts, "newest": trim.newest_ms, "reason": trim.reason.value,
        "kept_by": trim.kept_by,
    }  # fmt: skip
