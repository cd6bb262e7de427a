"""A look that may hang, made by a thread of its own for pages and watches that may not.

The broker's files and the local state lie on disks, and disks hang. ``Looker`` looks once a second and whenever somebody asks;
who asks waits a bounded time and is then given what was seen last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.metrics import Metrics
from tiered.service import Next, Service, pause

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
"""How long a page waits for a look."""

T = TypeVar("T")
_log = logging.getLogger("tiered.daemon")


class Looker(Generic[T]):
    """``look`` is called by one thread at a time. Its errors leave what was seen before, and are told in ``trouble``."""

    def __init__(self, look: Callable[[], T], clock: Clock, metrics: Metrics | None = None) -> None:
        self._look = look
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._begun = self._done = 0
        self._seen: T | None = None
        self.trouble: str | None = None
        self.late = False
        """Whether the last ``fresh`` waited in vain."""
        self.service = Service("look", self._step, clock, metrics=metrics)

    def fresh(self, patience_seconds: float = PATIENCE_SECONDS) -> T | None:
        """What a look that began after the call sees, or else the last one; ``None`` before the first."""
        if not self.service.alive:  # before the start and after the end nobody else looks
            self._step()
            return self._seen
        with self._changed:
            wanted = self._begun + 1
            self.service.wake()
            self.late = not self._changed.wait_for(lambda: self._done >= wanted, patience_seconds)
            return self._seen

    def _step(self) -> Next:
        with self._looking:
            with self._changed:
                self._begun += 1
                number = self._begun
            seen, trouble = self._seen, None
            try:
                seen = self._look()
            except (TieredError, OSError) as error:
                trouble = str(error)
                _log.debug("a look failed", extra={"error": trouble})
            with self._changed:
                self._seen, self.trouble, self._done = seen, trouble, number
                self._changed.notify_all()
        return pause(LOOK_SECONDS)
