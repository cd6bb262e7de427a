"""A gateway takes over the newest table of placement, and keeps the one it has while it cannot look."""

from __future__ import annotations

import logging

from tiered.archive.keys import ArchiveKeys
from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.gateway.nodes.fleet import NodeFleet
from tiered.placement.table import PlacementTable, newest_table
from tiered.provider.base import Provider
from tiered.service import Next, pause

log = logging.getLogger("tiered.gateway")

BY_TABLE = "table"
"""What the setting says where a table is followed."""
LOOK_SECONDS = 30.0


class Placing:
    """``step`` is that of a service, in whose thread the bucket is asked: one listing each time, one GET for a new table."""

    def __init__(self, provider: Provider, keys: ArchiveKeys, fleet: NodeFleet, clock: Clock) -> None:
        self._provider = provider
        self._keys = keys
        self._fleet = fleet
        self._clock = clock
        self._number = -1
        self._table: PlacementTable | None = None
        self.problem: str | None = None
        """Why the last look failed; ``None``: it did not."""

    def step(self) -> Next:
        """Look, and take over what is new."""
        try:
            number, table = newest_table(self._provider, self._keys, self._number)
        except TieredError as error:
            if self.problem is None:
                log.warning("the table of placement cannot be read: the one before goes on: %s", error)
            self.problem = str(error)
            return pause(LOOK_SECONDS)
        if self.problem is not None:
            log.info("the table of placement can be read again")
            self.problem = None
        if table is not None:
            self._number, self._table = number, table
            self._fleet.homes = table.homes
            log.info("a table of placement is followed", extra={"number": number, "queues": len(table.homes)})
        elif number < 0 and self._table is not None:
            self._number, self._table = -1, None
            self._fleet.homes = {}
            log.info("no table of placement is there any more: queues lie by hashing")
        return pause(LOOK_SECONDS)

    def status(self) -> dict[str, object]:
        """For the status page. From any thread."""
        table = self._table
        return {
            "table": None if table is None else self._number,
            "queues": 0 if table is None else len(table.homes),
            "age_seconds": None if table is None else max(0, self._clock.now_ms() - table.made_ms) // 1000,
            "problem": self.problem,
        }
