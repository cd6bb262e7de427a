"""What of a sink can be compared: its queues, and up to where each must be at the destination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.read.view import View
from tiered.archive.state.listing import list_queues
from tiered.archive.state.sinks import sink, sink_queues
from tiered.model import MessageQueue
from tiered.sink.base import SinkPosition
from tiered.sink.book import StoredSink


@dataclass(frozen=True, slots=True)
class QueueScope:
    """A queue of the archive. ``end``: everything below was given, by the word of the archive or of the destination, whichever
    is more; ``None``: nobody knows anything of it. ``archived``: where the archive ends;
    ``least``: where it begins."""

    queue: MessageQueue
    end: int | None
    archived: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class SinkScope:
    """``physical``: below this place of the log all was given, of whatever queue; ``None``: nobody says so. ``from_first``: the
    sink was not to be given everything, so a queue is compared from the first message on that is there."""

    queues: tuple[QueueScope, ...]
    physical: int | None
    from_first: bool

    @property
    def pending(self) -> int:
        """How many offsets of the archive are not given yet."""
        return sum(scope.archived - max(scope.end or 0, scope.least) for scope in self.queues)


def scope_of(
    view: View, stored: StoredSink, own: SinkPosition | None, takes: Callable[[str], bool]
) -> SinkScope:
    """What is to be compared of the archive as ``view`` has it. ``own``: the position that the destination keeps, asked before
    the view was opened or after; ``takes``: topics."""
    state = view.state
    known = sink(state.view, stored.sink_id)
    ends = {queue: at.next for queue, at in sink_queues(state.view, stored.sink_id)}
    for queue, follow in (own.queues if own is not None else {}).items():
        ends[queue] = max(follow.next, ends.get(queue, 0))
    queues = []
    for listed in list_queues(state.view):
        found = listed.queue
        if found.generation is None or not takes(found.queue.topic):
            continue
        end = ends.get(found.queue)
        end = None if end is None else min(end, found.max_offset)
        queues.append(QueueScope(found.queue, end, found.max_offset, found.min_offset))
    head = state.head()
    counts = known is not None and head is not None and known.revision == stored.revision
    physical = known.physical if counts and known is not None and known.lineage == head.lineage else None  # type: ignore[union-attr]
    rewound = stored.rewind is not None and stored.rewind.time_ms is None
    return SinkScope(tuple(queues), physical, not stored.order.from_start and not rewound)
