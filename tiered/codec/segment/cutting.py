"""Where one row group ends and the next begins: about so many bytes of records each, at a queue's end where that is near."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.codec.types import Buffer, Ints
from tiered.errors import Invalid


@dataclass(frozen=True, slots=True)
class RunPart:
    """Consecutive records of one queue and generation, back to back in ``buffer`` between ``edges``.

    ``queue_offset`` of each, and ``end_offset`` behind the last; ``flat_offset`` of the first record; ``commit_seq`` that
    archived each. ``begins``: a new run begins here; otherwise it goes on from the part before.
    """

    queue_id: int
    generation: int
    buffer: Buffer
    edges: Ints
    queue_offset: Ints
    end_offset: int
    flat_offset: int
    commit_seq: Ints
    begins: bool

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def queue(self) -> tuple[int, int]:
        """What rows are sorted by first."""
        return self.queue_id, self.generation

    @property
    def size_bytes(self) -> int:
        """Of its records."""
        return int(self.edges[-1] - self.edges[0])

    @property
    def records(self) -> memoryview:
        """The bytes of its records, not copied."""
        return memoryview(self.buffer)[int(self.edges[0]) : int(self.edges[-1])]

    def rows(self, first: int, end: int) -> RunPart:
        """Some of its records, at least one."""
        if (first, end) == (0, len(self)):
            return self
        return RunPart(
            self.queue_id,
            self.generation,
            self.buffer,
            self.edges[first : end + 1],
            self.queue_offset[first:end],
            int(self.queue_offset[end]) if end < len(self) else self.end_offset,
            self.flat_offset + int(self.edges[first] - self.edges[0]),
            self.commit_seq[first:end],
            self.begins and first == 0,
        )


def joined_stretches(parts: Sequence[RunPart]) -> Iterator[Sequence[RunPart]]:
    """Neighbours of one run together."""
    stretch: list[RunPart] = []
    for part in parts:
        if part.begins and stretch:
            yield stretch
            stretch = []
        stretch.append(part)
    if stretch:
        yield stretch


class GroupCutter:
    """Cuts a sorted sequence of parts into row groups of at least ``target_bytes`` of records and less than one record more;
    a group ends with its queue where that leaves it at least half as large. Holds at most one group's parts."""

    def __init__(self, target_bytes: int) -> None:
        self._target = target_bytes
        self._held: list[RunPart] = []
        self._bytes = 0
        self._last: RunPart | None = None

    def add(self, part: RunPart) -> Iterator[Sequence[RunPart]]:
        """The groups that are complete. ``Invalid`` if the part does not follow the one before."""
        self._check(part)
        if self._last is not None and self._last.queue != part.queue and 2 * self._bytes >= self._target:
            yield self.rest()
        self._last = part
        first = 0
        while first < len(part):
            full = int(part.edges[first]) + self._target - self._bytes
            end = min(int(np.searchsorted(part.edges, full)), len(part))
            piece = part.rows(first, end)
            self._held.append(piece)
            self._bytes += piece.size_bytes
            first = end
            if self._bytes >= self._target:
                yield self.rest()

    def rest(self) -> Sequence[RunPart]:
        """What is held, as the last group; nothing perhaps."""
        held, self._held, self._bytes = self._held, [], 0
        return held

    def _check(self, part: RunPart) -> None:
        last, fault = self._last, None
        offsets = np.append(part.queue_offset, part.end_offset)
        if not len(part) == len(part.queue_offset) == len(part.commit_seq) > 0:
            fault = "no record, or columns of several lengths"
        elif (np.diff(offsets) < 0).any():
            fault = "queue offsets that do not ascend"
        elif last is None:
            fault = None if part.begins else "a run that does not begin"
        elif part.begins:
            if (*part.queue, int(offsets[0])) < (*last.queue, last.end_offset):
                fault = "a run before the one before"
        elif (*part.queue, int(offsets[0]), part.flat_offset) != (
            *last.queue, last.end_offset, last.flat_offset + last.size_bytes,
        ):  # fmt: skip
            fault = "a part that does not go on where the one before ended"
        if fault is not None:
            raise Invalid(
                "rows of a segment must be sorted by queue, generation and queue offset",
                hint="closed runs go into files of their own",
                queue_id=part.queue_id,
                generation=part.generation,
                found=fault,
            )
