"""What a repair reports about one commit: where its substitute comes from, and what is lost with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiered.codec.format.edits import Commit, EditKind
from tiered.codec.types import Buffer
from tiered.model import MessageQueue


@dataclass(frozen=True, slots=True)
class Lost:
    """Queue offsets [start, end) of a generation of a queue, ``bytes`` of records at the most; without a queue the range of
    physical offsets in which everything that is lost lay."""

    queue: MessageQueue | None
    generation: int | None
    start: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One damaged or lost commit. ``source``: where what stands for it comes from, ``None`` if nothing can.

    ``exact``: the folds that it leads to are those there were. ``put``: the key that is made, with ``parts``, and before it
    ``objects``, keys with theirs. ``lost``: what
    becomes a recorded gap.
    """

    seq: int
    key: str
    damage: str
    source: str | None
    exact: bool = False
    put: str | None = None
    parts: tuple[Buffer, ...] = ()
    objects: tuple[tuple[str, Sequence[Buffer]], ...] = ()
    advice: str = ""
    fold_again: bool = False
    """Whether the local state has what the bucket lost for good: the daemon must start from the bucket."""
    lost: Sequence[Lost] = ()


def lost_with(commit: Commit) -> list[Lost]:
    """What a commit that stands for another gives up: the part of the log first."""
    found: list[Lost] = []
    for edit in commit.edits:
        for row in (edit.row(i) for i in range(len(edit))):
            if edit.kind is EditKind.PHYS_GAP:
                found.insert(0, Lost(None, None, row["start"], row["end"], row["end"] - row["start"]))
            elif edit.kind is EditKind.LOSS:
                queue = MessageQueue(row["topic"], row["queue_id"])
                found.append(Lost(queue, row["generation"], row["start"], row["end"], row["bytes"]))
    return found
