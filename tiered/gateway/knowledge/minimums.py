"""Where the broker's queues begin, as its answers tell. On the event loop only."""

from __future__ import annotations

from collections import OrderedDict

from tiered.codec.remoting.codes import number_field

MAX_QUEUES = 262_144


class Minimums:
    """The broker's own minimum offsets, as its answers told them last; beyond ``MAX_QUEUES`` the oldest news goes."""

    def __init__(self) -> None:
        # Numbers as answers write them, so that they are compared as they come.
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    def hear(self, topic: str, queue_id: str, offset: str) -> None:
        """``learn`` from fields as they came; most answers say what the last one said. ``Invalid`` if they make no sense."""
        if self._known.get((topic, queue_id)) == offset:
            return
        values = {"queueId": queue_id, "minOffset": offset}
        self.learn(topic, number_field(values, "queueId", 32), number_field(values, "minOffset"))

    def learn(self, topic: str, queue_id: int, offset: int) -> None:
        """The broker said that its queue begins at ``offset``."""
        key = topic, str(queue_id)
        self._known[key] = str(offset)
        self._known.move_to_end(key)
        if len(self._known) > MAX_QUEUES:
            self._known.popitem(last=False)

    def get(self, topic: str, queue_id: int) -> int | None:
        """The last minimum that was heard; ``None``: nothing was."""
        offset = self._known.get((topic, str(queue_id)))
        return None if offset is None else int(offset)
