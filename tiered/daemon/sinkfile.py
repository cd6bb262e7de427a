"""The daemon's file of sinks: what it declares is put as orders at the start, and again whenever the file is another one."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.sink.book import SinkBook
from tiered.sink.declared import declared_changes, put_changes, read_declared

log = logging.getLogger("tiered.sink")

AGAIN_SECONDS = 60.0
"""Until what failed is tried again: a destination may be asked, which takes its time where it is away."""

_Stamp = tuple[int, int, int]


class SinkFile:
    """Of one thread. ``trouble``: why what the file declares is not in force."""

    def __init__(self, path: str, book: SinkBook, clock: Clock) -> None:
        self._path = Path(path) if path else None
        self._book = book
        self._clock = clock
        self._done: _Stamp | None = None
        self._failed: _Stamp | None = None
        self._again_at = 0.0
        self.trouble: str | None = None

    def look(self) -> None:
        """Put what differs, if the file was not put yet as it is now. Errors end in ``trouble``, logged once."""
        if self._path is None:
            return
        now, stamp = self._clock.monotonic(), _stamp(self._path)
        if stamp is not None and stamp == self._done:
            return
        if stamp == self._failed and self.trouble is not None and now < self._again_at:
            return
        try:
            changes = declared_changes(self._book, read_declared(self._path))
            put_changes(self._book, changes, self._clock.now_ms(), os.urandom)
        except TieredError as error:
            self._failed, self._again_at = stamp, now + AGAIN_SECONDS
            if self.trouble != str(error):
                said = {"file": str(self._path), "error": str(error)}
                log.error("the file of sinks is not in force; sinks go on as they are ordered", extra=said)
            self.trouble = str(error)
            return
        self._done, self.trouble = stamp, None
        for each in changes:
            if each.differs:
                log.info(
                    "a sink is as its file declares it", extra={"sink": each.name, "changed": each.differs}
                )


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
