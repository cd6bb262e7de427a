"""What a scan reads: runs of the fold that may hold wanted messages, packed into partitions.

Only the fold is looked at, no object: a run's queue, offsets, times and sizes are in it. Runs of one object stay together and
in their order, so that an executor reads neighbouring bytes in one request. Plans of many queues are made of arrays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, KeysView, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import InputPartition

from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.record.systemtopics import is_system_topic
from tiered.codec.types import Ints
from tiered.errors import NotFound
from tiered.model import ObjectRef
from tiered_spark.options import Options, matches
from tiered_spark.positions import StreamBatch
from tiered_spark.queues import Queues
from tiered_spark.runs import RunTable, newer_runs, objects_of, read_runs
from tiered_spark.snapshot import ArchivePlace, Snapshot
from tiered_spark.wanted import Wanted

log = logging.getLogger("tiered.spark")

MAX_PIECES = 20_000
"""Runs of one partition, whatever their size."""

CUT_AT_ONCE = 1 << 17
"""Runs that are cut into pieces together."""

SEALED_LEVEL = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive blocks of one run, counted in the object. ``end_block - first_block`` may be the whole run."""

    run: RunState
    first_block: int
    end_block: int

    @property
    def whole(self) -> bool:
        """Whether all of the run is meant."""
        return self.end_block - self.first_block == self.run.block_count


@dataclass(frozen=True, slots=True)
class Portion:
    """Pieces of one object, ascending."""

    object: ObjectState
    pieces: tuple[Piece, ...]


class ScanPartition(InputPartition):
    """What one task reads. Carries no secret and no handle: executors open the store themselves.

    Travels as arrays: runs, and per piece its run (an index), first block and end block. ``commits``: of a merged object only
    messages that these commits appended are meant.
    """

    def __init__(
        self,
        place: ArchivePlace,
        objects: dict[ObjectRef, ObjectState],
        runs: RunTable,
        run_of: npt.NDArray[np.int32],
        first: npt.NDArray[np.int32],
        end: npt.NDArray[np.int32],
    ) -> None:
        super().__init__(None)
        self.place = place
        self.commits: StreamBatch | None = None
        self._objects, self._runs = objects, runs
        self._run_of, self._first, self._end = run_of, first, end

    @property
    def objects(self) -> KeysView[ObjectRef]:
        """Those that its runs lie in."""
        return self._objects.keys()

    @property
    def portions(self) -> tuple[Portion, ...]:
        """Its pieces by object. Made anew each time."""
        runs = list(self._runs)
        by_object: dict[ObjectRef, list[Piece]] = {}
        for run, first, end in zip(
            self._run_of.tolist(), self._first.tolist(), self._end.tolist(), strict=True
        ):
            by_object.setdefault(runs[run].object, []).append(Piece(runs[run], first, end))
        return tuple(Portion(self._objects[ref], tuple(found)) for ref, found in by_object.items())


def wanted_runs(snapshot: Snapshot, options: Options, wanted: Wanted, after: int = -1) -> RunTable:
    """Live runs that may hold wanted messages; only those that commits behind number ``after`` made."""
    runs = queue_runs(snapshot, options, wanted, after)
    return runs.only(wanted.runs(snapshot.place.broker, runs))


def levels(snapshot: Snapshot, runs: RunTable) -> Ints:
    """The level of each run's object."""
    refs, mine = objects_of(runs)
    of_objects: Ints = np.array([item.level for item in snapshot.objects(refs)], np.int64)
    return of_objects[mine]


def queue_runs(snapshot: Snapshot, options: Options, wanted: Wanted, after: int = -1) -> RunTable:
    """Live runs of queues that may hold wanted messages, with these queues alone; ``after`` as of ``wanted_runs``."""
    choice = snapshot.choice(options, wanted.queue_ids)
    runs = (
        read_runs(snapshot.view.state, choice)
        if after < 0
        else newer_runs(snapshot.view.state, choice, after)
    )
    return runs if options.sealed else runs.only(levels(snapshot, runs) < SEALED_LEVEL)


def missing_topics(options: Options, found: Sequence[Queues]) -> list[str]:
    """Topics that the options name and no archive has. ``found``: queues that may hold wanted messages, of each."""
    named = options.named_topics
    return sorted(name for name in named if not any(len(queues.of_topics((name,))) for queues in found))


