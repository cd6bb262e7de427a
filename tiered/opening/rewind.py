"""What the archive holds behind a physical offset, the ``Rewind`` that closes it, and the running mark there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tiered.archive.log.marks import Mark
from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import row_offsets
from tiered.archive.state.values import RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.checksum import crc32c
from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.codec.record.layout import physical_offsets
from tiered.codec.types import Ints
from tiered.model import PhysicalOffset, RunId
from tiered.opening.lineage import ArchivedRecord, BrokerComparison, ComparedLog

CRC_WINDOW_BYTES = 8 * 1024 * 1024
WINDOW_BYTES = 64 * 1024 * 1024
"""Of the commitlog, compared at once: more than one flush takes."""


def archived_from(
    state: ArchiveState, objects: ObjectReader, lineage: int, offset: PhysicalOffset
) -> Iterator[ArchivedRecord]:
    """Live records of a lineage that begin at or above ``offset``, ascending, some ``WINDOW_BYTES`` of the log in memory.

    Ascending over all runs: those of one commit lie side by side, and a merged one may reach over many commits.
    """
    reader, places = RunReader(state, objects), _Places()
    runs = sorted(state.runs_above(lineage, offset), key=lambda r: r.physical_start)
    for low, high, some in _windows(runs, offset):
        records = [
            ArchivedRecord(int(position), stretch.record(i))
            for run in some
            for stretch in reader.stretches(run, *places.between(reader, run, low, high))
            for i, position in enumerate(physical_offsets(stretch.data, stretch.starts).tolist())
        ]
        records.sort(key=lambda r: r.physical_offset)
        yield from (r for r in records if low <= r.physical_offset < high)


def _windows(runs: list[RunState], low: int) -> Iterator[tuple[int, int, list[RunState]]]:
    """Ranges of the log, ascending, and the runs that reach into each. ``runs``: ascending by where they begin."""
    at = 0
    active: list[RunState] = []
    while at < len(runs) or active:
        if not active:
            low = max(low, runs[at].physical_start)
        high = _boundary(islice(runs, at, None), active, low)
        while at < len(runs) and runs[at].physical_start < high:
            active.append(runs[at])
            at += 1
        yield low, high, active
        active = [run for run in active if run.physical_end > high]
        low = high


def _boundary(coming: Iterable[RunState], active: list[RunState], low: int) -> int:
    """Where a window ends: between two commits, if it can, so that their runs need not be cut."""
    limit = low + WINDOW_BYTES
    reached = max((run.physical_end for run in active if _is_short(run)), default=low)
    found = None
    for run in coming:
        if run.physical_start >= limit:
            break
        if low < run.physical_start >= reached:
            found = run.physical_start
        if _is_short(run):
            reached = max(reached, run.physical_end)
    return limit if found is None or reached <= limit else found


def _is_short(run: RunState) -> bool:
    return run.physical_end - run.physical_start <= WINDOW_BYTES


class _Places:
    """Where the records of runs that reach over several windows lie, looked up once for each."""

    def __init__(self) -> None:
        self._known: dict[RunId, tuple[Ints, Ints]] = {}

    def between(self, reader: RunReader, run: RunState, low: int, high: int) -> tuple[int, int]:
        """Queue offsets of the live records of ``run`` that begin in [low, high)."""
        if low <= run.physical_start and run.physical_end <= high:
            return run.start, run.end
        if run.id not in self._known:
            columns = reader.columns(run, ("physical_offset", "queue_offsets"))
            offsets = row_offsets(run.first_queue_offset, run.rows, columns["queue_offsets"])
            self._known[run.id] = (
                columns["physical_offset"].astype(np.int64),
                np.append(offsets, run.end_offset),
            )
        physical, offsets = self._known[run.id]
        first, end = offsets[np.searchsorted(physical, (low, high))].tolist()
        if run.physical_end <= high:
            del self._known[run.id]
        return max(run.start, first), min(run.end, end)


@dataclass(slots=True)
class _Cut:
    """Where one queue generation ends after the rewind."""

    max_offset: int
    flat_end: int


def rewind_edit(
    state: ArchiveState, objects: ObjectReader, lineage: int, offset: PhysicalOffset, mark: Mark
) -> EditBatch:
    """The ``Rewind`` of a lineage to ``offset``: for each queue generation with records behind it, its new end."""
    reader = RunReader(state, objects)
    cuts: dict[tuple[str, int, int], _Cut] = {}
    for run in state.runs_above(lineage, offset):
        key = (run.queue.topic, run.queue.queue_id, run.generation)
        found = _cut_of(state, reader, run, offset)
        if key not in cuts or found.max_offset < cuts[key].max_offset:
            cuts[key] = found
    ordered = sorted(cuts.items())
    return batch(
        EditKind.REWIND,
        lineage=lineage,
        physical_offset=offset,
        mark_crc=mark.crc,
        crc_from=mark.crc_from,
        queues={
            "topic": [k[0] for k, _ in ordered],
            "queue_id": [k[1] for k, _ in ordered],
            "generation": [k[2] for k, _ in ordered],
            "max_offset": [c.max_offset for _, c in ordered],
            "flat_end": [c.flat_end for _, c in ordered],
        },
    )


def _cut_of(state: ArchiveState, reader: RunReader, run: RunState, offset: int) -> _Cut:
    """End of a run's records below ``offset``; when there is none, the end of the run before it: a gap between them was part of
    the lost tail too, and if it is real the broker's next record shows it again."""
    kept = 0
    if run.physical_start < offset:
        columns = reader.columns(run, ("physical_offset", "size", "queue_offsets"))
        kept = int(np.searchsorted(columns["physical_offset"], offset))
    if not kept:
        before = state.run_before(run.queue, run.generation, run.first_queue_offset)
        return _Cut(run.first_queue_offset if before is None else before.end, run.first_flat_offset)
    owned = int(columns["queue_offsets"][:kept].astype(np.int64).sum())
    size = int(columns["size"][:kept].astype(np.int64).sum())
    return _Cut(max(run.start, run.first_queue_offset + owned), run.first_flat_offset + size)


def mark_at(source: ComparedLog, outcome: BrokerComparison) -> Mark:
    """The running mark at the point of a rewind, over the broker's own bytes."""
    offset, matched = outcome.offset, outcome.matched
    if matched is not None and offset == matched.physical_offset:
        return Mark.of(matched)
    start = source.file_start(offset)
    if start is None or start == offset:
        return Mark.at(offset)
    if matched is not None and start <= matched.crc_from < offset:
        start = PhysicalOffset(matched.crc_from)
    crc, position = 0, start
    while position < offset:
        stop = PhysicalOffset(min(offset, position + CRC_WINDOW_BYTES))
        crc = crc32c(source.copy_local(position, stop), crc)
        position = stop
    return Mark(offset, crc, start)
