"""Temporary files that writers of the archive left when they died are removed, a little at a time, once after each start."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tiered.errors import TieredError
from tiered.provider.base import Provider
from tiered.provider.resolve import sweep
from tiered.service import DONE, Next, pause

log = logging.getLogger("tiered.daemon")

PAUSE_SECONDS = 0.2
"""Between two slices: what nobody waits for must not be felt by those who archive."""


class Sweeper:
    """``step`` looks through one slice of the archive's directories, the first in any case, the others until ``finished``. What
    it meets never ends the daemon."""

    def __init__(self, provider: Provider, prefix: str, finished: Callable[[], bool]) -> None:
        self._slices = sweep(provider, prefix)
        self._finished = finished
        self._removed = 0
        self._began = False

    def step(self) -> Next:
        """The next slice."""
        try:
            removed = None if self._began and self._finished() else next(self._slices, None)
            self._began = True
        except TieredError as error:
            log.warning("the archive was not swept of unfinished files", extra={"error": str(error)})
            return DONE
        if removed is None:
            if self._removed:
                log.info("removed unfinished files of dead writers", extra={"files": self._removed})
            return DONE
        self._removed += removed
        return pause(PAUSE_SECONDS)
