"""One commit among very many queues: what it looks up, folds, puts; RocksDB beside the JSON provider (RIP-66's comparison)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from tests.bench.run import Row
from tiered.archive.checkpoint.store import fold_pairs
from tiered.archive.fold.apply import apply
from tiered.archive.state.cached import open_fold
from tiered.archive.state.layers import store_changes
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.metadata.base import MetadataStore
from tiered.settings import Settings

Result = TypeVar("Result")

COMMITS = 5
RECORD_BYTES = 250
Queues = tuple[list[str], list[int]]


def committing(work: Path, state: Path, queues: Queues, name: str) -> list[Row]:
    """The metadata part of commits that append one message to each of ``queues``, in a daemon's own fold, in CPU time."""
    cache = Settings().state.cache_bytes
    with_rocks = open_fold("rocksdb", state / "metadata", cache)
    folding, putting = [], []
    for number in range(COMMITS):
        commit = next_commit(with_rocks, queues, number)
        took, changes = _timed(lambda commit=commit: apply(with_rocks, commit))  # type: ignore[misc]
        folding.append(took)
        putting.append(_timed(lambda changes=changes: store_changes(with_rocks, [changes]))[0])  # type: ignore[misc]
    opened, put = in_json(work / "json-metadata", with_rocks, next_commit(with_rocks, queues, COMMITS))
    with_rocks.close()
    folded, stored = statistics.median(folding), statistics.median(putting)
    what = f"a commit that touches {len(queues[0]):,} of {name}"
    return [
        Row(f"{what}: put", f"{stored * 1000:.0f} ms", f"{put:.2f} s (JSON)", f"{put / stored:,.0f}", "≤ 50 ms"),
        Row("the same: looked up and folded before", f"{folded * 1000:.0f} ms", "-", "-", "-"),
        Row(f"the JSON provider with {name}, opened", f"{opened:.2f} s", "-", "-", "report"),
    ]  # fmt: skip


def in_json(directory: Path, fold: MetadataStore, commit: Commit) -> tuple[float, float]:
    """Seconds to open the JSON provider with all of a fold in it, and to put one commit's changes."""
    store = open_fold("json", directory, 0)
    store.put_many(fold_pairs(fold), applied=fold.applied())
    store.close()
    opened, again = _timed(lambda: open_fold("json", directory, 0))
    changes = apply(again, commit)
    put, _ = _timed(lambda: store_changes(again, [changes]))
    again.close()
    return opened, put


def next_commit(fold: MetadataStore, queues: Queues, number: int) -> Commit:
    """The commit behind ``fold`` that appends a message to each of these queues."""
    head = ArchiveState(fold).head()
    assert head is not None
    at = head.progress[head.lineage].physical_offset
    edits = tuple(_edits(fold, queues, at, head.lineage, head.epoch, number))
    name = b"million" + number.to_bytes(9, "big")
    return Commit(head.seq + 1, head.epoch, head.archive_id, name, head.commit_id, head.writer_id, edits)


def _edits(
    fold: MetadataStore, queues: Queues, at: int, lineage: int, epoch: int, number: int
) -> Iterator[EditBatch]:
    topics, ids = queues
    count = len(ids)
    table, known = ArchiveState(fold).queue_table(topics, np.array(ids))
    assert known.all(), "each queue is in the fold"
    starts = at + RECORD_BYTES * np.arange(count)
    ones, numbers = np.ones(count, np.int64), np.arange(count)
    yield batch(
        EditKind.ADD_OBJECT, key=f"data/{epoch:010d}-00000000-0000-4000-9000-{number:012d}", object_id=b"o" * 16, level=0,
        length=1000, sections=Rows([{1: [0, 10, 1]}]),
    )  # fmt: skip
    yield batch(
        EditKind.APPEND_RUN, topic=topics, queue_id=np.array(ids), generation=table["generation"].astype(np.int64),
        first_queue_offset=table["max_offset"], rows=ones, queue_offsets=ones, first_flat_offset=table["flat_end"],
        bytes=RECORD_BYTES * ones, min_store_time=table["max_store_time"], max_store_time=table["max_store_time"],
        object=0 * ones, first_row=numbers, first_block=numbers, block_count=ones, physical_start=starts,
        physical_end=starts + RECORD_BYTES,
    )  # fmt: skip
    end = at + RECORD_BYTES * count
    yield batch(EditKind.PROGRESS, lineage=lineage, physical_offset=end, mark_crc=7, crc_from=0)


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Seconds of CPU, which other work on the machine does not change, and what came of it."""
    started = time.process_time()
    found = work()
    return time.process_time() - started, found
