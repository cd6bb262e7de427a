"""What the loop over work in the background knows of one task: since when it waits, what it did, what keeps it from its work.

Written by the loop's thread; whatever is asked may be asked by any thread at any moment, and touches no lock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class TaskRecord:
    """``turned`` and ``rounded``: when a turn last ended, and when the task last came to its end without trouble, by the
    monotonic clock; both are the process's start until then."""

    name: str
    turned: float
    rounded: float
    due_since: float | None = None
    not_before: float = 0.0
    failures: int = 0
    began: float | None = None
    problem: str | None = None
    trouble: str | None = None  # of the round under way
    done: Counter[str] = field(default_factory=Counter)
    left: dict[str, int] = field(default_factory=dict)

    def look(self, due: bool, now: float) -> None:
        """Note whether it is due."""
        if not due:
            self.due_since = None
        elif self.due_since is None:
            self.due_since = now

    def ready(self, now: float) -> bool:
        """Whether a turn of it may begin."""
        return self.due_since is not None and now >= self.not_before

    def waiting_seconds(self, now: float) -> float:
        """How long a turn of it could have begun and did not; 0 while none could, and during its own."""
        due = self.due_since
        if due is None or self.began is not None:
            return 0.0
        return max(0.0, now - max(due, self.turned, self.not_before))

    def turn_seconds(self, now: float) -> float:
        """How long its turn under way has taken; 0 while there is none."""
        began = self.began
        return 0.0 if began is None else max(0.0, now - began)

    def begin(self, now: float) -> None:
        """A turn begins."""
        self.began = now

    def end(self, now: float) -> float:
        """A turn ended, however it did; the seconds it took."""
        seconds = self.turn_seconds(now)
        self.began, self.turned = None, now
        return seconds

    def complete(self, now: float) -> bool:
        """The task came to its end; whether that took back a problem."""
        self.due_since = None
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            return False
        self.rounded = now
        problem, self.problem = self.problem, None
        return problem is not None

    def document(self, now: float) -> dict[str, object]:
        """The part of ``/status`` that speaks of it."""
        return {
            "due": self.due_since is not None,
            "waiting_seconds": round(self.waiting_seconds(now), 1),
            "turn_seconds": round(self.turn_seconds(now), 1),
            "last_turn_seconds_ago": round(now - self.turned, 1),
            "last_success_seconds_ago": round(now - self.rounded, 1),
            "problem": self.problem,
            "done": dict(self.done),
            "left": dict(self.left),
        }
