"""How the broker numbers a queue, seen from the files beside its log: does an inner batch own one queue offset, or one for each
message in it?"""

from __future__ import annotations

import os

from tiered.source.topiclists import TOPICS_FILE, place_of

_BATCH_QUEUES = "batchconsumequeue"
_ENOUGH_BYTES = 64 * 1024
_ATTRIBUTES = b'"attributes"'


class QueueNumbering:
    """Looks below ``store_dir``; an empty one knows nothing. Safe from any thread.

    A record says that it is an inner batch with a bit that any producer can set. Brokers of 5.x number the queue by it; those
    of 4.x do not know it, and each record has one offset.
    """

    def __init__(self, store_dir: str) -> None:
        self._store_dir = store_dir
        self._asked: tuple[int, bool] | None = None

    def counts_inner(self, topic: str, queue_id: int) -> bool:
        """Whether the broker gives an inner batch of this queue as many offsets as it holds messages."""
        if not self._store_dir:
            return False
        queue = os.path.join(self._store_dir, _BATCH_QUEUES, topic, str(queue_id))
        return os.path.isdir(queue) or self._is_of_5()

    def _is_of_5(self) -> bool:
        """Brokers of 5.x write each topic's attributes, also when it has none, or keep their topics in RocksDB."""
        if place_of(self._store_dir) is not None:
            return True  # no broker before 5.x keeps anything in RocksDB
        path = os.path.join(self._store_dir, TOPICS_FILE)
        try:
            changed = os.stat(path).st_mtime_ns
            if self._asked is None or self._asked[0] != changed:
                with open(path, "rb") as file:
                    self._asked = changed, _ATTRIBUTES in file.read(_ENOUGH_BYTES)
        except OSError:
            return False
        return self._asked[1]
