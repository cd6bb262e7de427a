"""A consumer group of the cold scene that is far behind, and what must have come to its consumers in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.delivery import Delivery, Line, compare

BEHIND = 1500
"""Messages of each queue that the group has still to read, most of them deleted by the broker."""

SLOWLY: Mapping[str, object] = {"rate": 2000, "cached": 64, "persist_ms": 500, "batch": 16, "idle": 90}
"""A push consumer that takes a few seconds, holds little in its own memory and commits often."""

HELD = 2 * 64
"""Most messages of a queue that it may have taken in and not yet committed: what its client holds, and one more pull."""


class Laggard:
    """The group. Its consumers are push consumers of the broker's version."""

    def __init__(self, cold: ColdScene, name_server: str, name: str, *, behind: int = BEHIND) -> None:
        self.cold = cold
        self.group = cold.group(name)
        self.ends = {queue: cold.broker.offsets(TOPIC, queue).stop for queue in cold.minimum}
        self.begin = {queue: end - behind for queue, end in self.ends.items()}
        assert all(self.begin[queue] < low - behind // 2 for queue, low in cold.minimum.items())
        cold.commit(self.group, self.begin)
        self._client = cold.client(name_server=name_server)

    @property
    def total(self) -> int:
        """Messages that the group has to be handed."""
        return sum(end - self.begin[queue] for queue, end in self.ends.items())

    def start(self, **options: object) -> Running:
        """One consumer of the group."""
        return self._client.start("push", topic=TOPIC, group=self.group, **{**SLOWLY, **options})

    def committed(self) -> dict[int, int]:
        """Where the group is, as the broker knows it."""
        return self.cold.committed(self.group)

    def wait_end(self, consumer: Running, seconds: float = 150.0) -> None:
        """Wait until the group has committed everything."""
        consumer.child.wait_until(lambda: self.committed() == self.ends, seconds, "everything committed")

    def judge(self, received: Sequence[Line]) -> Delivery:
        """Everything that was to come, against everything that came to anyone."""
        return compare(self.cold.sent, received, begin=self.begin)


def repeats(first: Sequence[Line], second: Sequence[Line]) -> dict[int, int]:
    """Per queue the lowest offset among the messages that came before and came again."""
    had = {(line["queue_id"], line["queue_offset"]) for line in first}
    lowest: dict[int, int] = {}
    for line in second:
        queue, offset = line["queue_id"], line["queue_offset"]
        if (queue, offset) in had:
            lowest[queue] = min(offset, lowest.get(queue, offset))
    return lowest
