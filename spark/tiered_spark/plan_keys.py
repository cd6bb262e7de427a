"""Planning of a search for keys: objects that hold none of them are left out before a task begins, and of a segment all rows
but those between the first and the last that has one.

Streams leave this to their tasks: what a batch appended is few objects.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import is_segment
from tiered.archive.state.values import ObjectState
from tiered.codec.format.sections import SectionKind
from tiered.codec.types import Ints
from tiered.errors import Corrupt
from tiered.model import OFF_QUEUE_TOPIC
from tiered.settings import MIB
from tiered_spark.noted import note
from tiered_spark.pruning import passing
from tiered_spark.runs import RunTable, objects_of
from tiered_spark.snapshot import ArchivePlace, Snapshot, open_objects, requests
from tiered_spark.wanted import Wanted

log = logging.getLogger("tiered.spark")

Rows = npt.NDArray[Any]

MAX_FILTERS = 4096
"""Objects whose filters are read while planning: about 8 s, at 30 ms a request. Filters of more are left to the tasks."""

MAX_FILTER_BYTES = 512 * MIB
"""And their bytes: filters of about 400 M keys."""

MAX_LOOKS = 100_000
"""Topics of objects × keys that are looked for in filters while planning: about 4 s of computing. Of more the same."""

MAX_HASHES = 4
"""Hashes that are looked for in an object's index after its filter let them pass. An object with more is left to a task."""

CACHE_BYTES = 128 * MIB
"""Filters and indexes of one archive that a process keeps for its next plan; 10 M keys take about 25 MiB."""

MAX_CACHES = 4

REQUESTS = 16
"""At once: as many as the store keeps connections."""


@functools.lru_cache(maxsize=MAX_CACHES)
def _objects(place: ArchivePlace) -> ObjectReader:
    """Kept while the process lives."""
    return open_objects(place, CACHE_BYTES)


def holding_runs(snapshot: Snapshot, runs: RunTable, wanted: Wanted) -> RunTable:
    """Those in objects that hold a wanted key, by the objects' key filters and, where these let it pass, their indexes.

    A segment's columns say which rows: of a run in one only the queue offsets from the first of them to the last.

    All of them if no key is wanted, or if this is left to the tasks. A damaged object stays: its task does as ``onDamage``
    says.
    """
    keys = wanted.keys
    if keys is None or not len(runs):
        return runs
    refs, mine = objects_of(runs)
    width = len(runs.queues.topics)
    pairs = np.unique(mine * width + runs.queues.topic[runs.queue])
    looks = len(pairs) * len(keys)
    items = snapshot.objects(refs) if len(refs) <= MAX_FILTERS and looks <= MAX_LOOKS else []
    size = sum(
        item.sections[SectionKind.KEY_FILTER][1] for item in items if SectionKind.KEY_FILTER in item.sections
    )
    if not items or size > MAX_FILTER_BYTES:
        log.info("keys in %s are left to tasks: objects=%d looks=%d", snapshot.place, len(refs), looks)
        return runs
    topics = runs.queues.topics.take(pa.array(pairs % width)).to_pylist()
    names = [topics[a:b] for a, b in _stretches(pairs // width, len(refs))]
    before = requests.so_far()
    with ThreadPoolExecutor(REQUESTS, "keys") as pool:
        found = list(pool.map(partial(_holds, snapshot.place, keys), items, names))
    asked, received = np.subtract(requests.so_far(), before).tolist()
    without = sum(not (each if isinstance(each, bool) else len(each)) for each in found)
    note("keys", snapshot.place, objects=len(refs), without=without, requests=asked, bytes=received)
    return _narrowed(runs, mine, found)


def _narrowed(runs: RunTable, mine: Ints, found: Sequence[bool | Rows]) -> RunTable:
    """Runs of objects that hold a wanted key. ``mine``: each one's object, an index of what was ``found`` of it. Where that
    is rows, a run without any is left out, and another begins with its first and ends with its last."""
    keep, records = np.array([each is True for each in found], np.bool_)[mine], runs.records.copy()
    order = np.argsort(mine, kind="stable")
    for (first, end), rows in zip(_stretches(mine[order], len(found)), found, strict=True):
        if isinstance(rows, bool):
            continue
        of_object = order[first:end]
        queue = runs.queue[of_object]
        for place in np.unique(rows[["queue_id", "generation"]]):
            queue_id, generation = place.tolist()
            same = (rows["queue_id"] == queue_id) & (rows["generation"] == generation)
            offsets = np.sort(rows["queue_offset"][same])
            its = (runs.queues.queue_id[queue] == queue_id) & (runs.queues.generation[queue] == generation)
            at = of_object[its]
            low, high = (np.searchsorted(offsets, records[name][at]) for name in ("start", "end"))
            at, low, high = at[low < high], low[low < high], high[low < high]
            records["start"][at], records["end"][at], keep[at] = offsets[low], offsets[high - 1] + 1, True
    return replace(runs, records=records).only(keep)


def _stretches(ascending: Ints, count: int) -> list[tuple[int, int]]:
    """Where each number from 0 to ``count`` begins and ends in a sorted array."""
    edges = np.searchsorted(ascending, np.arange(count + 1)).tolist()
    return list(pairwise(edges))


def _holds(
    place: ArchivePlace, keys: frozenset[str], item: ObjectState, topics: Sequence[str]
) -> bool | Rows:
    """Whether an object's messages in these topics may have a wanted key; of a segment, which ones have (``KEY_ROW_DTYPE``)."""
    objects = _objects(place)
    try:
        if is_segment(item):
            if OFF_QUEUE_TOPIC in topics:
                return True
            return np.concatenate([objects.key_rows(item, t, k) for t, k in product(topics, keys)])
        found = objects.key_filter(item)
        if found is None or OFF_QUEUE_TOPIC in topics:
            return found is not None
        hashes = passing(found, topics, keys)
        if len(hashes) > MAX_HASHES:
            return True
        return any(len(objects.key_entries(item, hashed)) for hashed in hashes)
    except Corrupt:
        return True
