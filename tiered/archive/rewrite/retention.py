"""The one look that every run of retention begins with, dry or not: holds, clocks, then the plan."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.reader import LogReader
from tiered.archive.rewrite.holds import holds_in_force
from tiered.archive.rewrite.policy import Moment, RetentionPolicy, agreed_now, policy_from
from tiered.archive.rewrite.retain import RetentionPlan, plan_retention
from tiered.archive.rewrite.storetime import aged_commit
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.settings.keeping import Retain


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
