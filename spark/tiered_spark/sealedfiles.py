"""Sealed files that a frame hands to Spark's own reader of Parquet, and which of their rows are alive.

The fold names runs, a file is rows. A file is *whole* if every row of it is of a live run; of any other one (retention took a
queue of it, a rewind cut one, a seal came too late for one) only the rows that its live runs name may be shown. How many rows
a file has stands in its footer. Every file that is named is proven before Spark gets it (``provenfiles``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Bools, Ints
from tiered_spark.options import Options
from tiered_spark.plan import SEALED_LEVEL, levels
from tiered_spark.provenfiles import Proof, proven
from tiered_spark.runs import RunTable, objects_of, read_runs
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import Wanted

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

    ``wanted_runs``: how many live runs in them may hold wanted messages. ``unindexed``: those of the paths whose filters and
    page index nobody has proven: rows may not be passed over by them.
    """

    whole: tuple[str, ...]
    cut: tuple[str, ...]
    parts: npt.NDArray[np.void]
    wanted_runs: int = 0
    unindexed: frozenset[str] = frozenset()


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
    proof = proven(snapshot, items)
    whole = _whole(live, mine, proof)
    if any((*wanted.lows, *wanted.ends)):  # bounds of single queues hold for rows, too
        whole[:] = False
    number = np.cumsum(~whole) - 1
    cut = ~whole[mine]
    return SealedFiles(
        tuple(item.path for item, all_of in zip(items, whole.tolist(), strict=True) if all_of),
        tuple(item.path for item, all_of in zip(items, whole.tolist(), strict=True) if not all_of),
        _parts(snapshot, live.only(cut), number[mine[cut]], wanted),
        int(chosen.sum()),
        frozenset(item.path for item, good in zip(items, proof.indexed.tolist(), strict=True) if not good),
    )


def _whole(live: RunTable, mine: Ints, proof: Proof) -> Bools:
    """Of each file whether its live runs, sorted by file and row, are all of its rows."""
    records = live.records
    rows = records["rows"].astype(np.int64)
    starts = np.flatnonzero(np.diff(mine, prepend=-1))
    before = np.cumsum(rows) - rows
    good = records["first_row"] == before - before[starts][mine]
    good &= records["start"] == records["first_queue_offset"]
    good &= records["end"] - records["start"] == records["queue_offsets"]
    whole: Bools = np.logical_and.reduceat(good, starts)
    whole &= proof.known & (proof.rows == np.add.reduceat(rows, starts))
    return whole


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
