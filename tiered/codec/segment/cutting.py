"""Where one row group ends and the next begins, and where the bands within it: about so many bytes of records each, a row group
at a queue's end where that is near."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiered.codec.types import Buffer, Ints
from tiered.errors import Invalid

MOST_ROWS = 122_880
"""Of a row group: as many as DuckDB's own have."""

MOST_BAND_ROWS = 16_384
VECTOR_ROWS = 2048
"""What DuckDB computes with at once: where a page ends within it, it reads twice as long."""

_LARGEST = 3


class Unread(Protocol):
    """Bytes that are read when their turn comes: each at most once, in the order of their places."""

    def between(self, start: int, end: int) -> memoryview:
        """[start, end), not before where the last call ended."""
        ...


@dataclass(frozen=True, slots=True)
class RunPart:
    """Consecutive records of one queue and generation, back to back in ``buffer`` between ``edges``.

    ``queue_offset`` of each, and ``end_offset`` behind the last; ``flat_offset`` of the first record; ``commit_seq`` that
    archived each. ``begins``: a new run begins here; otherwise it goes on from the part before.
    """

    queue_id: int
    generation: int
    buffer: Buffer | Unread
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


def joined_records(parts: Sequence[RunPart]) -> memoryview:
    """The bytes of all records of parts, back to back: copied only where they do not lie so already."""
    found: list[memoryview] = []
    first = 0
    for i, part in enumerate(parts):
        following = parts[i + 1] if i + 1 < len(parts) else None
        if following is None or following.buffer is not part.buffer or following.edges[0] != part.edges[-1]:
            found.append(_bytes_of(part.buffer, int(parts[first].edges[0]), int(part.edges[-1])))
            first = i + 1
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def _bytes_of(buffer: Buffer | Unread, start: int, end: int) -> memoryview:
    if isinstance(buffer, bytes | bytearray | memoryview):
        return memoryview(buffer)[start:end]
    return buffer.between(start, end)


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


@dataclass(frozen=True, slots=True)
class CutBand:
    """Parts of the next rows of a row group; ``ends``: the row group ends with them."""

    parts: Sequence[RunPart]
    ends: bool


class GroupCutter:
    """Cuts a sorted sequence of parts into row groups of at least ``target_bytes`` of records and less than one record more,
    or of ``MOST_ROWS``; a group ends with its queue where that leaves it seven eighths as large.

    Within a group it cuts bands, each of ``band_rows`` rows but the last: about as many as the first had in ``band_bytes``.
    Where one has three times that, its group ends. Holds at most one band's parts.
    """

    def __init__(self, target_bytes: int, band_bytes: int) -> None:
        self._target, self._band_target = target_bytes, band_bytes
        self._held: list[RunPart] = []
        self._bytes = self._rows = 0  # of what is held
        self._group_bytes = self._group_rows = 0  # of the group, with that
        self._last: RunPart | None = None
        self.band_rows = 0
        """Known from the first band on."""

    def add(self, part: RunPart) -> Iterator[CutBand]:
        """The bands that are complete. ``Invalid`` if the part does not follow the one before."""
        self._check(part)
        if (
            self._last is not None
            and self._last.queue != part.queue
            and 8 * self._group_bytes >= 7 * self._target
        ):
            yield from self.rest()
        self._last = part
        first = 0
        while first < len(part):
            end = self._end(part, first)
            piece = part.rows(first, end)
            self._held.append(piece)
            self._bytes, self._rows = self._bytes + piece.size_bytes, self._rows + len(piece)
            self._group_bytes += piece.size_bytes
            self._group_rows += len(piece)
            first = end
            if not self.band_rows and (2 * self._bytes >= self._band_target or self._rows >= MOST_BAND_ROWS):
                self._decide()
            if self._group_bytes >= self._target or self._bytes >= _LARGEST * self._band_target:
                yield from self.rest()
            elif self._rows == self.band_rows:
                yield self._band(ends=self._group_rows + self.band_rows > MOST_ROWS)

    def rest(self) -> Iterator[CutBand]:
        """What is held, as the last band of its group; none perhaps."""
        if self._group_rows:
            yield self._band(ends=True)

    def _end(self, part: RunPart, first: int) -> int:
        """The row behind the next piece of a part."""
        most = _LARGEST * self._band_target if self.band_rows else self._band_target // 2
        room = min(self._target - self._group_bytes, most - self._bytes)
        rows = first + (self.band_rows or MOST_BAND_ROWS) - self._rows
        end = int(np.searchsorted(part.edges, int(part.edges[first]) + max(1, room)))
        return min(end, rows, len(part))

    def _decide(self) -> None:
        """How many rows a band has, by what is held."""
        rows = self._rows * self._band_target // self._bytes
        if 2 * rows >= VECTOR_ROWS:
            rows = (rows + VECTOR_ROWS // 2) // VECTOR_ROWS * VECTOR_ROWS
        self.band_rows = min(MOST_BAND_ROWS, max(rows, self._rows))

    def _band(self, *, ends: bool) -> CutBand:
        if not self.band_rows:
            self._decide()
        found = CutBand(self._held, ends)
        self._held, self._bytes, self._rows = [], 0, 0
        if ends:
            self._group_bytes = self._group_rows = 0
        return found

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
