"""Records that are in lite queues, too: from their places to the ``QueueAlias`` of a flush (DESIGN.md, "Lite queues")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.state.aliases import lite_queue_table
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.aliases import LITE_QUEUE_ID, Aliases
from tiered.codec.format.edits import EditBatch
from tiered.codec.record.lite import LitePlaces
from tiered.codec.types import Ints
from tiered.write.router import QueueEnds, Routed, RowOffsets, Segments, cut_segments, ends_of


@dataclass(frozen=True, slots=True)
class GatheredAliases:
    """Places of a flush's records before the fold is asked: by lite queue, then in the order of the log.

    ``routed``: the lite queues, with ``order`` the record's sorted position in the flush; ``offset``: in the lite queue.
    """

    routed: Routed
    offset: Ints


def gather_aliases(places: LitePlaces, position_of: npt.NDArray[np.int32]) -> GatheredAliases | None:
    """The places of the records that are archived; ``position_of``: sorted position of each row, -1 for one left out. ``None``
    if there is no place."""
    position = position_of[places.row].astype(np.int64)
    kept = np.flatnonzero(position >= 0)
    if not len(kept):
        return None
    used, queue = np.unique(places.queue[kept], return_inverse=True)
    names = [places.queues[q] for q in used.tolist()]
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    group = ranks[queue]
    order = np.argsort(group, kind="stable")
    group = group[order]
    starts = np.append(np.searchsorted(group, np.arange(len(names))), len(group)).astype(np.int64)
    routed = Routed(
        order=position[kept][order],
        group=group,
        group_start=starts,
        topics=tuple(sorted(names)),
        queue_ids=np.full(len(names), LITE_QUEUE_ID, np.int64),
        off_queue=None,
        excluded=0,
    )
    return GatheredAliases(routed, places.offset[kept][order])


def lite_ends(fold: ArchiveState, found: GatheredAliases, lineage: int) -> QueueEnds:
    """What the planned fold knows of the lite queues."""
    return ends_of(*lite_queue_table(fold.view, found.routed.topics), lineage)


def alias_edit(
    found: GatheredAliases,
    ends: QueueEnds,
    rows: npt.NDArray[np.void],
    routed: Routed,
    offsets: RowOffsets,
    segments: Segments,
) -> EditBatch:
    """The edit. ``rows``, ``offsets``, ``segments``: of the flush's records in sorted order, as they are archived."""
    lite, position = found.routed, found.routed.order
    stretches = cut_segments(lite, RowOffsets(found.offset, np.ones_like(found.offset)), ends)
    segment = np.searchsorted(segments.start, position, side="right") - 1
    group, generation = segments.group[segment], segments.generation[segment]
    targets, target = np.unique(np.stack((group, generation)), axis=1, return_inverse=True)
    return Aliases(
        lite.topics,
        [routed.topics[g] for g in targets[0].tolist()],
        routed.queue_ids[targets[0]].tolist(),
        targets[1].tolist(),
        {
            "queue": stretches.group,
            "generation": stretches.generation,
            "first_offset": stretches.first_offset,
            "rows": np.diff(stretches.start),
        },
        {
            "target": target.reshape(-1).astype(np.int64),
            "offset": offsets.queue_offset[position],
            "physical_offset": rows["physical_offset"][position].astype(np.int64),
            "store_time": rows["store_timestamp"][position].astype(np.int64),
        },
    ).edit()
