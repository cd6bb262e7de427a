"""One part of a backfill given to a destination, by a process that is not the writer's: a task of Spark.

The driver is the sink's own, opened beside it (``SinkPlace.part``). Where the destination keeps the position, an attempt goes
on where the one before was, and fences it; elsewhere a part that is begun again is given again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.view import View
from tiered.archive.state.offsetmap import OffsetMap, nothing_given
from tiered.archive.state.view import ArchiveState
from tiered.feed.archived import stretch_messages
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue
from tiered.sink.backfill import BackfillDone, BackfillPlan, QueueRange
from tiered.sink.base import OffsetSink, Sink, SinkBatch, SinkPosition, Unmapped
from tiered.sink.book import StoredSink
from tiered.sink.keptmaps import map_of_placed
from tiered.sink.kinds import SinkPlace, find_kind
from tiered.sink.mapping import maps_of_flush


@dataclass(frozen=True, slots=True)
class PartPace:
    """A flush when ``flush_bytes`` are written. ``check``: asked before each; what it raises ends the part."""

    flush_bytes: int
    check: Callable[[], None]


def give_part(
    number: int, view: View, sink: Sink, ranges: tuple[QueueRange, ...], pace: PartPace
) -> BackfillDone:
    """Give every message of these ranges, each queue in its order, from where the destination is. Errors as of ``Sink``, and of
    reading an archive."""
    giving = _Giving(sink, ranges, pace)
    for each in ranges:
        giving.queue(view, each)
    giving.flush()
    return giving.done(number)


def open_part(stored: StoredSink, plan: BackfillPlan, number: int, place: SinkPlace) -> Sink:
    """A part's own opening of the destination; it fences any other of the same part. ``place``: of the sink's log."""
    at = replace(place, epoch=plan.epoch, name=stored.name, part=plan.part(number), sink_id=stored.sink_id)
    return find_kind(stored.order.kind).open(stored.order, at)


def part_as_it_is(number: int, sink: Sink, ranges: tuple[QueueRange, ...]) -> BackfillDone:
    """A part that is given no further: how far the destination has it. Opening it has fenced whoever gave it."""
    return _Giving(sink, ranges, PartPace(0, lambda: None)).done(number)


def is_as_planned(plan: BackfillPlan, ranges: tuple[QueueRange, ...], state: ArchiveState) -> bool:
    """Whether this fold has of these ranges what the plan was made on: the broker took nothing back since, and the queues live.
    Then it may be read instead, whose objects are all there; those of an older one may be deleted."""
    head = state.head()
    taken = any(part.closed_by is not None and part.closed_by > plan.commit for part in state.closed_parts())
    if head is None or head.lineage != plan.lineage or taken:
        return False
    found = (state.queue(each.queue) for each in ranges)
    return all(
        queue is not None and queue.generation == each.generation
        for queue, each in zip(found, ranges, strict=True)
    )


class _Giving:
    def __init__(self, sink: Sink, ranges: tuple[QueueRange, ...], pace: PartPace) -> None:
        self._sink, self._ranges, self._pace = sink, ranges, pace
        self._changed: dict[MessageQueue, Follow] = {}
        self._bytes = self._lost = self._dead_letters = self._left_out = 0
        own = sink.position()
        had = {} if own is None else own.queues
        self._reached = {
            r.queue: f if (f := had.get(r.queue, Follow())).next > r.first else Follow(r.first)
            for r in ranges
        }
        self._maps = self._had_maps()

    def queue(self, view: View, wanted: QueueRange) -> None:
        """Everything of a range behind where it is."""
        follow = self._reached[wanted.queue]
        file = FlatMessageFile(view.state, view.objects, wanted.queue)
        for stretch in file.read(max(follow.next, int(file.min_offset)), end=wanted.end):
            messages = stretch_messages(stretch)
            self._lost += max(0, int(stretch.queue_offsets[0]) - follow.next)
            accepted = self._sink.write(SinkBatch(messages, np.arange(len(stretch), dtype=np.int64)))
            self._dead_letters += accepted.dead_letters
            self._left_out += accepted.left_out
            physical = int(messages.headers["physical_offset"][-1])
            follow = self._changed[wanted.queue] = Follow(int(stretch.next_offset), physical)
            self._bytes += len(stretch.data)
            if self._bytes >= self._pace.flush_bytes:
                self.flush()
        if follow.next < wanted.end:  # trimmed, or a gap
            self._lost += wanted.end - follow.next
            self._changed[wanted.queue] = Follow(wanted.end, follow.physical)

    def flush(self) -> None:
        """What is written is there for good, with how far it is."""
        self._pace.check()
        if self._changed:
            safe = self._sink.flush(SinkPosition(FeedPosition(), self._changed))
            for queue, told in maps_of_flush(self._sink, safe, self._reached, self._changed).items():
                before = self._maps.get(queue)
                self._maps[queue] = told if before is None else before.then(told)
            self._reached |= self._changed
        self._changed, self._bytes = {}, 0

    def done(self, number: int) -> BackfillDone:
        """What is flushed."""
        messages = sum(self._reached[r.queue].next - r.first for r in self._ranges)
        return BackfillDone(
            number, self._reached, messages, self._lost, self._dead_letters, self._left_out, self._maps
        )

    def _had_maps(self) -> dict[MessageQueue, OffsetMap]:
        """Where lies what attempts before this one put."""
        had = {r.queue: r for r in self._ranges if self._reached[r.queue].next > r.first}
        if not had or not isinstance(self._sink, OffsetSink):
            return {}
        ends = {queue: self._reached[queue] for queue in had}
        gaps = {q: Unmapped(had[q].first, ends[q].next, upto=ends[q].physical) for q in had}
        found = self._sink.placed_between(gaps)
        return {
            queue: map_of_placed(had[queue].first, ends[queue].next, found[queue])
            if queue in found
            else nothing_given(ends[queue].next, ends[queue].next)
            for queue in had
        }
