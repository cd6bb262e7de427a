"""Gathered rows and blocks, written as one object of level 1: records cut into blocks anew, tables made for them.

Records are opened, joined and compressed a stretch of blocks at a time, so that beside what is stored, as read and as written,
only two such stretches are in memory: one is compressed while the next is opened, since zstd lets go of the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.sources import Gathered, Piece
from tiered.archive.state.keys import CLOSED, RUN, queue_of, split_closed_key, split_run_key
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.block import BLOCK_DTYPE, StoredBlocks, block_starts, compress_pieces
from tiered.codec.format.object import RUN_DTYPE, MessageKeys, ObjectTables
from tiered.codec.format.training import trained_on
from tiered.codec.record.layout import physical_offsets
from tiered.codec.record.ragged import gather
from tiered.codec.types import Ints
from tiered.errors import Corrupt
from tiered.model import MessageQueue
from tiered.settings import MIB, Settings

MERGED_LEVEL = 1
WINDOW_BYTES = 8 * MIB
"""Records opened at once, and as many compressed meanwhile."""


@dataclass(frozen=True, slots=True)
class Target:
    """A run that takes the place of its sources. ``closed_by``: ``None`` if it is live."""

    queue: MessageQueue
    generation: int
    closed_by: int | None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What is to be encoded, and which run of it takes the place of each stretch of the job."""

    tables: ObjectTables
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """``block_bytes``: of raw records; ``level``: zstd's, 0 for none; ``window_bytes``: of records opened at once; as many
    are compressed meanwhile; ``dictionary_bytes``: of the dictionary for small blocks, 0 for none."""

    block_bytes: int
    level: int
    window_bytes: int
    dictionary_bytes: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        """Blocks as those of fresh data."""
        dispatch = settings.dispatch
        level = dispatch.compression_level if dispatch.compression == "zstd" else 0
        window_bytes = min(WINDOW_BYTES, settings.maintenance.merge_bytes)
        return cls(dispatch.block_bytes, level, window_bytes, dispatch.dictionary_bytes if level else 0)


def rewrite(job: Job, gathered: Gathered, layout: Layout, pause: Callable[[], None]) -> Rewritten:
    """One object of all runs of a job. ``Corrupt`` names the object whose block is not what its tables say. ``pause`` is
    called between stretches of blocks."""
    rows = gathered.rows
    stretch = job.stretch[gathered.source]
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    edges = np.append(0, np.cumsum(rows["size"], dtype=np.int64))
    block_start = np.append(block_starts(edges, starts, layout.block_bytes), len(rows))
    stored = StoredBlocks.joined(
        list(_compressed(SourceRecords(gathered, edges), edges[block_start], layout, pause))
    )
    targets = _targets(job)
    tables = ObjectTables(
        topics=tuple(dict.fromkeys(t.queue.topic for t in targets)),
        runs=_runs(job, gathered, targets, starts, block_start, edges),
        blocks=_blocks(gathered, stretch, block_start, edges, stored),
        stored=stored.between(0, len(stored)),
        rows=rows,
        tags=gathered.tags,
        keys=MessageKeys(gathered.key_hash, job.stretch[gathered.key_source], gathered.key_offset),
        commit_seq=gathered.commit_seq,
        dictionary=stored.dictionary,
    )
    return Rewritten(_with_used_tags(tables), targets)


class SourceRecords:
    """The records' bytes, opened piece by piece when their turn comes, and compared with the columns."""

    def __init__(self, gathered: Gathered, edges: Ints) -> None:
        self._pieces = iter(gathered.pieces)
        self._rows, self._edges = gathered.rows, edges
        self._rest = memoryview(b"")  # of the last piece
        self._begin = 0  # of ``_rest``, in the bytes of all records
        self._last: Piece | None = None

    def until(self, end: int) -> memoryview:
        """The bytes from where the call before ended up to ``end``, which is the end of a record."""
        return self.between(self._begin, end)

    def between(self, start: int, end: int) -> memoryview:
        """The bytes of records [start, end), not before where the call before ended; what lies between is left out, and not
        opened where that is whole pieces."""
        self._skip(start)
        found = np.empty(end - start, np.uint8).data  # not cleared first, as a bytearray is
        at = 0
        while at < len(found):
            if not self._rest:
                self._last = next(self._pieces)
                self._rest = memoryview(self._last.records())
            taken, self._rest = self._rest[: len(found) - at], self._rest[len(found) - at :]
            found[at : at + len(taken)] = taken
            at += len(taken)
        self._check(found)
        self._begin = end
        return found

    def _skip(self, start: int) -> None:
        left = start - self._begin
        while left > len(self._rest):
            left -= len(self._rest)
            self._last = next(self._pieces)
            if self._last.take <= left:
                left, self._rest = left - self._last.take, memoryview(b"")
            else:
                self._rest = memoryview(self._last.records())
        self._rest, self._begin = self._rest[left:], start

    def _check(self, data: memoryview) -> None:
        """Sizes and physical offsets that the records state are those of their columns."""
        low, high = np.searchsorted(self._edges, (self._begin, self._begin + len(data))).tolist()
        starts = self._edges[low:high] - self._begin
        rows = self._rows[low:high]
        same = (gather(data, starts, ">i4") == rows["size"]) & (
            physical_offsets(data, starts) == rows["physical_offset"]
        )
        if not same.all():
            first = int(np.flatnonzero(~same)[0])
            raise Corrupt(
                "records and columns of the archive disagree",
                key="" if self._last is None else self._last.key,
                expected=f"{int(rows['size'][first])} bytes at {int(rows['physical_offset'][first])}",
                found="another record",
            )


