"""Sinks that retention waits for: a message that one of them was not given yet stays, whatever its age."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiered.archive.rewrite.histories import Histories
from tiered.archive.rewrite.policy import RequiredSink
from tiered.archive.state.keys import topic_of
from tiered.archive.state.sinks import NOWHERE, SinkState, sink, sink_queues_of
from tiered.archive.state.walking import QUEUE_ID_BYTES
from tiered.codec.types import Ints
from tiered.metadata.base import MetadataView

EVERYTHING_GIVEN = 1 << 62


def given_up_to(view: MetadataView, seen: Histories, sinks: Sequence[RequiredSink]) -> Ints:
    """Of each generation the queue offset below which every required sink has everything: of current ones alone, for sinks read
    no others. A sink of which the archive knows nothing has nothing."""
    found = np.full(len(seen.generations), EVERYTHING_GIVEN, np.int64)
    topics = [topic_of(queue[:-QUEUE_ID_BYTES]) for queue in seen.queues]
    for required in sinks:
        taken = np.fromiter(map(required.takes, topics), np.bool_, len(topics))
        rows = np.flatnonzero(seen.current & taken[seen.queue])
        if len(rows):
            found[rows] = np.minimum(found[rows], _of(view, seen, rows, required))
    return found


def _of(view: MetadataView, seen: Histories, rows: Ints, required: RequiredSink) -> Ints:
    known = sink(view, required.sink_id)
    if known is None:
        return np.zeros(len(rows), np.int64)
    at = sink_queues_of(view, required.sink_id, [seen.queues[n] for n in seen.queue[rows].tolist()])
    given = np.array([0 if one is None else one.next for one in at], np.int64)
    place = np.array(
        [NOWHERE - 1 if one is None or one.physical is None else one.physical for one in at], np.int64
    )
    generations = seen.generations[rows]
    lineage = generations["lineage"].astype(np.int64)
    behind = (
        (lineage == known.lineage)
        & (place >= NOWHERE)
        & (generations["birth_physical"].astype(np.int64) > place)
    )
    given[(lineage > known.lineage) | behind] = 0  # it was given another life of the queue
    return np.minimum(given, _rewound(seen, known)[rows])


def _rewound(seen: Histories, known: SinkState) -> Ints:
    """Where each generation was cut by rewinds that the sink has not heard of: from there on it is given again."""
    found = np.full(len(seen.generations), EVERYTHING_GIVEN, np.int64)
    cut = seen.items["closed_by"] > known.looked
    np.minimum.at(found, seen.row[cut], seen.items["start"][cut].astype(np.int64))
    return found
