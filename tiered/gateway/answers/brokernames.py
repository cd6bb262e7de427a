"""Whether a connection leads to the archived broker, by the name that routes gave it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.gateway.ports import ConnectionInfo, clipped
from tiered.gateway.transport.limits import Sparse

log = logging.getLogger("tiered.gateway")

_MAX_OTHERS = 256
_MAX_NAME = 255
"""Characters of a broker's name that are compared and kept: a longer one is not a broker's name."""
OTHERS_SECONDS = 10.0
"""Between two lines in the log about brokers that are not archived."""


class BrokerNames:
    """``archived`` is ``source.broker``."""

    def __init__(self, archived: str, clock: Clock) -> None:
        self._archived = archived
        self._clock = clock
        self._others: LRUCache[str, bool] = LRUCache(_MAX_OTHERS)
        self._sparse = Sparse(OTHERS_SECONDS)

    def is_ours(self, ext: Mapping[str, str], connection: ConnectionInfo) -> bool | None:
        """Whether the connection leads to the archived broker; ``None``: nobody has said."""
        name = connection.broker_name or ext.get("bname")
        return None if name is None else self.is_archived(name)

    def is_archived(self, name: str) -> bool:
        """Whether the archived broker has this name; said once of every other name, for a wrong setting looks like this too."""
        if name == self._archived:
            return True
        name = name[:_MAX_NAME]
        if name not in self._others:
            self._others[name] = True
            # Anybody may name a new one each time.
            unsaid = self._sparse.due("other broker", self._clock.monotonic())
            if unsaid is not None:
                said = {"broker": clipped(name), "archived": self._archived, "setting": "source.broker"}
                log.warning(
                    "a broker that is not the archived one: its answers pass as they come",
                    extra={**said, "unsaid": unsaid},
                )
        return False