def _compressed(
    records: SourceRecords, edges: Ints, layout: Layout, pause: Callable[[], None]
) -> Iterator[StoredBlocks]:
    """All blocks, some at a time, which are compressed while the next ones are opened. ``edges``: where each begins, in the
    bytes of all records, and their end. What small ones have in common is learnt from the first stretch with enough
    of them."""
    dictionary: Dictionary | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="rewrite") as pool:
        before: Future[StoredBlocks] | None = None
        first = 0
        while first < len(edges) - 1:
            last = int(np.searchsorted(edges, edges[first] + layout.window_bytes, "right")) - 1
            last = max(last, first + 1)
            data = records.until(int(edges[last]))
            if before is not None:
                yield before.result()
            blocks = edges[first : last + 1] - edges[first]
            if dictionary is None:
                dictionary = trained_on(data, blocks, layout.dictionary_bytes)
            before = pool.submit(compress_pieces, data, blocks, level=layout.level, dictionary=dictionary)
            pause()
            first = last
        if before is not None:
            yield before.result()


def _targets(job: Job) -> tuple[Target, ...]:
    """One for each stretch, of the key of its first run."""
    firsts = np.flatnonzero(np.diff(job.stretch, prepend=-1)).tolist()
    closed = [None if job.keys[i][:1] == RUN else int(job.runs["closed_by"][i]) for i in firsts]
    return tuple(Target(*place_of(job.keys[i]), by) for i, by in zip(firsts, closed, strict=True))


def place_of(key: bytes) -> tuple[MessageQueue, int]:
    """Queue and generation of a run's key in the fold."""
    queue, generation = split_closed_key(key) if key[:1] == CLOSED else split_run_key(key)
    return queue_of(queue), generation


def _runs(
    job: Job, gathered: Gathered, targets: tuple[Target, ...], starts: Ints, block_start: Ints, edges: Ints
) -> npt.NDArray[np.void]:
    """The object's table of runs."""
    rows, ends = gathered.rows, np.append(starts[1:], len(gathered.rows))
    firsts = np.flatnonzero(np.diff(job.stretch, prepend=-1))
    lasts = np.append(firsts[1:], len(job.runs)) - 1
    topics = {topic: i for i, topic in enumerate(dict.fromkeys(t.queue.topic for t in targets))}
    runs = np.zeros(len(targets), RUN_DTYPE)
    runs["topic"] = [topics[t.queue.topic] for t in targets]
    runs["queue_id"] = [t.queue.queue_id for t in targets]
    runs["generation"] = [t.generation for t in targets]
    runs["first_queue_offset"] = job.runs["start"][firsts]
    runs["queue_offsets"] = job.runs["end"][lasts] - job.runs["start"][firsts]
    runs["rows"] = ends - starts
    runs["first_flat_offset"] = job.runs["first_flat_offset"][firsts] + gathered.skipped[firsts]
    runs["bytes"] = edges[ends] - edges[starts]
    runs["min_store_time"] = np.minimum.reduceat(rows["store_timestamp"], starts)
    runs["max_store_time"] = np.maximum.reduceat(rows["store_timestamp"], starts)
    runs["first_row"] = starts
    runs["first_block"] = np.searchsorted(block_start, starts)
    runs["block_count"] = np.diff(np.append(runs["first_block"], len(block_start) - 1))
    runs["physical_start"] = rows["physical_offset"][starts]
    runs["physical_end"] = rows["physical_offset"][ends - 1] + rows["size"][ends - 1]
    _check_ends(job, runs, lasts)
    return runs


def _check_ends(job: Job, runs: npt.NDArray[np.void], lasts: Ints) -> None:
    """A target ends where its last source does, in offsets and in bytes."""
    flat = runs["first_flat_offset"] + runs["bytes"]
    wrong = np.flatnonzero(flat != job.runs["flat_end"][lasts])
    if len(wrong):
        at = int(wrong[0])
        raise RuntimeError(
            f"run {at} of a rewritten object ends at {flat[at]}, not {job.runs['flat_end'][lasts][at]}"
        )


def _blocks(
    gathered: Gathered, stretch: Ints, block_start: Ints, edges: Ints, stored: StoredBlocks
) -> npt.NDArray[Any]:
    rows, first = gathered.rows, block_start[:-1]
    blocks = np.zeros(len(first), BLOCK_DTYPE)
    blocks["run"] = stretch[first]
    blocks["first_queue_offset"] = gathered.queue_offset[first]
    blocks["rows"] = np.diff(block_start)
    blocks["raw_length"] = np.diff(edges[block_start])
    blocks["stored_length"] = stored.lengths
    blocks["codec"] = stored.codecs
    blocks["crc32c"] = stored.crcs
    blocks["min_store_time"] = np.minimum.reduceat(rows["store_timestamp"], first)
    blocks["max_store_time"] = np.maximum.reduceat(rows["store_timestamp"], first)
    return blocks


def _with_used_tags(tables: ObjectTables) -> ObjectTables:
    """Without the tags that none of its rows has."""
    used, number = np.unique(np.append(tables.rows["tag"], 0), return_inverse=True)
    tables.rows["tag"] = number[:-1]
    return ObjectTables(
        tables.topics, tables.runs, tables.blocks, tables.stored, tables.rows,
        [tables.tags[i] for i in used.tolist()], tables.keys, tables.commit_seq, tables.dictionary,
    )  # fmt: skip
