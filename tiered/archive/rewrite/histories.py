"""What lies in generations of many queues, live and closed, as one table: what retention judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import CLOSED, GENERATION, RUN, U4
from tiered.archive.state.layout import QUEUE_DTYPE, RUN_RECORD_DTYPE, table
from tiered.archive.state.walking import pairs_of
from tiered.codec.types import Bools, Ints
from tiered.metadata.base import MetadataView

_GENERATION_TAIL, _RUN_TAIL, _CLOSED_TAIL = 4, 4 + 8, 4 + 8 + 8 + 8 + 4


@dataclass(frozen=True, slots=True)
class Histories:
    """Generations that have anything, by queue and number, and their items: live runs and closed parts by first offset.

    ``queues``: keys that were asked for; ``queue``: each generation's, by its place there; ``generations``: ``QUEUE_DTYPE``;
    ``first_item``: where each one's items begin. ``items``: ``RUN_RECORD_DTYPE``; ``row``: each item's generation; ``newest``:
    the latest store time of its generation up to it.
    """

    queues: Sequence[bytes]
    queue: Ints
    generations: npt.NDArray[np.void]
    current: Bools
    first_item: Ints
    items: npt.NDArray[np.void]
    row: Ints
    newest: Ints

    @property
    def live(self) -> Bools:
        """Which items are live."""
        found: Bools = self.items["closed_by"] < 0
        return found

    @property
    def sizes(self) -> Ints:
        """Bytes of live runs; 0 for a closed part, and for a run that was trimmed in part: counted too small, more stays."""
        items = self.items
        whole = self.live & (items["start"] == items["first_queue_offset"])
        sizes: Ints = np.where(whole, items["flat_end"] - items["first_flat_offset"], 0)
        return sizes

    def sums(self, values: npt.NDArray[np.generic]) -> Ints:
        """The sum over each generation's items."""
        found: Ints = np.add.reduceat(values.astype(np.int64), self.first_item)
        return found

    def first_of(self, chosen: Bools) -> Ints:
        """Each generation's first item among these; -1 for none."""
        at = np.flatnonzero(chosen)
        rows, first = np.unique(self.row[at], return_index=True)
        found = np.full(len(self.generations), -1, np.int64)
        found[rows] = at[first]
        return found


def histories(view: MetadataView, queues: Sequence[bytes], found: npt.NDArray[np.void]) -> Histories:
    """Of these queues (keys, ascending) with their records."""
    number = {queue: at for at, queue in enumerate(queues)}
    earlier = list(pairs_of(view, GENERATION, queues, _GENERATION_TAIL))
    shown = np.flatnonzero(found["generation"] > 0)
    of = [number[key[1:-_GENERATION_TAIL]] for key, _ in earlier]
    queue = np.concatenate((shown, np.array(of, np.int64)))
    generations = np.concatenate((found[shown], table([value for _, value in earlier], QUEUE_DTYPE)))
    current = np.arange(len(queue)) < len(shown)
    if earlier:
        order = np.lexsort((generations["generation"], queue))
        queue, generations, current = queue[order], generations[order], current[order]
    names = {
        queues[at] + U4.pack(generation): row
        for row, (at, generation) in enumerate(
            zip(queue.tolist(), generations["generation"].tolist(), strict=True)
        )
    }
    row, items = _items(view, queues, names)
    some, first_item, row = np.unique(row, return_index=True, return_inverse=True)
    newest = _newest(items["max_store_time"], row)
    return Histories(queues, queue[some], generations[some], current[some], first_item, items, row, newest)


def _items(
    view: MetadataView, queues: Sequence[bytes], names: dict[bytes, int]
) -> tuple[Ints, npt.NDArray[np.void]]:
    """Runs and closed parts of the generations that are named, by generation and first offset, with each one's generation."""
    live, closed = (
        list(pairs_of(view, kind, queues, tail)) for kind, tail in ((RUN, _RUN_TAIL), (CLOSED, _CLOSED_TAIL))
    )
    rows = [names.get(key[1 : 4 - _RUN_TAIL], -1) for key, _ in live]
    rows += [names.get(key[1 : 4 - _CLOSED_TAIL], -1) for key, _ in closed]
    row = np.array(rows, np.int64)
    items = table([value for pairs in (live, closed) for _, value in pairs], RUN_RECORD_DTYPE)
    if (row < 0).any():
        row, items = row[row >= 0], items[row >= 0]
    if closed:
        order = np.lexsort((items["start"], row))
        row, items = row[order], items[order]
    return row, items


def _newest(times: Ints, row: Ints) -> Ints:
    """The latest of these times up to each item, of its row."""
    if not len(row) or row[-1] == len(row) - 1:
        return times
    values, rank = np.unique(times, return_inverse=True)
    base = row * len(values)
    found: Ints = values[np.maximum.accumulate(rank + base) - base]
    return found
