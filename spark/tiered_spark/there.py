"""Whether the store still has what a plan of the past names: what it gave up since is said before any task begins."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.log.asof import oldest_whole
from tiered.archive.state.keys import object_key
from tiered.archive.state.values import ObjectState, unpack_object
from tiered.errors import NotFound
from tiered.metadata.base import MetadataView
from tiered_spark.choice import scope_of
from tiered_spark.options import Options
from tiered_spark.runs import RunTable, objects_of
from tiered_spark.snapshot import Snapshot

MOST_ASKED = 256
"""Requests that one plan spends on this. Objects are given up about in their order, so the oldest are asked for; of more, some
of the others. What is missed is met by a task, whose error says to run the query again."""

AT_ONCE = 16


def check_there(snapshot: Snapshot, runs: RunTable, options: Options) -> None:
    """Of a snapshot of the past: ``NotFound`` if an object that ``runs`` lie in was given up since; it names the oldest commit
    that can still be read. Of the newest state nothing is asked."""
    if options.as_of_commit is None and options.as_of_ms is None:
        return
    refs, _ = objects_of(runs)
    unsure = _given_up(snapshot, snapshot.objects(refs), options)
    if not unsure:
        return
    with ThreadPoolExecutor(AT_ONCE, "there") as pool:
        gone = next((key for key in pool.map(lambda key: _absent(snapshot, key), unsure) if key), None)
    if gone is not None:
        oldest = oldest_whole(snapshot.view.log, snapshot.commit)
        raise NotFound(
            "the archive as it was then cannot be read any more: an object that it named is not there",
            hint=f"commit {oldest} is the oldest that can be chosen: "
            "what was the head within gc.snapshot_retention_ms can be read",
            archive=str(snapshot.place), as_of=snapshot.commit, object=gone,  # a ``key`` has a hint of its own (``plainly``)
        )  # fmt: skip


def _given_up(snapshot: Snapshot, items: Sequence[ObjectState], options: Options) -> list[str]:
    """Keys of objects that the newest state does not need: those that may be gone, the oldest first."""
    items = [item for item in items if item.path]
    now = _newest(snapshot, options).get_many([object_key(item.ref) for item in items])
    keys = [
        snapshot.view.keys.key(item.path)
        for item, value in zip(items, now, strict=True)
        if value is None or unpack_object(item.ref, value).retired_by is not None
    ]
    if len(keys) <= MOST_ASKED:
        return keys
    first, rest = keys[: MOST_ASKED // 2], keys[MOST_ASKED // 2 :]
    return first + [rest[at] for at in np.linspace(0, len(rest) - 1, MOST_ASKED // 2).astype(int).tolist()]


def _newest(snapshot: Snapshot, options: Options) -> MetadataView:
    """The end of the log: as it was when the snapshot was opened, if it was looked at then."""
    if snapshot.newest is not None:
        return snapshot.newest.state.view
    store = PartialStore(scope_of(options))
    snapshot.view.log.fold(store)
    return store.snapshot()


def _absent(snapshot: Snapshot, key: str) -> str | None:
    try:
        snapshot.reader.provider.head(key)
    except NotFound:
        return key
    return None
