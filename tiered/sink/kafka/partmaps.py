"""Where the messages of a part of a backfill lie: kept in Kafka beside the part's position, in the same transactions.

A task that is killed forgets what Kafka reported to it, and a part may be larger than what an opening reads again. So the map
goes with the position: whoever goes on knows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tiered.archive.state.offsetmap import OffsetMap
from tiered.model import MessageQueue
from tiered.sink.base import Placed, Unmapped
from tiered.sink.kafka.positions import map_record
from tiered.sink.keptmaps import by_queue, map_of_placed, placed_of


class PartMaps:
    """Of one part, as Kafka keeps them. Queues have the names that they have at the destination. One thread."""

    def __init__(self, kept: Mapping[MessageQueue, OffsetMap]) -> None:
        self._maps = dict(kept)

    def learned(self, placed: Sequence[Placed]) -> Iterator[tuple[bytes, bytes]]:
        """Records to keep with what a flush put: the whole map of each queue of which it put something."""
        for queue, found in by_queue(placed).items():
            last, before = found[-1], self._maps.get(queue)
            end = last.first_offset + last.messages + last.left_out
            told = map_of_placed(found[0].first_offset if before is None else before.end, end, found)
            self._maps[queue] = told if before is None else before.then(told)
            yield map_record(queue, self._maps[queue])

    def placed(self, queues: Mapping[MessageQueue, Unmapped]) -> dict[MessageQueue, tuple[Placed, ...]]:
        """As of ``OffsetSink.placed_between``: all that the part put of these queues."""
        return {queue: placed_of(queue, self._maps[queue]) if queue in self._maps else () for queue in queues}
