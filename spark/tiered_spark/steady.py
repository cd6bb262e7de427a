"""Streams on a busy machine: Spark gives the Python process of a stream ten seconds to begin, and no setting changes that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("tiered.spark")

LATE = (
    "Timed out while waiting for the Python worker to connect back",
    "Python worker failed to connect back",
    "Accept timed out",
)
"""What Spark 4.1 to 4.3 says of a Python process that began too late."""

RESTARTS = 20

_STEP_SECONDS = 1


class SteadyQuery:
    """A stream that is started again, from its checkpoint, where a Python process of Spark began too late; any other error ends
    it. ``query``: the one that runs now."""

    def __init__(self, start: Callable[[], StreamingQuery], restarts: int = RESTARTS) -> None:
        """``start`` starts the query, each time with the same checkpoint. ``restarts``: at most so many, together."""
        self._start, self._left = start, restarts
        self.restarted = 0
        self.query = self._started()

    def look(self) -> bool:
        """Whether it runs, perhaps anew; false once it has come to its end. Raises the error that ended it."""
        if self.query.isActive:
            return True
        error = self.query.exception()
        if error is None:
            return False
        self._spend(error)
        self.query = self._started()
        return True

    def wait(self) -> None:
        """Until it has come to its end, as one of ``availableNow`` does. Raises the error that ended it."""
        while self.look():
            # What ended it, and whether that matters, is told by the next look.
            with suppress(Exception):
                self.query.awaitTermination(_STEP_SECONDS)

    def stop(self) -> None:
        """End it."""
        self.query.stop()

    def _started(self) -> StreamingQuery:
        while True:
            try:
                return self._start()
            except Exception as error:  # noqa: BLE001 - raised again, but for one kind
                self._spend(error)

    def _spend(self, error: Exception) -> None:
        if self._left <= 0 or not any(sign in str(error) for sign in LATE):
            raise error
        self._left -= 1
        self.restarted += 1
        log.warning("a Python process of Spark did not begin in time: the stream is started again")
