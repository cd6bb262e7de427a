"""The archive's side: marks of what a sink must have been given of a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.view import View
from tiered.codec.types import Bools, Ints
from tiered.feed.archived import stretch_messages
from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch
from tiered.sink.comparison.base import Marks


class ArchivedMarks:
    """``given``: what a batch becomes at the destination, so that both sides are marked by the same rules."""

    def __init__(self, view: View, given: Callable[[SinkBatch], Marks]) -> None:
        self._view = view
        self._given = given

    def least(self, queue: MessageQueue) -> int:
        """The first offset that the archive has of a queue."""
        found = self._view.state.queue(queue)
        return 0 if found is None else found.min_offset

    def replaced(self, queue: MessageQueue, offsets: Ints) -> Bools:
        """Which offsets a lost tail of the broker had: what came in a message's place may have its id, for it may lie where
        that lay."""
        found = np.zeros(len(offsets), np.bool_)
        for part in self._view.state.closed_parts():
            if part.queue == queue and part.closed_by is not None:
                found |= (offsets >= part.start) & (offsets < part.end)
        return found

    def between(self, queue: MessageQueue, first: int, end: int) -> Iterator[Marks]:
        """Messages of queue offsets [``first``, ``end``), ascending, some at a time."""
        if first >= end:
            return
        file = FlatMessageFile(self._view.state, self._view.objects, queue)
        for stretch in file.read(max(first, file.min_offset), end=end):
            messages = stretch_messages(stretch)
            marks = self._given(SinkBatch(messages, np.arange(len(messages))))
            yield rows(marks, (marks.queue_offset >= first) & (marks.queue_offset < end))

    def before(self, queue: MessageQueue, physical: int) -> Iterator[Marks]:
        """Messages of a queue whose records lie before a place in the broker's log."""
        file = FlatMessageFile(self._view.state, self._view.objects, queue)
        for stretch in file.read(file.min_offset):
            messages = stretch_messages(stretch)
            chosen = np.flatnonzero(messages.headers["physical_offset"].astype(np.int64) < physical)
            if len(chosen):
                yield self._given(SinkBatch(messages, chosen))
            if len(chosen) < len(messages):
                return


def rows(marks: Marks, which: Bools) -> Marks:
    """Some of them."""
    return Marks(
        marks.queues, marks.queue[which], marks.queue_offset[which], marks.origin[which], marks.content[which]
    )