def idle_patterns(options: Options, found: Sequence[Queues]) -> list[str]:
    """Patterns of the options that no archive has a topic for."""
    patterns = [each for each in options.topics if each not in options.named_topics and each != "*"]
    topics: set[str] = set()
    if patterns:
        topics.update(*(queues.only(slice(None)).topics.to_pylist() for queues in found))
    return [pattern for pattern in patterns if not any(matches(topic, (pattern,)) for topic in topics)]


def check_topics(options: Options, found: Sequence[Queues]) -> None:
    """``NotFound`` names ``missing_topics``; patterns that none matches are warned about."""
    missing = missing_topics(options, found)
    if missing and options.missing_topics == "fail":
        system = [topic for topic in missing if is_system_topic(topic)] if not options.system_topics else []
        raise NotFound(
            "no archive here has this topic" + (" with one of these queue ids" if options.queue_ids else ""),
            topic=", ".join(missing),
            hint="RocketMQ's own topics are read with includeSystemTopics" if system
            else "table=queues lists what is there; missingTopics=ignore reads what is there of them",
        )  # fmt: skip
    idle = idle_patterns(options, found)
    if idle and (options.missing_topics == "fail" or not any(map(len, found))):
        log.warning("no topic matches %s: nothing is read", ", ".join(idle))


def enough(options: Options, runs: Iterable[RunTable]) -> Options:
    """Options whose partitions are small enough to be ``min_partitions``, as far as there are blocks."""
    if options.min_partitions is None:
        return options
    whole = sum(int(np.maximum(some.sizes, 1).sum()) for some in runs)
    return replace(
        options, partition_bytes=max(1, min(options.partition_bytes, whole // options.min_partitions))
    )


def partitions(snapshot: Snapshot, runs: RunTable, options: Options) -> list[ScanPartition]:
    """Runs by object, packed up to ``partition_bytes``; a run that is larger is split at blocks. ``runs`` are sorted where they
    lie, and the partitions' are parts of them: with very many, a copy would be the most of a plan's memory."""
    records = runs.records
    runs.sort(np.lexsort((records["first_block"], records["object"], records["commit_seq"])))
    run_of, first, end, size = _pieces(runs, options.partition_bytes)
    filled = np.concatenate([[0], np.cumsum(size)])
    made: list[ScanPartition] = []
    start = 0
    while start < len(run_of):
        most = int(np.searchsorted(filled, filled[start] + options.partition_bytes, side="right")) - 1
        stop = min(max(most, start + 1), start + MAX_PIECES, len(run_of))
        part, low = slice(start, stop), int(run_of[start])
        some = runs.part(low, int(run_of[stop - 1]) + 1).compact()
        refs = dict.fromkeys(
            zip(some.records["commit_seq"].tolist(), some.records["object"].tolist(), strict=True)
        )
        objects = {item.ref: item for item in snapshot.objects([ObjectRef(*ref) for ref in refs])}
        which = (column.astype(np.int32) for column in (run_of[part] - low, first[part], end[part]))
        made.append(ScanPartition(snapshot.place, objects, some, *which))
        start = stop
    return made


def _pieces(
    runs: RunTable, partition_bytes: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32], Ints]:
    """Runs cut where they are too large: of each piece its run (an index), first block, end block and about its bytes."""
    firsts = range(0, max(1, len(runs)), CUT_AT_ONCE)
    cut = [_cut(runs.part(first, first + CUT_AT_ONCE), first, partition_bytes) for first in firsts]
    run_of, first, end, size = (np.concatenate(columns) for columns in zip(*cut, strict=True))
    return run_of, first, end, size


def _cut(
    runs: RunTable, number: int, partition_bytes: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32], Ints]:
    """``_pieces`` of some of them, of which the first is ``number``."""
    size = np.maximum(runs.sizes, 1)
    blocks = runs.records["block_count"].astype(np.int64)
    step = np.minimum(blocks, np.maximum(1, blocks * partition_bytes // size))
    count = -(-blocks // np.maximum(step, 1))
    run_of = np.repeat(np.arange(len(count)), count)
    piece = np.arange(len(run_of)) - np.repeat(np.cumsum(count) - count, count)
    begin = runs.records["first_block"].astype(np.int64)[run_of]
    first = begin + piece * step[run_of]
    end = np.minimum(first + step[run_of], begin + blocks[run_of])
    bytes_each = size[run_of] * (end - first) // blocks[run_of]
    return (
        (run_of + number).astype(np.int32),
        first.astype(np.int32),
        end.astype(np.int32),
        bytes_each,
    )
