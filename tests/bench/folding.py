"""Rare edits in a large fold: a rewind, planning merges, a merge's commit. In CPU time, beside one walk over all runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tests.bench.run import Row, expect
from tests.kit.histories import ARCHIVE_ID, open_epoch
from tiered.archive.fold.apply import apply
from tiered.archive.rewrite.mergeplan import Bounds, job, windows
from tiered.archive.rewrite.plan import NOTHING, KnownObjects
from tiered.archive.rewrite.writing import MERGED_LEVEL
from tiered.archive.state.keys import RUN
from tiered.archive.state.layers import store_changes
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.metadata.memory import MemoryStore

_WRITER = b"w" * 16
_ROWS, _RECORD_BYTES = 4, 100
_BOUNDS = Bounds(block_bytes=1 << 18, settled_bytes=1 << 18, growth=10, job_bytes=1 << 40, job_runs=1 << 30)


class Grown:
    """A fold of many queues with one run in each commit."""

    def __init__(self, queues: int, commits: int) -> None:
        self.store, self.seq, self.queues, self.commits = MemoryStore(), 0, queues, commits
        self.topics = [f"topic-{q % 100:03d}" for q in range(queues)]
        self.queue_ids = np.arange(queues) // 100
        self.add(open_epoch(1, _WRITER, 1))
        for _ in range(commits):
            self.add(*self._flush(self.seq - 1))

    @property
    def state(self) -> ArchiveState:
        return ArchiveState(self.store)

    def commit(self, *edits: EditBatch) -> Commit:
        def name(seq: int) -> bytes:
            return bytes(16) if seq < 0 else b"commit" + (seq + 1).to_bytes(10, "big")

        return Commit(self.seq, 1, ARCHIVE_ID, name(self.seq), name(self.seq - 1), _WRITER, edits)

    def add(self, *edits: EditBatch) -> None:
        store_changes(self.store, [apply(self.store, self.commit(*edits))])
        self.seq += 1

    def physical(self, flush: int) -> int:
        return flush * self.queues * _ROWS * _RECORD_BYTES

    def _flush(self, number: int) -> tuple[EditBatch, ...]:
        size = _ROWS * _RECORD_BYTES
        start = self.physical(number) + np.arange(self.queues) * size
        same = {name: np.full(self.queues, value) for name, value in (
            ("generation", 1), ("first_queue_offset", number * _ROWS), ("rows", _ROWS), ("queue_offsets", _ROWS),
            ("first_flat_offset", number * size), ("bytes", size), ("min_store_time", number), ("max_store_time", number + 1),
            ("object", 0), ("block_count", 1),
        )}  # fmt: skip
        runs = batch(
            EditKind.APPEND_RUN, topic=self.topics, queue_id=self.queue_ids, physical_start=start, physical_end=start + size,
            first_row=np.arange(self.queues) * _ROWS, first_block=np.arange(self.queues), **same,
        )  # fmt: skip
        end = self.physical(number + 1)
        progress = batch(EditKind.PROGRESS, lineage=1, physical_offset=end, mark_crc=7, crc_from=0)
        new = batch(
            EditKind.NEW_GENERATION, topic=self.topics, queue_id=self.queue_ids, generation=same["generation"],
            lineage=same["generation"], first_queue_offset=same["first_queue_offset"], physical_offset=start,
        )  # fmt: skip
        return (*((new,) if not number else ()), self.added(0), runs, progress)

    def added(self, level: int) -> EditBatch:
        path = f"data/0000000001-00000000-0000-4000-8000-{self.seq:012d}"
        return batch(
            EditKind.ADD_OBJECT, key=path, object_id=b"o" * 16, level=level, length=1000,
            sections=Rows([{1: [0, 10, 1]}]),
        )  # fmt: skip


def folding(queues: int, merged_queues: int, commits: int) -> list[Row]:
    """A rewind of the last flush of ``queues`` times ``commits`` runs; planning and folding the merge of fewer queues."""
    grown = Grown(queues, commits)
    total = queues * commits
    walk = _cpu(lambda: expect(sum(1 for _ in grown.store.iterate(RUN)), total, "runs are in the fold"))
    position = grown.physical(commits - 1)
    found = _cpu(lambda: expect(len(list(grown.state.runs_above(1, position))), queues, "runs are behind it"))
    edit = _rewind(grown, position)
    folded = _cpu(lambda: apply(grown.store, grown.commit(edit)))
    fewer = Grown(merged_queues, commits)
    smaller = _cpu(lambda: expect(sum(1 for _ in fewer.store.iterate(RUN)), merged_queues * commits, "runs"))
    planned = _cpu(lambda: _planned(fewer))
    swap = _swap(fewer)
    swapped = _cpu(lambda: apply(fewer.store, fewer.commit(*swap)))
    runs = f"{merged_queues:,} queues × {commits} runs"
    return [
        _row(
            f"rewind of the last flush, {queues:,} queues × {commits} runs: what lies behind it", found, walk
        ),
        _row("… its commit folded", folded, walk),
        _row(f"merge of {runs}: planned", planned, smaller),
        _row("… its commit folded", swapped, smaller),
    ]


def _rewind(grown: Grown, position: int) -> EditBatch:
    last = grown.commits - 1
    queues = {
        "topic": grown.topics, "queue_id": grown.queue_ids.tolist(), "generation": [1] * grown.queues,
        "max_offset": [last * _ROWS] * grown.queues, "flat_end": [last * _ROWS * _RECORD_BYTES] * grown.queues,
    }  # fmt: skip
    return batch(EditKind.REWIND, lineage=1, physical_offset=position, mark_crc=7, crc_from=0, queues=queues)


def _planned(grown: Grown) -> None:
    (window,) = windows(grown.state, _BOUNDS)
    made = job(grown.state, _BOUNDS, window, KnownObjects.of(grown.state, NOTHING), b"", NOTHING)
    expect(0 if made is None else len(made.job.runs), grown.queues * grown.commits, "runs are to be merged")


def _swap(grown: Grown) -> tuple[EditBatch, ...]:
    """The edits of a merge of everything, without its object."""
    queues = sorted(zip(grown.topics, grown.queue_ids.tolist(), range(grown.queues), strict=True))
    flushes = range(grown.commits)
    sources = [(flush + 1, number, flush * _ROWS) for _, _, number in queues for flush in flushes]
    size, count = grown.commits * _ROWS * _RECORD_BYTES, grown.queues
    same = {
        "generation": 1, "first_queue_offset": 0, "rows": grown.commits * _ROWS, "queue_offsets": grown.commits * _ROWS,
        "first_flat_offset": 0, "bytes": size, "min_store_time": 0, "max_store_time": grown.commits, "object": 0,
        "first_row": 0, "first_block": 0, "block_count": 1, "closed_by": None,
    }  # fmt: skip
    last = grown.physical(grown.commits - 1)
    record = _ROWS * _RECORD_BYTES
    replace = batch(
        EditKind.REPLACE_RUNS,
        sources={
            "commit_seq": [seq for seq, _, _ in sources], "index": [index for _, index, _ in sources],
            "start": [start for _, _, start in sources], "end": [start + _ROWS for _, _, start in sources],
            "closed_by": [None] * len(sources),
        },
        targets={
            **{name: [value] * count for name, value in same.items()}, "topic": [topic for topic, _, _ in queues],
            "queue_id": [queue_id for _, queue_id, _ in queues],
            "physical_start": [number * record for _, _, number in queues],
            "physical_end": [last + (number + 1) * record for _, _, number in queues],
        },
    )  # fmt: skip
    return grown.added(MERGED_LEVEL), replace


def _cpu(work: Callable[[], object]) -> float:
    """Seconds of CPU, the best of three."""
    took = []
    for _ in range(3):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def _row(what: str, took: float, walk: float) -> Row:
    return Row(what, f"{took:.2f} s", f"{walk:.2f} s, one walk over all runs", f"{took / walk:.2f}", "-")
