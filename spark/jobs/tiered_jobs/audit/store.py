"""The archive against the consume queues in a broker's store directory. Only reads, and only the ends of each queue."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiered.codec.record.consumequeue import UNIT_BYTES, Units, decode_units, is_pre_blank
from tiered.errors import Invalid, NotFound, Unavailable
from tiered.model import OFF_QUEUE_TOPIC
from tiered_spark.options import parse_options
from tiered_spark.snapshot import Snapshot

if TYPE_CHECKING:
    from tiered_jobs.work import Work

Row = tuple[Any, ...]


def store_differences(
    work: Work, snapshots: Sequence[Snapshot], told: dict[str, Any]
) -> tuple[list[Row], dict[str, int]]:
    """(differences, how many of each kind). ``told`` gets ``store``: queues compared, messages not archived yet.

    A queue that the broker deleted is not a difference: the archive keeps what brokers forget.
    """
    if len(snapshots) != 1:
        raise Invalid(
            "a store is that of one broker", flag="--store", archives=", ".join(str(s.place) for s in snapshots),
            hint="name one archive with --cluster and --broker",
        )  # fmt: skip
    (snapshot,) = snapshots
    options = parse_options(work.options(includeSystemTopics="true"))
    archived = {
        (q.queue.topic, q.queue.queue_id): (q.min_offset, q.max_offset)
        for q in snapshot.view.state.queues()
        if q.generation is not None and q.queue.topic != OFF_QUEUE_TOPIC and options.takes(q.queue.topic)
    }
    rows: list[Row] = []
    compared = behind = there = 0
    place = (snapshot.place.cluster, snapshot.place.broker)
    for topic, queue_id, (low, high) in broker_queues(Path(work.args.store)):
        if not options.takes(topic) or high == 0:
            continue
        there += 1
        mine = archived.get((topic, queue_id))
        if mine is None:
            behind += high - low
            continue
        compared += 1
        behind += max(0, high - max(mine[1], low))
        what, start, end = _difference(mine, (low, high))
        if what:
            detail = f"the broker has [{low}, {high}), the archive [{mine[0]}, {mine[1]})"
            rows.append((what, *place, topic, queue_id, start, end, None, None, detail))
    told["store"] = {"queues": there, "queues_compared": compared, "messages_behind": behind}
    return rows, Counter(row[0] for row in rows)


def _difference(archived: tuple[int, int], broker: tuple[int, int]) -> tuple[str | None, int, int]:
    """What is wrong with a queue's bounds, and the queue offsets that it concerns."""
    if archived[1] > broker[1]:
        return "the archive ends behind the broker's queue", broker[1], archived[1]
    if broker[0] > archived[1]:
        return "the broker deleted messages that are not archived", archived[1], broker[0]
    return None, 0, 0


def broker_queues(store: Path) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """(topic, queue id, [first readable, next) queue offset) of every consume queue of a store. ``NotFound`` if it has none."""
    root = store / "consumequeue"
    hint = "give the directory that holds commitlog and consumequeue; queues in RocksDB are not read"
    if not root.is_dir():
        raise NotFound("no consume queues are here", flag="--store", found=str(store), hint=hint)
    try:
        log = sorted(int(name) for name in os.listdir(store / "commitlog") if name.isdigit())
        for topic in sorted(root.iterdir()):
            for queue in sorted(path for path in topic.iterdir() if path.name.isdigit()):
                yield topic.name, int(queue.name), _bounds(queue, log[0] if log else 0)
    except FileNotFoundError as error:
        raise NotFound(
            "the store changed, or is not a broker's", flag="--store", found=str(error.filename), hint=hint
        ) from error
    except OSError as error:
        raise Unavailable("the store cannot be read", flag="--store", found=str(error), hint=hint) from error


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
