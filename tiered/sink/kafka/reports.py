"""What Kafka reports of records: their offsets, in the order in which they were given; made into runs by arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tiered.archive.state.offsetmap import map_of_runs
from tiered.codec.types import Ints
from tiered.errors import Unavailable
from tiered.sink.base import Placed
from tiered.sink.kafka.routes import QueueRoute
from tiered.sink.kafka.topics import recreated

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

Report = Callable[["KafkaError | None", "Message"], None]


class Reports:
    """What was given since the last flush and where it lies. Of a partition reports come in the order of its records: the
    producer is idempotent. One thread: the client calls when it is polled."""

    def __init__(self, *, refuse_recreated: bool = True) -> None:
        self._refuse = refuse_recreated
        self.failure: tuple[KafkaError, str] | None = None
        """The first record that Kafka did not take, and its topic."""
        self._offsets: dict[tuple[str, int], list[int]] = {}
        self._callbacks: dict[tuple[str, int], Report] = {}
        self._given: list[tuple[Ints, Ints]] = []
        self._last: dict[tuple[str, int], int] = {}

    def of(self, topic: str, partition: int) -> Report:
        """The function that the client is to call for records of a partition."""
        found = self._callbacks.get((topic, partition))
        if found is None:
            take: Callable[[Any], None] = self._offsets.setdefault((topic, partition), []).append

            def report(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    take(message.offset())
                else:
                    self.failed(error, topic)

            found = self._callbacks[topic, partition] = report
        return found

    def failed(self, error: KafkaError, topic: str) -> None:
        """A record that was not taken; the first one is kept, for it tells why, but what is purged behind it tells nothing."""
        if self.failure is None:
            self.failure = error, topic

    def give(self, routes: Ints, queue_offsets: Ints) -> None:
        """Note messages that were given to the client, in order: numbers of their routes, and offsets in their queues.
        There are none where all were dead letters."""
        if len(routes):
            self._given.append((routes, queue_offsets))

    def placed(self, routes: Sequence[QueueRoute]) -> tuple[Placed, ...]:
        """Where everything given lies; forgets it. ``Unavailable`` if a report did not come; ``Invalid`` if a topic was made
        anew meanwhile: offsets went back."""
        given, self._given = self._given, []
        if not given:
            return ()
        number = np.concatenate([part[0] for part in given])
        queue_offset = np.concatenate([part[1] for part in given])
        places = {
            route: (route.topic, route.partition)
            for route in (routes[at] for at in np.unique(number).tolist())
        }
        index = {place: at for at, place in enumerate(dict.fromkeys(places.values()))}
        by_route = np.zeros(len(routes), np.int64)
        for route, place in places.items():
            by_route[route.number] = index[place]
        target = by_route[number]
        offset = np.empty(len(number), np.int64)
        for place, at in index.items():
            rows = np.flatnonzero(target == at)
            offset[rows] = self._reported(place, len(rows))
        return _runs(routes, number, queue_offset, offset)

    def _reported(self, place: tuple[str, int], count: int) -> Ints:
        reported = self._offsets[place]
        offsets = np.array(reported, np.int64)
        reported.clear()
        if len(offsets) != count:
            raise Unavailable(
                "Kafka did not report every record", topic=place[0], expected=count, found=len(offsets)
            )
        last = self._last.get(place, -1)
        if self._refuse and (int(offsets[0]) <= last or (np.diff(offsets) <= 0).any()):
            raise recreated(
                place[0], f"offset {int(offsets.min())} in partition {place[1]}", f"an offset beyond {last}"
            )
        self._last[place] = int(offsets[-1])
        return offsets


def _runs(routes: Sequence[QueueRoute], number: Ints, queue_offset: Ints, offset: Ints) -> tuple[Placed, ...]:
    """Messages of a queue that are consecutive on both sides, as one each; where these are very many, as a map takes them."""
    order = np.argsort(number, kind="stable")
    number, queue_offset, offset = number[order], queue_offset[order], offset[order]
    goes_on = (np.diff(number) == 0) & (np.diff(queue_offset) == 1) & (np.diff(offset) == 1)
    first = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    counts = np.diff(np.append(first, len(number)))
    owner, begin, at = number[first], queue_offset[first], offset[first]
    made: list[Placed] = []
    edges = np.flatnonzero(np.diff(owner, prepend=-1))
    for low, high in pairwise([*edges.tolist(), len(owner)]):
        route = routes[int(owner[low])]
        runs = {"first": begin[low:high], "messages": counts[low:high], "target_offset": at[low:high]}
        found = map_of_runs(0, 0, route.topic, route.topic_id, route.partition, runs)
        columns = (found.first, found.messages, found.target_offset, found.left_out, found.between)
        made += (
            Placed(
                route.queue, here, count, route.topic, route.partition, there, left, between, route.topic_id
            )
            for here, count, there, left, between in zip(*(c.tolist() for c in columns), strict=True)
        )
    return tuple(made)
