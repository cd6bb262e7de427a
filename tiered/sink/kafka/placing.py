"""Messages of queues and the offsets that they came to lie at, made into runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tiered.archive.state.offsetmap import map_of_runs
from tiered.codec.types import Ints
from tiered.sink.base import Placed
from tiered.sink.kafka.routes import QueueRoute
from tiered.sink.keptmaps import placed_of

UNKNOWN = -1
"""The offset of a message that lies somewhere between the two of its queue around it."""


def runs_of(
    routes: Sequence[QueueRoute], number: Ints, queue_offset: Ints, offset: Ints
) -> tuple[Placed, ...]:
    """Messages of a queue that are consecutive on both sides, as one each, and those with an ``UNKNOWN`` offset with the two
    around them, which every queue has; where these are very many, as a map takes them. A message each: the ``number`` of its
    route, its offset in its queue, and at the destination."""
    order = np.argsort(number, kind="stable")
    number, queue_offset, offset = number[order], queue_offset[order], offset[order]
    unknown = offset == UNKNOWN
    wide = np.concatenate(([False], unknown[1:] | unknown[:-1]))  # from the message before to this one
    one_by_one = (np.diff(queue_offset) == 1) & (np.diff(offset) == 1)
    beside = wide[:-1] | np.append(
        wide[2:], False
    )  # a wide run begins and ends at the offsets nearest to what is unknown
    goes_on = (np.diff(number) == 0) & (wide[1:] | one_by_one & ~beside)
    first = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    counts = np.diff(np.append(first, len(number)))
    last = first + counts - 1
    owner, begin, at = number[first], queue_offset[first], offset[first]
    left_out = queue_offset[last] - begin + 1 - counts
    between = np.maximum(
        offset[last] - at + 1 - counts, 0
    )  # a topic that was made anew meanwhile begins at 0 again
    made: list[Placed] = []
    edges = np.flatnonzero(np.diff(owner, prepend=-1))
    for low, high in pairwise([*edges.tolist(), len(owner)]):
        route, part = routes[int(owner[low])], slice(low, high)
        runs = {
            "first": begin[part], "messages": counts[part], "left_out": left_out[part],
            "target_offset": at[part], "between": between[part],
        }  # fmt: skip
        found = map_of_runs(0, 0, route.topic, route.topic_id, route.partition, runs)
        made += placed_of(route.queue, found)
    return tuple(made)
