"""The archive at one commit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiered.archive.checkpoint.partial import PartialView
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.reader import LogReader
from tiered.archive.read.litefile import LiteQueueFile, known_lite
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import Head, QueueState
from tiered.archive.state.view import ArchiveState
from tiered.model import MessageQueue, PhysicalOffset, Progress

MAX_QUEUE_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class View:
    """The archive at one commit. Never changes; any number of threads may read it.

    ``head`` is ``None`` for an empty log. ``state`` is the fold, all of it or, of a partial fold, whatever is asked for;
    ``objects`` reads what its runs name, ``log`` the commits themselves.
    """

    head: Head | None
    state: ArchiveState
    objects: ObjectReader
    log: LogReader

    @property
    def identity(self) -> ArchiveIdentity:
        """The archive's id, and what it was created with."""
        return self.log.identity

    @property
    def keys(self) -> ArchiveKeys:
        """Names of the archive's objects."""
        return self.log.keys

    @property
    def is_partial(self) -> bool:
        """Whether what is asked for is loaded then, and not all of it is there."""
        return isinstance(self.state.view, PartialView)

    @property
    def at_hand(self) -> View:
        """This view as far as it is loaded: never waits and makes no request, ``Unavailable`` for all else."""
        fold = self.state.view
        return replace(self, state=ArchiveState(fold.at_hand())) if isinstance(fold, PartialView) else self

    def known(self, queue: MessageQueue) -> QueueState | None:
        """A queue that has a current generation; ``None`` also for names and ids that no queue can have."""
        found = ever_archived(self.state, queue)
        return found if found is not None and found.generation is not None else None

    def progress(self) -> Progress | None:
        """How far the lineage in force is archived; ``None`` before its first progress."""
        return None if self.head is None else self.head.progress.get(self.head.lineage)

    def physical_floor(self, queue: MessageQueue, offset: int) -> PhysicalOffset | None:
        """A physical offset at or below that of the message at ``offset``, of which the fold alone is asked.

        ``None``: nothing is known of the queue, or the message is not of the lineage in force.
        """
        lite = known_lite(self.state, queue)
        if lite is not None:
            return self._lite_floor(lite, offset)
        known = self.known(queue)
        if self.head is None or known is None or known.generation is None:
            return None
        if offset >= known.max_offset:
            return PhysicalOffset(known.last_physical_end) if known.lineage == self.head.lineage else None
        run = next(self.state.runs(queue, known.generation, from_offset=offset), None)
        if run is None or run.lineage != self.head.lineage:
            return None
        return PhysicalOffset(run.physical_start)

    def _lite_floor(self, known: QueueState, offset: int) -> PhysicalOffset | None:
        """Of a lite queue: exactly the message's, or that of the next one behind a hole."""
        if self.head is None or known.lineage != self.head.lineage:
            return None
        found = LiteQueueFile(self.state, known).place_of(offset)
        return PhysicalOffset(known.last_physical_end if found is None else found)


def ever_archived(state: ArchiveState, queue: MessageQueue) -> QueueState | None:
    """A queue that was ever archived; ``None`` also for names and ids that no queue can have."""
    try:
        queue.topic.encode()
    except UnicodeEncodeError:
        return None
    return state.queue(queue) if 0 <= queue.queue_id <= MAX_QUEUE_ID else None
