"""What the way in tells: one protocol, for counters, logs and pages above this floor."""

from __future__ import annotations

from typing import Protocol

from tiered.archive.log.flush import LineEvents
from tiered.model import PhysicalOffset


class Events(LineEvents, Protocol):
    """Who hears what happens. Called by the thread to which it happens, which waits meanwhile."""

    def gap(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        """Bytes that can never be archived were recorded as a physical gap."""
        ...

    def changed(self, detail: str) -> None:
        """The broker rewrote bytes that were buffered."""
        ...

    def alive(self) -> None:
        """A step waits for the store: it is waiting, not wedged."""
        ...
