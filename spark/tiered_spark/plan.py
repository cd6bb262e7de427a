"""What a scan reads: runs of the fold that may hold wanted messages, packed into partitions.

Only the fold is looked at, no object: a run's queue, offsets, times and sizes are in it. Runs of one object stay together and
in their order, so that an executor reads neighbouring bytes in one request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from tiered.archive.entities import ObjectState, QueueState, RunState
from tiered.model import ObjectRef
from tiered_spark.options import Options
from tiered_spark.pushdown import Wanted
from tiered_spark.snapshot import Place, Snapshot

MAX_PIECES = 20_000
"""Runs of one partition, whatever their size."""


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
    """What one task reads. Carries no secret and no handle: executors open the store themselves."""

    def __init__(self, place: Place, portions: tuple[Portion, ...]) -> None:
        super().__init__(None)
        self.place = place
        self.portions = portions


def wanted_queues(snapshot: Snapshot, options: Options, wanted: Wanted) -> Iterator[QueueState]:
    """Queues with a current generation that may hold wanted messages."""
    for queue in snapshot.archive.state.queues():
        shown = queue.generation is not None and snapshot.shows(queue.queue.topic, options)
        if shown and wanted.queue(queue.queue):
            yield queue


def live_runs(snapshot: Snapshot, queue: QueueState) -> Iterator[RunState]:
    """Live runs of a queue's current generation."""
    if queue.generation is not None:
        yield from snapshot.archive.state.runs(queue.queue, queue.generation)


def wanted_runs(snapshot: Snapshot, options: Options, wanted: Wanted) -> Iterator[RunState]:
    """Live runs that may hold wanted messages."""
    for queue in wanted_queues(snapshot, options, wanted):
        yield from filter(wanted.run, live_runs(snapshot, queue))


def size_of(run: RunState) -> int:
    """Bytes of a run's live records."""
    return run.flat_end - run.first_flat_offset


def partitions(snapshot: Snapshot, runs: Iterable[RunState], options: Options) -> list[ScanPartition]:
    """Runs by object, packed up to ``partition_bytes``; a run that is larger is split at blocks."""
    made: list[ScanPartition] = []
    open_pieces: list[Piece] = []
    filled = 0

    def close() -> None:
        nonlocal filled
        if open_pieces:
            made.append(ScanPartition(snapshot.place, _portions(snapshot, open_pieces)))
            open_pieces.clear()
        filled = 0

    for run in sorted(runs, key=_place):
        size = max(1, size_of(run))
        if filled and (filled + size > options.partition_bytes or len(open_pieces) >= MAX_PIECES):
            close()
        step = min(run.block_count, max(1, run.block_count * options.partition_bytes // size))
        end = run.first_block + run.block_count
        for first in range(run.first_block, end, step):
            open_pieces.append(Piece(run, first, min(first + step, end)))
            filled += size * step // run.block_count
            if filled >= options.partition_bytes:
                close()
    close()
    return made


def _place(run: RunState) -> tuple[int, int, int]:
    return run.object.commit_seq, run.object.index, run.first_block


def _portions(snapshot: Snapshot, pieces: Iterable[Piece]) -> tuple[Portion, ...]:
    by_object: dict[ObjectRef, list[Piece]] = {}
    for piece in pieces:
        by_object.setdefault(piece.run.object, []).append(piece)
    return tuple(Portion(snapshot.object(ref), tuple(found)) for ref, found in by_object.items())
