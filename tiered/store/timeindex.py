"""The consume-queue index of a daemon on this host, asked by readers before they ask the archive for columns."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from tiered.archive.state.values import RunState
from tiered.clock import Clock
from tiered.consumequeue.layout import stamp_of
from tiered.consumequeue.lookup import ConsumeQueueIndex
from tiered.consumequeue.place import index_directory
from tiered.errors import NotFound, TieredError
from tiered.metadata.peek import peek_redo
from tiered.settings import Settings

log = logging.getLogger("tiered.store")


class LocalTimes:
    """A ``TimeIndex`` over what the daemon beside this process had flushed when it was looked at last: at most
    ``consumequeue.flush_ms`` ago. What it cannot tell, for whatever reason, the archive tells. Safe from any thread."""

    def __init__(self, settings: Settings, archive_id: bytes, clock: Clock) -> None:
        self._directory = Path(index_directory(settings.state_directory))
        self._stamp = stamp_of(archive_id)
        self._clock = clock
        self._seconds = settings.consumequeue.flush_ms / 1000
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._index: ConsumeQueueIndex | None = None

    def first_since(self, run: RunState, store_time_ms: int) -> int | None:
        """See ``TimeIndex``. The index must have the run's own records, from the first readable one on."""
        try:
            with self._lock:
                index = self._open()
                return None if index is None else _first_since(index, run, store_time_ms)
        except TieredError as error:
            log.warning(
                "the consume-queue index is not asked: it cannot be read", extra={"error": str(error)}
            )
            self._index = None
            return None

    def _open(self) -> ConsumeQueueIndex | None:
        now = self._clock.monotonic()
        if self._looked is None or now - self._looked >= self._seconds:
            self._looked, self._index = now, None
            try:
                self._index = ConsumeQueueIndex(peek_redo(self._directory, self._stamp))
            except NotFound:
                return None
        return self._index


def _first_since(index: ConsumeQueueIndex, run: RunState, store_time_ms: int) -> int | None:
    topic, queue = run.queue.topic, run.queue.queue_id
    covered, span = index.coverage(), index.span(topic, queue)
    if covered is None or span is None or covered.lineage != run.lineage or run.start < span.first:
        return None
    if not covered.begin <= run.physical_start <= run.physical_end <= covered.end:
        return None
    found = index.offset_by_time(topic, queue, store_time_ms)
    if found is None or not run.start <= found < run.end:
        return None
    place = next((int(rows.physical[0]) for rows in index.rows(topic, queue, found, found + 1)), -1)
    return found if run.physical_start <= place < run.physical_end else None
