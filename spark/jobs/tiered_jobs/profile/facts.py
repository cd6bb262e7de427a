"""What the fold and the block tables know of topics: no message is read, no block is fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.state.values import RunState
from tiered.model import MessageQueue, ObjectRef
from tiered_spark.options import Options
from tiered_spark.plan import wanted_runs
from tiered_spark.ranges import Range
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import first_wish

REQUESTS = 16
"""Block tables that are asked for at once."""


@dataclass(slots=True)
class TopicFacts:
    """A topic over all archives. ``record_bytes`` and ``stored_bytes`` are of the blocks that may hold messages of the time
    range; queues, gaps and ``largest_queue`` (its messages) are whatever the range."""

    queues: int = 0
    largest_queue: int = 0
    record_bytes: int = 0
    stored_bytes: int = 0
    gaps: int = 0
    gap_messages: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Topics by name, and the store times (ms, both included) that their messages lie in; ``None`` without any."""

    topics: dict[str, TopicFacts]
    times: tuple[int, int] | None


def gather(snapshots: Iterable[Snapshot], options: Options) -> Facts:
    """One request for each object that holds a wanted run."""
    topics: dict[str, TopicFacts] = {}
    times = options.times
    low: list[int] = []
    high: list[int] = []
    for snapshot in snapshots:
        state = snapshot.view.state
        generations: dict[MessageQueue, int] = {}
        for queue in state.queues():
            if queue.generation is None or not snapshot.shows(queue.queue.topic, options):
                continue
            facts = topics.setdefault(queue.queue.topic, TopicFacts())
            facts.queues += 1
            facts.largest_queue = max(facts.largest_queue, queue.messages)
            generations[queue.queue] = queue.generation
        for gap in state.gaps():
            if generations.get(gap.queue) == gap.generation:
                topics[gap.queue.topic].gaps += 1
                topics[gap.queue.topic].gap_messages += gap.end - gap.start
        runs = list(wanted_runs(snapshot, options, first_wish(options)))
        low += [max(times.low, run.min_store_time) for run in runs]
        high += [min(times.high, run.max_store_time) for run in runs]
        for topic, (raw, stored) in _sizes(snapshot, runs, times):
            topics[topic].record_bytes += raw
            topics[topic].stored_bytes += stored
    return Facts(topics, (min(low), max(high)) if low else None)


def _sizes(
    snapshot: Snapshot, runs: Sequence[RunState], times: Range
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Topics with raw and stored bytes of their blocks, object by object."""
    by_object: dict[ObjectRef, list[RunState]] = {}
    for run in runs:
        by_object.setdefault(run.object, []).append(run)
    pairs, step = list(by_object.items()), 64 * REQUESTS
    with ThreadPoolExecutor(REQUESTS, "tables") as pool:
        for start in range(0, len(pairs), step):
            some = pairs[start : start + step]
            for found in pool.map(lambda pair: _of_object(snapshot, pair[0], pair[1], times), some):
                yield from found


def _of_object(
    snapshot: Snapshot, ref: ObjectRef, runs: Sequence[RunState], times: Range
) -> list[tuple[str, tuple[int, int]]]:
    table = snapshot.view.objects.block_table(snapshot.object(ref))
    topics = sorted({run.queue.topic for run in runs})
    place = {topic: number for number, topic in enumerate(topics)}
    counts = [run.block_count for run in runs]
    blocks = np.concatenate([np.arange(r.first_block, r.end_block) for r in runs])
    topic_of = np.repeat([place[run.queue.topic] for run in runs], counts)
    mine = table[blocks]
    inside = (mine["min_store_time"] <= times.high) & (mine["max_store_time"] >= times.low)

    def summed(name: str) -> npt.NDArray[np.int64]:
        weights = mine[name][inside].astype(np.float64)  # exact up to 2⁵³
        return np.bincount(topic_of[inside], weights, len(topics)).astype(np.int64)

    sizes = zip(summed("raw_length").tolist(), summed("stored_length").tolist(), strict=True)
    return list(zip(topics, sizes, strict=True))
