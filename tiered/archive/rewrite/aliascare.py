"""Ageing of lite queues, as a task: aliases go after their records, runs become one (DESIGN.md, "Lite queues", L6 to L8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiered.archive.log.flush import Flush
from tiered.archive.log.maintenance import Done, Figures, Outlook, Turn, WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.aliasplan import (
    AliasChange,
    Sought,
    alias_change_edit,
    changes_from,
    settled,
    trimmed_digest,
)
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.codec.format.aliases import LITE_QUEUES

CHANGES = 4096
"""Changes of one commit, or a queue's more."""


@dataclass(frozen=True, slots=True)
class ReplaceAliases(WithoutMessages):
    """Changes on their way to their place in the log, where each is narrowed to what the fold allows then."""

    changes: Sequence[AliasChange]
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what is left of the changes; ``None`` if nothing is."""
        kept = settled(fold, self.changes)
        return Flush((alias_change_edit(kept),), None, self.now, priority=self.priority) if kept else None


@dataclass(slots=True)
class _Walk:
    """A round over all lite queues. ``digest``, ``lineage``, ``progress``: of when it began."""

    sought: Sought
    digest: int
    lineage: int
    progress: int
    after: bytes = b""


@dataclass(slots=True)
class _Seen:
    """What the last round that came to its end had seen when it began."""

    digest: int = -1
    lineage: int = 0
    progress: int = 0


class AliasCare:
    """The task. A round is a walk over all lite queues: of those that got aliases since the last one it joins runs; if
    retention trimmed any queue since, it lets aliases of all of them go. Nothing of it is kept but in memory: a new process
    looks at all."""

    name = "alias"

    def __init__(self, log: CommitLog, clock: Clock, interval_seconds: float) -> None:
        self._log = log
        self._clock = clock
        self._interval = interval_seconds
        self._next = clock.monotonic() + interval_seconds
        self._walk: _Walk | None = None
        self._seen = _Seen()

    def due(self, now: float) -> bool:
        """Within a round, and an interval after the last one."""
        return self._walk is not None or now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``."""
        state = self._log.frozen()
        changes: list[AliasChange] = []
        after: bytes | None = b""
        while after is not None and len(changes) < CHANGES and _has_aliases(state):
            found, after = changes_from(state, Sought(), after, CHANGES)
            changes += found
        if not changes:
            return Outlook(0, "nothing to trim or to join")
        figures = _figures(changes)
        gone, runs = figures["trimmed_aliases"], figures["joined_alias_runs"]
        told = f"{gone} aliases go with their records, {runs} alias runs are joined"
        return Outlook(1, told if after is None else f"at least {told}", figures)

    def run_once(self, turn: Turn) -> Done:
        """Up to some ``CHANGES`` changes."""
        state = self._log.frozen()
        if not _has_aliases(state):
            return self._ended({})
        walk = self._walk = self._walk or self._begin(state)
        changes, after = changes_from(state, walk.sought, walk.after, CHANGES)
        figures: Figures = {}
        if changes and turn.commit(ReplaceAliases(changes, self._clock.monotonic())) is not None:
            figures = _figures(changes)
        if after is not None:
            walk.after = after
            return Done(True, figures)
        self._seen = _Seen(walk.digest, walk.lineage, walk.progress)
        return self._ended(figures)

    def _begin(self, state: ArchiveState) -> _Walk:
        head, digest = state.head(), trimmed_digest(state.view)
        assert head is not None
        reached = head.progress.get(head.lineage)
        progress = 0 if reached is None else reached.physical_offset
        above = min(self._seen.progress, progress)  # behind a rewind, what came since lies lower
        sought = Sought(digest != self._seen.digest, self._seen.lineage, above)
        return _Walk(sought, digest, head.lineage, progress)

    def _ended(self, figures: Figures) -> Done:
        self._walk = None
        self._next = self._clock.monotonic() + self._interval
        return Done(False, figures)


def _has_aliases(state: ArchiveState) -> bool:
    head = state.head()
    return head is not None and LITE_QUEUES in head.required_features


def _figures(changes: Sequence[AliasChange]) -> dict[str, int]:
    return {
        "trimmed_aliases": sum(change.gone for change in changes),
        "joined_alias_runs": sum(change.joined for change in changes),
    }
