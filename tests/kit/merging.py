"""Merging in one thread: the task, its turns taken at once, over the daemon of ``assemble``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.kit.assemble import Assembly
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.rewrite.merge import Merge, MergeOptions
from tiered.archive.rewrite.plan import Bounds
from tiered.archive.rewrite.writing import Layout
from tiered.settings import MIB


@dataclass
class AtOnceTurn:
    """A turn that never waits. ``before`` runs before a flush is offered; ``spent`` is what was told of bytes."""

    daemon: Assembly
    before: Callable[[], None] = lambda: None
    spent: list[int] = field(default_factory=list)

    def commit(self, flush: Unsettled) -> Proven | None:
        self.before()
        self.daemon.commit_all()
        offered = self.daemon.line.offer(flush, 0)
        assert offered is not None
        self.daemon.commit_all()
        return offered.result(0)

    def spend(self, byte_count: int) -> None:
        self.spent.append(byte_count)


def merging(
    daemon: Assembly,
    *,
    block_bytes: int = 4096,
    job_bytes: int = 64 * MIB,
    job_runs: int = 100_000,
    **options: Any,
) -> Merge:
    """The task, with bounds that fit a small archive."""
    layout = Layout(block_bytes, 1, options.pop("window_bytes", 1 << 16))
    bounds = Bounds(block_bytes, job_bytes, job_runs)
    return Merge(
        daemon.log, daemon.clock, MergeOptions(600.0, bounds, layout), options.pop("own_keys", OwnKeys())
    )


def merge_all(daemon: Assembly, turn: AtOnceTurn | None = None, **options: Any) -> list[Done]:
    """Turns until nothing is left; what each did."""
    task = merging(daemon, **options)
    found = []
    while True:
        done = task.run_once(turn or AtOnceTurn(daemon))
        found.append(done)
        if not done.more:
            return found
        assert len(found) < 1000, "merging comes to an end"
