"""How far tables are behind, as the rounds over them found it, and since when one that does not move was last up to date."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiered.clock import Clock

if TYPE_CHECKING:
    from tiered.table.iceberg import TableState


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A table, or the tables of a catalog that never answered. ``commit``: what it reflects, ``None`` if that is not known;
    ``lag_commits``: commits since, 0 where a round found every file in its place; ``since``: when one did so last, or when it
    was first tried (monotonic seconds)."""

    name: str
    since: float
    commit: int | None = None
    lag_commits: int = 0
    files: int = 0
    partial_files: int = 0


class TablesProgress:
    """Of all tables that are kept. One thread counts rounds, any may read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tables: dict[str, TableProgress] = {}

    def count(self, head_seq: int, states: Iterable[TableState], failed: Iterable[str]) -> None:
        """A round ended. ``states``: of tables that are up to date now; ``failed``: names of those that are not, or of the
        namespace whose catalog did not answer: all its tables are behind then."""
        now = self._clock.monotonic()
        stuck = list(failed)
        found = {
            state.name: TableProgress(state.name, now, state.commit, 0, state.files, state.partial)
            for state in states
        }
        for name, known in self._tables.items():
            if name not in found and any(name == each or name.startswith(f"{each}.") for each in stuck):
                lag = known.lag_commits if known.commit is None else max(0, head_seq - known.commit)
                found[name] = replace(known, lag_commits=lag)
        for name in stuck:
            if not any(each == name or each.startswith(f"{name}.") for each in found):
                found[name] = TableProgress(name, now)
        self._tables = found

    def figures(self) -> list[dict[str, object]]:
        """Of each table, for programs. From any thread."""
        now = self._clock.monotonic()
        return [
            {
                "table": each.name,
                "reflects_commit": each.commit,
                "lag_commits": each.lag_commits,
                "behind_seconds": round(now - each.since, 1),
                "files": each.files,
                "partial_files": each.partial_files,
            }
            for each in list(self._tables.values())
        ]
