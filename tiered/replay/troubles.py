"""What keeps a debt or a lane from going on, and when it is looked at again: one in trouble holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tiered.clock import Clock
from tiered.errors import TieredError, Unavailable

log = logging.getLogger("tiered.replay")

WAIT_SECONDS = 5.0
"""A debt or lane in trouble is looked at again after this long; twice as long each time, up to ``MOST_WAIT_SECONDS``."""
MOST_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class Trouble:
    """What it is, and when to look again."""

    what: str
    again: float
    wait: float


class Troubles:
    """By whatever is in trouble. Not for several threads, ``told`` excepted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._troubles: dict[object, Trouble] = {}

    def told(self) -> list[str]:
        """What is in the way now."""
        return sorted({trouble.what for trouble in list(self._troubles.values())})

    def keep(self, keys: Collection[object]) -> None:
        """Drop what is remembered of others."""
        self._troubles = {key: trouble for key, trouble in self._troubles.items() if key in keys}

    def free(self, key: object) -> bool:
        """Whether it may be looked at now."""
        trouble = self._troubles.get(key)
        return trouble is None or trouble.again <= self._clock.monotonic()

    def guarded(self, key: object, work: Callable[[], int]) -> int:
        """Do the work of one lane or debt; trouble with it is remembered and counts as nothing done. ``Unavailable`` is
        everybody's and goes through."""
        try:
            done = work()
        except Unavailable:
            raise
        except TieredError as error:
            before = self._troubles.get(key)
            wait = min(MOST_WAIT_SECONDS, before.wait * 2) if before is not None else WAIT_SECONDS
            if before is None:
                log.warning("replay waits", extra={"error": str(error)})
            self._troubles[key] = Trouble(str(error), self._clock.monotonic() + wait, wait)
            return 0
        self._troubles.pop(key, None)
        return done
