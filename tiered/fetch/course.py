"""What one read, or one walk ahead of a reader, goes along: the runs of a queue from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tiered.archive.entities import ObjectState, RunState
from tiered.archive.state import ArchiveState
from tiered.errors import Corrupt
from tiered.fetch.base import RowFilter
from tiered.model import MessageQueue

_RUNS = 16


@dataclass(frozen=True, slots=True)
class Course:
    """A queue's generation in one state of the archive, and what is wanted of it."""

    state: ArchiveState
    queue: MessageQueue
    generation: int
    row_filter: RowFilter | None

    def runs(self, offset: int) -> Iterator[tuple[RunState, ObjectState]]:
        """Live runs that end above ``offset``, ascending, each with its object. A few are looked up at a time."""
        batch = 1
        while True:
            batch = min(2 * batch, _RUNS)
            found = list(islice(self.state.runs(self.queue, self.generation, from_offset=offset), batch))
            for run in found:
                item = self.state.object(run.object)
                if item is None:
                    raise Corrupt(
                        "a run names an object that the fold does not know", queue=run.queue, run=run.id
                    )
                yield run, item
                offset = run.end
            if len(found) < batch:
                return

    def hole_after(self, offset: int) -> int:
        """Where the archive goes on when nothing begins at ``offset``: behind a hole, or ``offset`` itself."""
        following = next(iter(self.state.runs(self.queue, self.generation, from_offset=offset)), None)
        if following is not None:
            return max(offset, following.start)
        queue = self.state.queue(self.queue)
        if queue is None or queue.generation != self.generation:
            return offset
        return max(offset, queue.max_offset)
