"""What is told while a daemon and its archive find each other."""

from __future__ import annotations

from typing import Protocol

from tiered.archive.state.values import Head
from tiered.opening.lineage import BrokerComparison


class OpeningEvents(Protocol):
    """Who hears what happens. Called by the thread that opens or compares."""

    def compared(self, outcome: BrokerComparison, lineage: int) -> None:
        """The broker was compared with what the archive holds of ``lineage`` (0: of none)."""
        ...

    def rewound(self, outcome: BrokerComparison, seq: int) -> None:
        """The archive's tail that the broker lost was closed, by commit ``seq``."""
        ...

    def standing_by(self, owner: Head | None, wait_ms: int) -> None:
        """Another writer owns the archive: it is waited for until it has been silent for ``wait_ms`` more."""
        ...
