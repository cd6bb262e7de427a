"""One answer in the making: records picked out of loaded blocks, within the reader's limits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Buffer
from tiered.fetch.base import FetchedRecords
from tiered.fetch.block import LoadedBlock
from tiered.filter.base import RowFilter
from tiered.model import QueueOffset, Records


class Answer:
    """Takes records until a limit is met; at least one, however large.

    What is taken does not keep its block alive unless it is most of it: an answer's memory is at most twice its bytes.
    """

    def __init__(self, max_count: int, max_bytes: int, row_filter: RowFilter | None) -> None:
        self._max_count = max(1, max_count)
        self._max_bytes = max_bytes
        self._filter = row_filter
        self._chunks: list[memoryview] = []
        self._edges: list[list[int]] = []
        self._offsets: list[int] = []
        self._examined = 0
        self.size = 0
        """Bytes of the records taken."""
        self.full = False
        """Whether a limit was met."""

    @property
    def left_count(self) -> int:
        """Records that may still be taken."""
        return 0 if self.full else self._max_count - len(self._offsets)

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be taken."""
        return 0 if self.full else self._max_bytes - self.size

    def __len__(self) -> int:
        return len(self._offsets)

    def skip(self, rows: int) -> None:
        """Rows that the filter refused by their columns."""
        self._examined += rows

    def take(
        self, block: LoadedBlock, offset: int, end: int, candidates: npt.NDArray[np.bool_] | None
    ) -> int:
        """Records that own queue offsets in [``offset``, ``end``), as far as they fit; where to go on.

        ``candidates``: per row of the block, false means refused already; ``None``: none is.
        """
        low, high = block.rows_between(offset, end)
        if low >= high:
            return min(end, block.end_offset)
        if self._filter is None:
            stop = self._take_all(block, low, high)
        else:
            stop = self._take_accepted(block, low, high, candidates)
        self._examined += stop - low
        if stop < high:
            self.full = True
            return block.offset_of(stop)
        self.full = len(self._offsets) >= self._max_count
        return min(end, block.end_offset)

    def finish(self, next_offset: int) -> FetchedRecords:
        """The answer."""
        offsets = cast(
            tuple[QueueOffset, ...], tuple(self._offsets)
        )  # a call for each would be most of the work
        return FetchedRecords(
            Records(self._chunks, self._edges), offsets, QueueOffset(next_offset), self._examined
        )

    def _take_all(self, block: LoadedBlock, low: int, high: int) -> int:
        high = min(high, low + self._max_count - len(self._offsets))
        left_bytes = self._max_bytes - self.size
        if self._offsets and int(block.edges[low + 1]) - int(block.edges[low]) > left_bytes:
            return low
        bounds = _bounds(block, low, high, left_bytes)
        data = _taken(block, low, bounds[-1])
        high = low + len(bounds) - 1
        self._chunks.append(data)
        self._edges.append(bounds)
        self._offsets += _offsets(block, low, high)
        self.size += len(data)
        return high

    def _take_accepted(
        self, block: LoadedBlock, low: int, high: int, candidates: npt.NDArray[np.bool_] | None
    ) -> int:
        rows = (
            range(low, high) if candidates is None else (np.flatnonzero(candidates[low:high]) + low).tolist()
        )
        data = _octets(block.data)
        assert self._filter is not None
        accepts = self._filter.accepts
        edges = block.edges
        found: list[tuple[int, memoryview]] = []
        size, stop = 0, high
        for row in rows:
            record = data[edges[row] : edges[row + 1]]
            if not accepts(record):
                continue
            held = len(self._offsets) + len(found)
            if held >= self._max_count or (held and self.size + size + len(record) > self._max_bytes):
                stop = row
                break
            found.append((row, record))
            size += len(record)
        copy = 2 * size < len(data)
        for row, record in found:
            self._chunks.append(memoryview(bytes(record)) if copy else record)
            self._edges.append([0, len(record)])
            self._offsets.append(block.offset_of(row))
        self.size += size
        return stop


def taken_within(
    block: LoadedBlock, offset: int, end: int, max_count: int, max_bytes: int
) -> FetchedRecords | None:
    """What an ``Answer`` of these limits takes of a block without a filter, at least one record, if it is full before the block
    ends and ``end`` is reached; ``None``: it is not."""
    low, last = block.rows_between(offset, end)
    if low >= last:
        return None
    bounds = _bounds(block, low, min(last, low + max_count), max_bytes)
    stop = low + len(bounds) - 1
    if stop == last:
        return None
    offsets = cast(tuple[QueueOffset, ...], tuple(_offsets(block, low, stop)))
    records = Records((_taken(block, low, bounds[-1]),), (bounds,))
    return FetchedRecords(records, offsets, QueueOffset(block.offset_of(stop)), stop - low)


def _bounds(block: LoadedBlock, low: int, high: int, max_bytes: int) -> list[int]:
    """Where the rows [``low``, ``high``) begin and end, from 0 on, as far as they fit, at least one."""
    bounds: list[int] = (block.edges[low : high + 1] - block.edges[low]).tolist()
    if bounds[-1] > max_bytes:
        del bounds[max(2, bisect_right(bounds, max_bytes)) :]
    return bounds


def _taken(block: LoadedBlock, low: int, size: int) -> memoryview:
    """``size`` bytes of a block from row ``low`` on: a copy, unless that is most of it."""
    base = int(block.edges[low])
    data = _octets(block.data)[base : base + size]
    return memoryview(bytes(data)) if 2 * size < len(block.data) else data


def _offsets(block: LoadedBlock, low: int, high: int) -> Iterable[int]:
    """First queue offsets of rows [``low``, ``high``)."""
    if block.offsets is None:
        return range(block.first_offset + low, block.first_offset + high)
    found: list[int] = block.offsets[low:high].tolist()
    return found


def _octets(data: Buffer) -> memoryview:
    """Bytes as numbers from 0 to 255: what Arrow lays down shows itself as signed, and is not equal to its own bytes."""
    return memoryview(data).cast("B")
