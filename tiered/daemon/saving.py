"""The log's floor, moved by a process that does not stay (DESIGN.md, "Checkpoints", K1).

Only checkpoints of the process that moves the floor count. A daemon makes one every few minutes, and its collection moves the
floor behind them. Where archiving and maintenance are runs of cron no process ever has two, and commits would stay for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tiered.archive.checkpoint.store import checkpoint_keys, checkpoint_number
from tiered.archive.log.flush import Flush
from tiered.archive.log.maintenance import Done, Outlook, OwnKeys, Turn, WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.collection import check_store
from tiered.archive.rewrite.floor import STANDING, move_floor
from tiered.archive.rewrite.storetime import aged_commit
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.codec.format.edits import EditKind, Rows, batch
from tiered.settings import Settings


@dataclass(frozen=True, slots=True)
class _Beat(WithoutMessages):
    """A commit that changes nothing: each checkpoint has the number of a commit of its own."""

    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        head = fold.head()
        if head is None:
            return None
        edit = batch(EditKind.RETIRE, keys=Rows([[]]), floor=Rows([head.floor]))
        return Flush((edit,), None, self.now, priority=self.priority)


class Saving:
    """The task of ``tiered maintain``. ``save`` makes a checkpoint of what is proven; false if none could be made. ``weak``:
    promises that the store was seen to break.

    It is done where a floor would leave as many commits behind as lie between two checkpoints at most: it writes two of these.
    """

    name = "floor"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        settings: Settings,
        own_keys: OwnKeys,
        weak: Sequence[str],
        save: Callable[[], bool],
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._off = settings.gc.off(collected=log.reader.identity.collected)
        self._own = own_keys.checkpoints
        self._weak = tuple(weak)
        self._save = save

    def due(self, now: float) -> bool:
        """Whenever it is asked."""
        return self._off is None

    def plan(self) -> Outlook:
        """See ``Task``. It asks for times of commits."""
        if self._off is not None:
            return Outlook(0, f"off: {self._off}")
        check_store(self._weak)
        below = self._below()
        jobs = int(below >= self._settings.archive.checkpoint_commits)
        return Outlook(jobs, f"{below} commits that readers need not begin at", {"commits": below})

    def run_once(self, turn: Turn) -> Done:
        """Make two checkpoints and move the floor."""
        if not self.plan().jobs:
            return Done(more=False)
        for _ in range(STANDING):
            made, head = self._own.newest_first(), self._log.proven().head()
            if made and head is not None and made[0].seq == head.seq:
                turn.commit(_Beat(self._clock.monotonic()))
            if not self._save():
                return Done(more=False, trouble="the log's floor stays: no checkpoint could be made")
        retention_ms = self._settings.gc.snapshot_retention_ms
        moved = move_floor(self._log, self._own, retention_ms, self._clock.monotonic(), turn)
        if not moved:
            return Done(
                more=False, trouble="the log's floor stays: no checkpoint that is old enough verifies"
            )
        return Done(more=False, figures={"moved_floors": 1})

    def _below(self) -> int:
        """How many commits the floor would leave behind."""
        reader, head = self._log.reader, self._log.frozen().head()
        if head is None:
            return 0
        highest = aged_commit(reader, head, self._settings.gc.snapshot_retention_ms)
        if highest <= head.floor:
            return 0
        saved = next(checkpoint_keys(reader.provider, reader.keys, highest), None)
        return 0 if saved is None else max(0, checkpoint_number(saved) - head.floor)
