"""What retention takes of queues, side by side: columns, and an object for one of them only where somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import overload

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import queue_of
from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.model import MessageQueue


class TrimReason(Enum):
    """What took the newest message of a trim: a half of its rule, or the end of its topic."""

    AGE = "age"
    SIZE = "size"
    DELETED = "topic deleted"


REASONS = tuple(TrimReason)
"""By the number that stands in a column."""

TRIM_DTYPE = np.dtype(
    [
        ("generation", "<i8"),
        ("min_offset", "<i8"),
        ("first_offset", "<i8"),
        ("messages", "<i8"),
        ("bytes", "<i8"),
        ("runs", "<i8"),
        ("closed_parts", "<i8"),
        ("newest_ms", "<i8"),
        ("cutoff_ms", "<i8"),
        ("reason", "<i4"),
        ("kept_by", "<i4"),
    ]
)
"""See ``Trim``; ``reason`` and ``kept_by`` are numbers in ``REASONS`` and in the names of holds, -1 for no hold."""


@dataclass(frozen=True, slots=True)
class Trim:
    """A generation of a queue begins at ``first_offset`` from now on.

    ``messages`` (queue offsets), ``bytes`` (records) and ``runs`` are those that readers lose; ``closed_parts``: what goes of
    closed history. ``newest_ms``: the latest store time of all that. ``cutoff_ms``: what is older may go. ``kept_by``: the
    legal hold that stopped the trim, if one did.
    """

    queue: MessageQueue
    generation: int
    min_offset: int
    first_offset: int
    messages: int
    bytes: int
    runs: int
    closed_parts: int
    newest_ms: int
    cutoff_ms: int
    reason: TrimReason
    kept_by: str | None


class Trims(Sequence[Trim]):
    """Trims by topic, queue and generation. ``queues``: keys, one a trim; ``rows``: ``TRIM_DTYPE``; ``holds``: names."""

    __slots__ = ("holds", "queues", "rows")

    def __init__(
        self,
        queues: Sequence[bytes] = (),
        rows: npt.NDArray[np.void] | None = None,
        holds: Sequence[str] = (),
    ) -> None:
        self.queues = queues
        self.rows = np.zeros(0, TRIM_DTYPE) if rows is None else rows
        self.holds = holds

    @staticmethod
    def joined(pages: Sequence[Trims]) -> Trims:
        """One behind the other; the same holds are named in all of them."""
        if not pages:
            return Trims()
        queues = [queue for page in pages for queue in page.queues]
        return Trims(queues, np.concatenate([page.rows for page in pages]), pages[0].holds)

    def __len__(self) -> int:
        return len(self.queues)

    @overload
    def __getitem__(self, at: int) -> Trim: ...

    @overload
    def __getitem__(self, at: slice) -> Trims: ...

    def __getitem__(self, at: int | slice) -> Trim | Trims:
        if isinstance(at, slice):
            return Trims(self.queues[at], self.rows[at], self.holds)
        said = dict(zip(TRIM_DTYPE.names or (), self.rows[at].tolist(), strict=True))
        reason, number = REASONS[said.pop("reason")], said.pop("kept_by")
        hold = self.holds[number] if number >= 0 else None
        return Trim(queue_of(self.queues[at]), **said, reason=reason, kept_by=hold)

    def __iter__(self) -> Iterator[Trim]:
        return (self[at] for at in range(len(self)))

    def edit(self) -> EditBatch:
        """The edit of these trims."""
        queues = list(map(queue_of, self.queues))
        return batch(
            EditKind.TRIM_QUEUE,
            topic=[queue.topic for queue in queues],
            queue_id=[queue.queue_id for queue in queues],
            generation=self.rows["generation"].tolist(),
            first_offset=self.rows["first_offset"].tolist(),
        )
