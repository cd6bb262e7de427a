"""What keeps a debt or a lane from going on, and when it is looked at again: one in trouble holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.errors import TieredError, Unavailable

log = logging.getLogger("tiered.replay")

BACKOFF = Backoff(5.0, 60.0)
"""When a debt or lane in trouble is looked at again."""


@dataclass(slots=True)
class Trouble:
    """What it is, when to look again, and how often in a row it was met."""

    what: str
    again: float
    failures: int


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
            failures = 1 if before is None else before.failures + 1
            if before is None:
                log.warning("replay waits", extra={"error": str(error)})
            self._troubles[key] = Trouble(
                str(error), self._clock.monotonic() + BACKOFF.seconds(failures), failures
            )
            return 0
        self._troubles.pop(key, None)
        return done
