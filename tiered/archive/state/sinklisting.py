"""Sinks as the archive knows them, with how much of it they still have to be given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiered.archive.state.keys import queue_key
from tiered.archive.state.listing import list_queues
from tiered.archive.state.sinks import SinkState, sink_queues, sinks
from tiered.metadata.base import MetadataView


@dataclass(frozen=True, slots=True)
class ListedSink:
    """``queues``: in how many the sink was given anything, that are still there; ``left``: offsets of these that the archive
    has and the sink had not, as of ``state.commit_seq``."""

    state: SinkState
    queues: int
    left: int


def list_sinks(view: MetadataView) -> Iterator[ListedSink]:
    """Every sink, by id. Each walks over the archive's queues once, and keeps none of them."""
    for state in sinks(view):
        queues = left = 0
        listed = list_queues(view)
        found = next(listed, None)
        for queue, at in sink_queues(view, state.sink_id):
            key = queue_key(queue)
            while found is not None and queue_key(found.queue.queue) < key:
                found = next(listed, None)
            if found is not None and found.queue.queue == queue:
                queues += 1
                left += max(0, found.queue.max_offset - max(at.next, found.queue.min_offset))
        yield ListedSink(state, queues, left)
