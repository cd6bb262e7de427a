"""Where a sink's messages lie, on its way into the archive: flush by flush, and read again where a process ended between the
destination and the archive (DESIGN.md, "Sinks", J9)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tiered.archive.state.keys import queue_key
from tiered.archive.state.offsetmap import OffsetMap, nothing_given
from tiered.archive.state.sinkmaps import sink_maps_of, sink_targets
from tiered.archive.state.view import ArchiveState
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.sink.base import (
    OffsetSink,
    RemindedSink,
    SafePoint,
    Sink,
    SinkPosition,
    Unmapped,
    WentTo,
)
from tiered.sink.book import StoredSink
from tiered.sink.keptmaps import by_queue, map_of_placed

Follows = Mapping[MessageQueue, Follow]
OffsetMaps = Mapping[MessageQueue, OffsetMap]

log = logging.getLogger("tiered.sink")


def maps_of_flush(
    sink: Sink, safe: SafePoint, before: Mapping[MessageQueue, Follow], changed: Mapping[MessageQueue, Follow]
) -> dict[MessageQueue, OffsetMap]:
    """What a flush tells of each queue that it moved from where it was ``before``. Of a sink without offsets: nothing."""
    if not isinstance(sink, OffsetSink):
        return {}
    placed = by_queue(safe.placed)
    made = {}
    for queue, follow in changed.items():
        start = min(before.get(queue, Follow()).next, follow.next)
        made[queue] = map_of_placed(start, follow.next, placed.get(queue, ()))
    return made


def remind(sink: Sink, sink_id: bytes, fold: ArchiveState) -> None:
    """Tell a destination where it put messages before, if it wants to know. Errors as of ``RemindedSink``."""
    if isinstance(sink, RemindedSink):
        told = sink_targets(fold.view, sink_id)
        sink.remind({queue: WentTo(target, partition, name) for queue, target, partition, name in told})


def found_again(
    sink: Sink, stored: StoredSink, recorded: SinkPosition | None, position: SinkPosition, fold: ArchiveState
) -> dict[MessageQueue, OffsetMap]:
    """Maps of what the destination has and the archive has not heard of, since the process before ended between the two.
    What cannot be found for certain is said, and its map begins anew behind it."""
    if not isinstance(sink, OffsetSink):
        return {}
    unmapped = _unmapped(stored.sink_id, recorded, position, fold)
    if not unmapped:
        return {}
    found = sink.placed_between(unmapped)
    lacking = [str(queue) for queue in unmapped if queue not in found]
    if lacking:
        said = {"sink": stored.name, "queues": len(lacking), "some": lacking[:5]}
        log.warning("a sink's map of offsets begins anew: its records cannot be read again", extra=said)
    made = {}
    for queue, gap in unmapped.items():
        placed = found.get(queue)
        if placed is None:
            made[queue] = nothing_given(gap.end, gap.end)
        else:
            begin = placed[0].first_offset if placed else gap.end
            made[queue] = map_of_placed(begin if gap.first is None else gap.first, gap.end, placed)
    return made


def _unmapped(
    sink_id: bytes, recorded: SinkPosition | None, position: SinkPosition, fold: ArchiveState
) -> dict[MessageQueue, Unmapped]:
    """Queues in which the destination is further than the archive knows."""
    had = {} if recorded is None else recorded.queues
    further = [
        queue
        for queue, follow in position.queues.items()
        if follow.next > (had[queue].next if queue in had else 0)
    ]
    known = sink_maps_of(fold.view, sink_id, list(map(queue_key, further)))
    made = {}
    for queue, told in zip(further, known, strict=True):
        follow, before = position.queues[queue], had.get(queue)
        some = told is not None and len(told)
        made[queue] = Unmapped(
            None if before is None else before.next, follow.next,
            int(told.target_ends[-1]) if told is not None and some else 0,
            told.target_id if told is not None and some else "",
            None if before is None else before.physical, follow.physical,
        )  # fmt: skip
    return made
