"""Settings that a running daemon takes over when it is told to read them again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from tiered.daemon.config import Loaded, differing
from tiered.errors import TieredError
from tiered.settings import Retain, Settings

log = logging.getLogger("tiered.daemon")

LIVE_SECTION = "retain."
"""Settings of this section are taken over by a SIGHUP."""


class LiveRetain:
    """Settings of retention, as they are now. Safe from any thread: they are one value that is replaced."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._retain = settings.retain

    def __call__(self) -> Retain:
        """The section."""
        return self._retain

    def reload(self, again: Callable[[], Loaded]) -> None:
        """Take over what can change while the daemon runs, retention; said in the log, what cannot as well."""
        try:
            found = again().settings
        except TieredError as error:
            log.error("the settings were read again and are not taken over: %s", error)
            return
        changed = differing(replace(self._settings, retain=self._retain), found)
        self._retain = found.retain
        taken = [key for key in changed if key.startswith(LIVE_SECTION)]
        log.info("retention follows the settings as they are now", extra={"changed": taken})
        if len(taken) < len(changed):
            waiting = [key for key in changed if key not in taken]
            log.warning("changed settings that wait for a restart", extra={"keys": waiting})
