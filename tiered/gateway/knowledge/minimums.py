"""Where the broker's queues begin, as its answers tell. On the event loop only."""

from __future__ import annotations

from collections import OrderedDict

from cachetools import LRUCache

from tiered.codec.remoting.codes import number_field

MAX_QUEUES = 262_144


class Minimums:
    """The broker's own minimum offsets, as its answers told them last."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, int], int] = LRUCache(MAX_QUEUES)
        self._heard: OrderedDict[tuple[str, str], str] = (
            OrderedDict()
        )  # as ``_known``; dicts are quicker than caches

    def hear(self, topic: str, queue_id: str, offset: str) -> None:
        """``learn`` from fields as they came; most answers say what the last one said. ``Invalid`` if they make no sense."""
        key = topic, queue_id
        if self._heard.get(key) == offset:
            return
        values = {"queueId": queue_id, "minOffset": offset}
        self.learn(topic, number_field(values, "queueId", 32), number_field(values, "minOffset"))
        self._heard[key] = offset
        if len(self._heard) > MAX_QUEUES:
            self._heard.popitem(last=False)

    def learn(self, topic: str, queue_id: int, offset: int) -> None:
        """The broker said that its queue begins at ``offset``."""
        self._known[topic, queue_id] = offset
        self._heard.pop((topic, str(queue_id)), None)

    def get(self, topic: str, queue_id: int) -> int | None:
        """The last that was heard; ``None``: nothing."""
        return self._known.get((topic, queue_id))
