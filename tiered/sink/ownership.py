"""Whether a message that somebody else kept is one of this archive: by its place in the broker's log."""

from __future__ import annotations

from typing import Protocol

from tiered.archive.state.values import RunState
from tiered.archive.state.view import ArchiveState
from tiered.model import MessageQueue


class PlacedMessage(Protocol):
    """A message's queue offset, and where it lay in its broker's log."""

    @property
    def offset(self) -> int: ...

    @property
    def physical(self) -> int: ...


class Ownership:
    """Several brokers may have topics of the same names, whose messages have the same numbers. One thread."""

    def __init__(self, state: ArchiveState) -> None:
        self._state = state
        self._runs: dict[MessageQueue, RunState] = {}
        """The last one met, since messages come in order."""

    def belongs(self, queue: MessageQueue, message: PlacedMessage) -> bool:
        """Whether the archive has it there. One that the archive does not have any more is believed."""
        run = self._runs.get(queue)
        if run is None or not run.start <= message.offset < run.end:
            known = self._state.queue(queue)
            if known is None or known.generation is None:
                return True
            run = next(iter(self._state.runs(queue, known.generation, from_offset=message.offset)), None)
            if run is None or message.offset < run.start:
                return True
            self._runs[queue] = run
        return run.physical_start <= message.physical < run.physical_end
