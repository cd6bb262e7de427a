"""A lite queue's offsets and store times, of which the fold alone is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tiered.archive.read.flatfile import search_times
from tiered.archive.read.keptaliases import readable_from
from tiered.archive.state.aliases import alias_runs, lite_queue
from tiered.archive.state.values import QueueState
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.lite import MAX_NAME_BYTES, is_lite
from tiered.codec.types import Ints
from tiered.model import BoundaryType, MessageQueue, QueueOffset


def known_lite(state: ArchiveState, queue: MessageQueue) -> QueueState | None:
    """A lite queue that has a current generation; ``None`` for all other queues, and for names that none can have."""
    if not is_lite(queue.topic) or queue.queue_id:
        return None
    try:
        if len(queue.topic.encode()) > MAX_NAME_BYTES:
            return None
    except UnicodeEncodeError:
        return None
    found = lite_queue(state.view, queue)
    return None if found is None or found.generation is None else found


def readable_lite(state: ArchiveState, queue: MessageQueue) -> QueueState | None:
    """``known_lite``, with the first offset that can be read."""
    known = known_lite(state, queue)
    return None if known is None else replace(known, min_offset=readable_from(state, known))


class LiteQueueFile:
    """The current generation of a lite queue, as ``FlatMessageFile`` is that of a queue."""

    def __init__(self, state: ArchiveState, known: QueueState) -> None:
        assert known.generation is not None
        self._state = state
        self._known = known
        self._queue, self._generation = known.queue, known.generation
        self.max_offset = QueueOffset(known.max_offset)

    @property
    def min_offset(self) -> QueueOffset:
        """The first offset whose record is still archived."""
        return QueueOffset(readable_from(self._state, self._known))

    def time_of(self, offset: int) -> int | None:
        """Store time of the message at ``offset``; ``None`` where none is."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        run = next(alias_runs(self._state.view, self._queue, self._generation, offset), None)
        if run is None or run.first_offset > offset:
            return None
        return int(run.rows["store_time"][offset - run.first_offset])

    def place_of(self, offset: int) -> int | None:
        """Physical offset of the message at ``offset``, or of the first one behind; ``None`` where none is."""
        run = next(alias_runs(self._state.view, self._queue, self._generation, max(0, offset)), None)
        if run is None:
            return None
        return int(run.rows["physical_offset"][max(0, offset - run.first_offset)])

    def offset_by_time(self, store_time_ms: int, boundary: BoundaryType = BoundaryType.LOWER) -> QueueOffset:
        """See ``FlatMessageFile.offset_by_time``."""
        found = search_times(self._times(), store_time_ms, boundary)
        return self.max_offset if found is None else QueueOffset(found)

    def _times(self) -> Iterator[tuple[Ints, Ints]]:
        first = self.min_offset
        for run in alias_runs(self._state.view, self._queue, self._generation, first):
            begin = max(first, run.first_offset)
            yield np.arange(begin, run.end), run.rows["store_time"][begin - run.first_offset :]
