"""What the fold and the block tables know of topics: no message is read, no block is fetched; no object is made for a queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered.archive.state.keys import GAP
from tiered.archive.state.values import ObjectState, gap_table
from tiered.codec.types import Ints
from tiered_spark.options import Options
from tiered_spark.plan import wanted_runs
from tiered_spark.queues import Walked, read_queues, values_of
from tiered_spark.ranges import Range
from tiered_spark.runs import RunTable, blocks_of, objects_of
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import first_wish

REQUESTS = 16
"""Block tables that are asked for at once."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic over all archives, or several together. ``record_bytes`` and ``stored_bytes`` are of the blocks that may hold
    messages of the time range; queues, gaps and ``largest_queue`` (its messages) are whatever the range."""

    queues: int = 0
    largest_queue: int = 0
    record_bytes: int = 0
    stored_bytes: int = 0
    gaps: int = 0
    gap_messages: int = 0


FACTS_DTYPE = np.dtype([(name, "<i8") for name in TopicFacts.__slots__])
"""``TopicFacts`` of many topics."""

_LARGEST = "largest_queue"


@dataclass(frozen=True, slots=True)
class Facts:
    """Topics, each once, with what is known of each (``FACTS_DTYPE``); and the store times (ms, both included) that their
    messages lie in, ``None`` without any."""

    topics: pa.StringArray
    table: npt.NDArray[np.void]
    times: tuple[int, int] | None

    def of(self, names: Collection[str]) -> dict[str, TopicFacts]:
        """Of some topics."""
        rows = np.flatnonzero(self._named(names))
        found = zip(self.topics.take(pa.array(rows)).to_pylist(), self.table[rows].tolist(), strict=True)
        return {topic: TopicFacts(*facts) for topic, facts in found}

    def without(self, names: Collection[str] = ()) -> TopicFacts:
        """Of all others together."""
        rest = self.table[~self._named(names)]
        sums = {name: int(rest[name].sum()) for name in FACTS_DTYPE.names or ()}
        return TopicFacts(**{**sums, _LARGEST: int(rest[_LARGEST].max(initial=0))})

    def others(self, names: Collection[str], most: int) -> list[str]:
        """Names of other topics, ``most`` of them, in order."""
        rest = self.topics.filter(pa.array(~self._named(names)))
        found: list[str] = rest.take(
            pc.select_k_unstable(rest, max(0, most), [("", "ascending")])
        ).to_pylist()
        return found

    def _named(self, names: Collection[str]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = pc.is_in(
            self.topics, value_set=pa.array(list(names), pa.string())
        ).to_numpy(zero_copy_only=False)
        return found


def gather(snapshots: Iterable[Snapshot], options: Options) -> Facts:
    """One request for each object that holds a wanted run."""
    times = options.times
    low: list[int] = []
    high: list[int] = []
    found: list[tuple[pa.StringArray, npt.NDArray[np.void]]] = []
    for snapshot in snapshots:
        walked = read_queues(snapshot.view.state, snapshot.choice(options), "messages")
        facts = np.zeros(len(walked.queues.topics), FACTS_DTYPE)
        np.add.at(facts["queues"], walked.queues.topic, 1)
        np.maximum.at(facts[_LARGEST], walked.queues.topic, walked.columns["messages"])
        _add_gaps(facts, snapshot, options, walked)
        runs = wanted_runs(snapshot, options, first_wish(options))
        if len(runs):
            low.append(max(times.low, int(runs.records["min_store_time"].min())))
            high.append(min(times.high, int(runs.records["max_store_time"].max())))
        topic_of = pc.index_in(runs.queues.topics, value_set=walked.queues.topics).to_numpy()
        for topics, raw, stored in _sizes(snapshot, runs, times):
            np.add.at(facts["record_bytes"], topic_of[topics], raw)
            np.add.at(facts["stored_bytes"], topic_of[topics], stored)
        found.append((walked.queues.topics, facts))
    topics, table = _together(found)
    return Facts(topics, table, (min(low), max(high)) if low else None)


def _add_gaps(facts: npt.NDArray[np.void], snapshot: Snapshot, options: Options, walked: Walked) -> None:
    """Those of current generations."""
    for gaps in values_of(snapshot.view.state, GAP, snapshot.choice(options)):
        rows = gaps.queues.rows_in(walked.queues)
        mine = np.flatnonzero(rows >= 0)
        mine = mine[walked.queues.generation[rows[mine]] == gaps.queues.generation[mine]]
        topics = walked.queues.topic[rows[mine]]
        lost = gap_table(gaps.values)["end"].astype(np.int64) - gaps.offsets
        np.add.at(facts["gaps"], topics, 1)
        np.add.at(facts["gap_messages"], topics, lost[mine])


def _together(
    found: list[tuple[pa.StringArray, npt.NDArray[np.void]]],
) -> tuple[pa.StringArray, npt.NDArray[np.void]]:
    """Facts of several archives: a topic may be in many."""
    every = pa.concat_arrays([pa.array([], pa.string()), *(topics for topics, _ in found)]).unique()
    table = np.zeros(len(every), FACTS_DTYPE)
    for topics, facts in found:
        rows = pc.index_in(topics, value_set=every).to_numpy()
        for name in FACTS_DTYPE.names or ():
            add = np.maximum if name == _LARGEST else np.add
            table[name][rows] = add(table[name][rows], facts[name])
    return every, table


def _sizes(snapshot: Snapshot, runs: RunTable, times: Range) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Topics (indexes of ``runs.queues.topics``) with raw and stored bytes of their blocks, object by object. ``runs`` are
    sorted so where they lie."""
    refs, mine = objects_of(runs)
    order = np.argsort(mine, kind="stable")
    edges = np.searchsorted(mine[order], np.arange(len(refs) + 1))
    runs.sort(order)
    step = 64 * REQUESTS
    with ThreadPoolExecutor(REQUESTS, "tables") as pool:
        for start in range(0, len(refs), step):
            items = snapshot.objects(refs[start : start + step])
            cuts = edges[start : start + step + 1].tolist()
            parts = [runs.part(first, end) for first, end in pairwise(cuts)]
            yield from pool.map(partial(_of_object, snapshot, times), items, parts)


def _of_object(
    snapshot: Snapshot, times: Range, item: ObjectState, runs: RunTable
) -> tuple[Ints, Ints, Ints]:
    run, block = blocks_of(runs)
    blocks = snapshot.view.objects.block_table(item)[block]
    inside = (blocks["min_store_time"] <= times.high) & (blocks["max_store_time"] >= times.low)
    topic_of = runs.queues.topic.astype(np.int64)[runs.queue[run]]
    topics, mine = np.unique(topic_of[inside], return_inverse=True)
    raw, stored = np.zeros((2, len(topics)), np.int64)
    np.add.at(raw, mine, blocks["raw_length"][inside])
    np.add.at(stored, mine, blocks["stored_length"][inside])
    return topics, raw, stored
