"""The rule that makes a debt of two looks at one queue of one group. Pure.

Positions are asked first and minimums after them. A broker deletes a file of its log first and moves the minimums of its queues
up to ``cleanResourceInterval`` (10 s) later; meanwhile it already skips what is gone. So a position counts as reached only when
it was reported so long ago (``aged``) that whatever was skipped before it shows in the minimums; everything from there up to
the minimum is owed, the part that was owed already excepted. What the group was properly handed in that time, and was deleted
in that time as well, comes twice: only groups that read at the very edge of deletion see that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tiered.replay.base import GroupPosition


def judge(
    known: GroupPosition | None, reported: int, minimum: int, aged: int | None = None
) -> tuple[GroupPosition, range | None]:
    """What is known after this look, and the range that is owed now. ``aged``: the position as it was long enough ago.

    A position that moved backwards is an operator's reset: from there on everything is wanted again. A group seen for the first
    time is owed what the broker has deleted from its position on.
    """
    if known is None or reported < known.reported:
        base = reported
    else:
        base = max(known.covered, aged or 0)
    owed = range(base, minimum) if base < minimum else None
    return GroupPosition(reported, max(base, minimum) if owed else base, minimum), owed


class Aging:
    """Positions of one queue as they were reported lately. Not for several threads."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, reported: int, seconds: float) -> int | None:
        """Note a position; the newest that was reported at least ``seconds`` ago, ``None`` if none was."""
        if self._seen and reported < self._seen[-1][1]:
            self._seen.clear()
        if not self._seen or reported != self._seen[-1][1]:
            self._seen.append((now, reported))
        while len(self._seen) > 1 and self._seen[1][0] <= now - seconds:
            self._seen.popleft()
        return self._seen[0][1] if self._seen[0][0] <= now - seconds else None


def without(wanted: range, owed: Iterable[range]) -> list[range]:
    """The parts of ``wanted`` that are in none of ``owed``, ascending."""
    parts, start = [], wanted.start
    for other in sorted(owed, key=lambda r: r.start):
        if other.stop <= start or other.start >= wanted.stop:
            continue
        if other.start > start:
            parts.append(range(start, other.start))
        start = max(start, other.stop)
    if start < wanted.stop:
        parts.append(range(start, wanted.stop))
    return parts
