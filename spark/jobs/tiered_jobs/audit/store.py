"""The archive against the consume queues in a broker's store directory. Only reads, and only the ends of each queue."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiered.archive.state.aliases import lite_queue_table
from tiered.codec.format.aliases import LITE_QUEUE_ID
from tiered.codec.record.consumequeue import UNIT_BYTES, Units, decode_units, is_pre_blank
from tiered.codec.record.lite import is_lite
from tiered.errors import Invalid, NotFound, Unavailable
from tiered_spark.options import parse_options
from tiered_spark.queues import CHUNK
from tiered_spark.snapshot import Snapshot

if TYPE_CHECKING:
    from tiered_jobs.work import Work

Row = tuple[Any, ...]


def store_differences(
    work: Work, snapshots: Sequence[Snapshot], told: dict[str, Any]
) -> tuple[list[Row], dict[str, int]]:
    """(differences, how many of each kind). ``told`` gets ``store``: queues compared, messages not archived yet.

    A queue that the broker deleted is not a difference: the archive keeps what brokers forget. Errors as of ``check_store``.
    """
    check_store(work, snapshots)
    (snapshot,) = snapshots
    options = parse_options(work.options(includeSystemTopics="true"))
    rows: list[Row] = []
    kinds: Counter[str] = Counter()
    compared = behind = there = 0
    place = (snapshot.place.cluster, snapshot.place.broker)
    mine = (q for q in broker_queues(Path(work.args.store)) if options.takes(q.topic) and q.end)
    while some := list(islice(mine, CHUNK)):
        there += len(some)
        for queue, archived in zip(some, _archived(snapshot, some), strict=True):
            if archived is None:
                behind += queue.end - queue.first
                continue
            compared += 1
            behind += max(0, queue.end - max(archived[1], queue.first))
            what, start, end = _difference(archived, (queue.first, queue.end))
            if what is None:
                continue
            kinds[what] += 1
            if len(rows) < work.args.limit:
                told_of = (
                    f"the broker has [{queue.first}, {queue.end}), the archive [{archived[0]}, {archived[1]})"
                )
                rows.append((what, *place, queue.topic, queue.queue_id, start, end, None, None, told_of))
    told["store"] = {"queues": there, "queues_compared": compared, "messages_behind": behind}
    return rows, kinds


def check_store(work: Work, snapshots: Sequence[Snapshot]) -> None:
    """``Invalid`` for a store beside several archives; ``NotFound`` for one without consume queues."""
    if len(snapshots) != 1:
        raise Invalid(
            "a store is that of one broker", flag="--store", archives=", ".join(str(s.place) for s in snapshots),
            hint="name one archive with --cluster and --broker",
        )  # fmt: skip
    next(broker_queues(Path(work.args.store)))


def _archived(snapshot: Snapshot, some: Sequence[BrokerQueue]) -> list[tuple[int, int] | None]:
    """Of each queue [first, next) queue offset in the archive; ``None``: it has nothing of it."""
    topics, ids = [queue.topic for queue in some], np.array([queue.queue_id for queue in some])
    found, _ = snapshot.view.state.queue_table(topics, ids)
    lite = np.flatnonzero((ids == LITE_QUEUE_ID) & np.fromiter(map(is_lite, topics), np.bool_, len(topics)))
    if len(lite):  # the archive keeps them as further names of messages in other queues
        found = found.copy()
        found[lite], _ = lite_queue_table(snapshot.view.state.view, [topics[row] for row in lite.tolist()])
    ends = zip(found["min_offset"].tolist(), found["max_offset"].tolist(), strict=True)
    return [
        pair if current else None
        for pair, current in zip(ends, (found["generation"] > 0).tolist(), strict=True)
    ]


def _difference(archived: tuple[int, int], broker: tuple[int, int]) -> tuple[str | None, int, int]:
    """What is wrong with a queue's bounds, and the queue offsets that it concerns."""
    if archived[1] > broker[1]:
        return "the archive ends behind the broker's queue", broker[1], archived[1]
    if broker[0] > archived[1]:
        return "the broker deleted messages that are not archived", archived[1], broker[0]
    return None, 0, 0


@dataclass(frozen=True, slots=True)
class BrokerQueue:
    """A consume queue: its first readable queue offset, and the one behind its last."""

    topic: str
    queue_id: int
    first: int
    end: int


def broker_queues(store: Path) -> Iterator[BrokerQueue]:
    """Every consume queue of a store. ``NotFound`` if it has none."""
    root = store / "consumequeue"
    hint = "give the directory that holds commitlog and consumequeue; queues in RocksDB are not read"
    none = NotFound("no consume queues are here", flag="--store", found=str(store), hint=hint)
    if not root.is_dir():
        raise none
    some = False
    try:
        log = sorted(int(name) for name in os.listdir(store / "commitlog") if name.isdigit())
        for topic in sorted(os.listdir(root)):
            for name in sorted(filter(str.isdigit, os.listdir(root / topic)), key=int):
                some = True
                yield BrokerQueue(topic, int(name), *_bounds(root / topic / name, log[0] if log else 0))
    except FileNotFoundError as error:
        raise NotFound(
            "the store changed, or is not a broker's", flag="--store", found=str(error.filename), hint=hint
        ) from error
    except OSError as error:
        raise Unavailable("the store cannot be read", flag="--store", found=str(error), hint=hint) from error
    if not some:
        raise none


def _bounds(queue: Path, first_physical: int) -> tuple[int, int]:
    """Of one consume queue: its first unit that points at or behind ``first_physical``, and its end."""
    files = sorted((int(path.name), path) for path in queue.iterdir() if path.name.isdigit())
    if not files:
        return 0, 0
    end = files[0][0] // UNIT_BYTES
    for base, path in reversed(files):
        count = _first(path, lambda unit: unit["size"] <= 0)
        if count:
            end = base // UNIT_BYTES + count
            break
    for base, path in files:
        units = path.stat().st_size // UNIT_BYTES
        found = _first(
            path, lambda unit: (unit["size"] <= 0) | ((unit["phys"] >= first_physical) & ~is_pre_blank(unit))
        )
        if found < units:
            return min(base // UNIT_BYTES + found, end), end
    return end, end


def _first(path: Path, wanted: Any) -> int:
    """Number of the first unit of a file that is ``wanted``, where all behind it are too; the number of units if none is."""
    low, high = 0, path.stat().st_size // UNIT_BYTES
    with path.open("rb") as file:
        while low < high:
            middle = (low + high) // 2
            file.seek(middle * UNIT_BYTES)
            unit: Units = decode_units(file.read(UNIT_BYTES))
            low, high = (low, middle) if bool(wanted(unit)[0]) else (middle + 1, high)
    return low
