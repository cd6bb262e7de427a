"""Sealed files that a frame hands to Spark's own reader of Parquet, and which of their rows are alive.

The fold names runs, a file is rows. A file is *whole* if every row of it is of a live run; of any other one (retention took a
queue of it, a rewind cut one, a seal came too late for one) only the rows that its live runs name may be shown. How many rows
a file has stands in its footer, which is read here, and proven to be that of the object that the fold means.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from tiered.archive.state.values import ObjectState
from tiered.codec.types import Bools, Ints
from tiered_spark.options import Options
from tiered_spark.plan import SEALED_LEVEL, levels
from tiered_spark.runs import RunTable, objects_of, read_runs
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import Wanted

MAX_FOOTERS = 4096
"""Files whose footers are read while a frame is made: about 8 s, at 30 ms a request. Rows of more files are compared with
their runs by Spark, one by one."""

REQUESTS = 16

PART_DTYPE = np.dtype(
    [
        ("file", "<i8"),  # an index of ``cut``
        ("queue_id", "<i4"),
        ("first_row", "<i8"),  # rows of the file, half-open
        ("end_row", "<i8"),
        ("first_offset", "<i8"),  # of the queue, both included
        ("last_offset", "<i8"),
        ("early", "<i8"),  # store times in ms, both included
        ("late", "<i8"),
    ]
)
"""Rows of a file that are shown: a live run within the bounds of single queues."""


@dataclass(frozen=True, slots=True)
class SealedFiles:
    """Paths below the broker's root. ``whole``: all rows are alive; ``cut``: those that ``parts`` (``PART_DTYPE``) name.

    ``wanted_runs``: how many live runs in them may hold wanted messages.
    """

    whole: tuple[str, ...]
    cut: tuple[str, ...]
    parts: npt.NDArray[np.void]
    wanted_runs: int = 0


NOTHING = SealedFiles((), (), np.zeros(0, PART_DTYPE))


def sealed_files(snapshot: Snapshot, options: Options, wanted: Wanted) -> SealedFiles:
    """Files that may hold wanted messages. ``Corrupt`` or ``NotFound`` names one that is not what the fold says."""
    live = read_runs(snapshot.view.state, snapshot.choice(options))
    live = live.only(levels(snapshot, live) == SEALED_LEVEL)
    records = live.records
    chosen = wanted.runs(snapshot.place.broker, live)
    if wanted.queue_ids is not None:
        chosen &= np.isin(live.queues.queue_id, list(wanted.queue_ids))[live.queue]
    refs, mine = objects_of(live)
    used = np.unique(mine[chosen])
    if not len(used):
        return NOTHING
    keep = np.isin(mine, used)
    live, mine, records = live.only(keep), np.searchsorted(used, mine[keep]), records[keep]
    order = np.lexsort((records["first_row"], mine))
    live, mine = live.only(order), mine[order]
    items = snapshot.objects([refs[i] for i in used.tolist()])
    whole = _whole(snapshot, live, mine, items)
    if any((*wanted.lows, *wanted.ends)):  # bounds of single queues hold for rows, too
        whole[:] = False
    number = np.cumsum(~whole) - 1
    cut = ~whole[mine]
    return SealedFiles(
        tuple(item.path for item, all_of in zip(items, whole.tolist(), strict=True) if all_of),
        tuple(item.path for item, all_of in zip(items, whole.tolist(), strict=True) if not all_of),
        _parts(snapshot, live.only(cut), number[mine[cut]], wanted),
        int(chosen.sum()),
    )


def _whole(snapshot: Snapshot, live: RunTable, mine: Ints, items: Sequence[ObjectState]) -> Bools:
    """Of each file whether its live runs, sorted by file and row, are all of its rows."""
    records = live.records
    rows = records["rows"].astype(np.int64)
    starts = np.flatnonzero(np.diff(mine, prepend=-1))
    before = np.cumsum(rows) - rows
    good = records["first_row"] == before - before[starts][mine]
    good &= records["start"] == records["first_queue_offset"]
    good &= records["end"] - records["start"] == records["queue_offsets"]
    whole: Bools = np.logical_and.reduceat(good, starts)
    if len(items) > MAX_FOOTERS:
        whole[MAX_FOOTERS:] = False
    at = np.flatnonzero(whole)
    with ThreadPoolExecutor(REQUESTS, "footers") as pool:
        counts = list(pool.map(partial(rows_of, snapshot), [items[i] for i in at.tolist()]))
    whole[at] = np.array(counts, np.int64) == np.add.reduceat(rows, starts)[at]
    return whole


_lock = threading.Lock()
_rows: LRUCache[tuple[bytes, bytes], int] = LRUCache(1_000_000)


def rows_of(snapshot: Snapshot, item: ObjectState) -> int:
    """Rows of a sealed file, by its footer: one request, and none the next time."""
    name = (snapshot.place.archive_id, item.object_id)
    with _lock:
        found = _rows.get(name)
    if found is None:
        found = int(snapshot.view.objects.sealed(item).segment.directory.groups["rows"].sum())
        with _lock:
            _rows[name] = found
    return found


def _parts(snapshot: Snapshot, live: RunTable, file: Ints, wanted: Wanted) -> npt.NDArray[Any]:
    """Live runs as rows of their files."""
    records = live.records
    parts = np.zeros(len(records), PART_DTYPE)
    low, high, early, late = wanted.of_runs(snapshot.place.broker, live)
    parts["file"], parts["queue_id"] = file, live.queues.queue_id[live.queue]
    parts["first_row"] = records["first_row"]
    parts["end_row"] = parts["first_row"] + records["rows"]
    parts["first_offset"] = np.maximum(records["start"], low)
    parts["last_offset"] = np.minimum(records["end"] - 1, high)
    parts["early"], parts["late"] = early, late
    return parts
