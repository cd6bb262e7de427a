"""What Kafka reports of records: offsets of some of them, in the order in which they were given; made into runs by arrays.

Of a part's records of a queue the first and the last are asked for, and of the others only failures: a call for each record
would cost more than to make it. In a transaction not even these, for the client commits none of which a record failed. Where
two that are asked for lie as far apart as there were records between them, all of these lie there one by one: none failed, they
stay in order (the producer is idempotent), and nothing else has room. Else somebody else's records are among them. The run is a
wide one then, exact at both ends, and from then on each record of that partition is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tiered.codec.types import Bools, Ints
from tiered.errors import Unavailable
from tiered.sink.base import Placed
from tiered.sink.kafka.placing import UNKNOWN, runs_of
from tiered.sink.kafka.routes import QueueRoute
from tiered.sink.kafka.topics import recreated

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

Report = Callable[["KafkaError | None", "Message"], object]
Place = tuple[str, int]
"""A topic and one of its partitions."""


class Reports:
    """What was given since the last flush and where it lies. Of a partition reports come in the order of its records: the
    producer is idempotent. One thread: the client calls when it is polled."""

    def __init__(
        self, *, refuse_recreated: bool = True, sparse: bool = True, committed: bool = False
    ) -> None:
        """``sparse``: whether not each record need be asked for; ``committed``: whether what is ``placed`` counts only once its
        transaction is committed."""
        self._refuse = refuse_recreated
        self._sparse = sparse
        self._offsets: dict[Place, list[int]] = {}
        self._callbacks: dict[Place, Report] = {}
        self._given: list[tuple[Ints, Ints, Bools]] = []
        self._last: dict[Place, int] = {}
        self._mixed: set[Place] = set()
        """Partitions that somebody else writes to as well."""
        self._outcomes: dict[KafkaError | None, Message] = {}
        self.rest: Report | None = None if committed else self._outcomes.setdefault
        """The function that the client is to call for records whose offset is not asked for: it keeps the first record of each
        outcome, without a step of Python. ``None``: none need be called."""

    def of(self, topic: str, partition: int) -> Report:
        """The function that the client is to call for records of a partition whose offset is asked for."""
        found = self._callbacks.get((topic, partition))
        if found is None:
            take: Callable[[Any], None] = self._offsets.setdefault((topic, partition), []).append

            def report(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    take(message.offset())
                else:
                    self.failed(error, message)

            found = self._callbacks[topic, partition] = report
        return found

    def failed(self, error: KafkaError, message: Message) -> None:
        """A record that was not taken."""
        self._outcomes.setdefault(error, message)

    @property
    def failure(self) -> tuple[KafkaError, str] | None:
        """The first record that Kafka did not take, and its topic: it tells why, but what is purged behind it tells nothing."""
        for error, message in self._outcomes.items():
            if error is not None:
                return error, message.topic() or ""
        return None

    def asked(self, places: Sequence[Place], routes: Ints) -> Bools:
        """Which messages of a part are to be reported with their offsets, by the index of each one's route in ``places``: the
        first and the last of each, and all where offsets cannot be told from others."""
        if not self._sparse:
            return np.ones(len(routes), bool)
        dense = np.array([place in self._mixed for place in places], bool)
        chosen: Bools = dense[routes] if len(places) else np.zeros(0, bool)
        first = np.unique(routes, return_index=True)[1]
        last = len(routes) - 1 - np.unique(routes[::-1], return_index=True)[1]
        chosen[first] = chosen[last] = True
        return chosen

    def give(self, routes: Ints, queue_offsets: Ints, asked: Bools) -> None:
        """Note messages that were given to the client, in order: numbers of their routes, offsets in their queues, and which of
        them are reported with their offsets. There are none where all were dead letters."""
        if len(routes):
            self._given.append((routes, queue_offsets, asked))

    def placed(self, routes: Sequence[QueueRoute]) -> tuple[Placed, ...]:
        """Where everything given lies, once the client has nothing left and there is no ``failure``; forgets it.
        ``Unavailable`` if a report did not come; ``Invalid`` if a topic was made anew meanwhile: offsets went back."""
        given, self._given = self._given, []
        self._outcomes.clear()
        if not given:
            return ()
        number, queue_offset, asked = (np.concatenate(columns) for columns in zip(*given, strict=True))
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
            offset[rows] = self._reported(place, asked[rows])
        return runs_of(routes, number, queue_offset, offset)

    def _reported(self, place: Place, asked: Bools) -> Ints:
        """The offset of each record of a partition, ``UNKNOWN`` between somebody else's."""
        reported = self._offsets[place]
        offsets = np.array(reported, np.int64)
        reported.clear()
        at = np.flatnonzero(asked)
        if len(offsets) != len(at):
            raise Unavailable(
                "Kafka did not report every record", topic=place[0], expected=len(at), found=len(offsets)
            )
        last = self._last.get(place, -1)
        steps = np.diff(offsets)
        if self._refuse and (int(offsets[0]) <= last or (steps <= 0).any()):
            raise recreated(
                place[0], f"offset {int(offsets.min())} in partition {place[1]}", f"an offset beyond {last}"
            )
        self._last[place] = int(offsets[-1])
        before = np.cumsum(asked) - 1  # which of those asked for is this one, or the last before it
        found: Ints = offsets[before] + np.arange(len(asked)) - at[before]
        mixed = np.append(steps != np.diff(at), False)
        if mixed.any():
            self._mixed.add(place)
            found[mixed[before] & ~asked] = UNKNOWN
        return found
