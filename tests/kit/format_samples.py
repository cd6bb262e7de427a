"""Objects and commits of any size, made from numbers alone: the same call gives the same bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.state.offsetmap import map_of_runs, nothing_given
from tiered.codec.dictionary import Dictionary
from tiered.codec.format import block
from tiered.codec.format.aliases import Aliases
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.codec.format.object import (
    BLOCK_DTYPE,
    ROW_DTYPE,
    RUN_DTYPE,
    EncodedObject,
    MessageKeys,
    ObjectTables,
    encode_object,
)
from tiered.codec.format.training import trained_on

OBJECT_ID = bytes(range(16))
ARCHIVE_ID = bytes(range(16, 32))
COMMIT_ID = bytes(range(32, 48))
PREVIOUS_ID = bytes(range(48, 64))
WRITER_ID = bytes(range(64, 80))
STORE_TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Tables:
    """The input of ``encode_object`` and the raw blocks it was made of."""

    topics: list[str]
    runs: npt.NDArray[Any]
    blocks: npt.NDArray[Any]
    raw: list[bytes]
    stored: list[block.Buffer]
    rows: npt.NDArray[Any]
    tags: list[bytes]
    key_hash: npt.NDArray[np.uint64]
    key_run: npt.NDArray[Any]
    key_queue_offset: npt.NDArray[Any]
    commit_seq: npt.NDArray[np.int64] | None
    dictionary: Dictionary | None = None

    def encode(self, object_id: bytes = OBJECT_ID, level: int = 0) -> EncodedObject:
        """The object."""
        made = ObjectTables(
            topics=self.topics,
            runs=self.runs,
            blocks=self.blocks,
            stored=self.stored,
            rows=self.rows,
            tags=self.tags,
            keys=MessageKeys(self.key_hash, self.key_run, self.key_queue_offset),
            commit_seq=self.commit_seq,
            dictionary=self.dictionary,
        )
        return encode_object(made, object_id=object_id, archive_id=ARCHIVE_ID, level=level)


def spread(count: int, seed: int, below: int) -> npt.NDArray[np.int64]:
    """``count`` numbers in [0, below) that look random (splitmix64)."""
    z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed * 1_000_003)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(below)).astype(np.int64)


def sums(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where each of some consecutive things begins."""
    return np.cumsum(counts, dtype=np.int64) - counts


def tables(rows_per_run: list[int], *, keys: bool = True, merged: bool = False, level: int = 1) -> Tables:
    """Runs with so many rows each, two blocks per run of more than three, every third not compressible."""
    per_run = np.array(rows_per_run, np.int64)
    count, total = len(per_run), int(per_run.sum())
    run_of_row = np.repeat(np.arange(count), per_run)
    rows = np.zeros(total, ROW_DTYPE)
    rows["size"] = 91 + spread(total, 1, 60)
    rows["body_length"] = rows["size"] - 91
    rows["tags_code"] = spread(total, 2, 3) * 7919 - 5
    rows["physical_offset"] = 10**12 + sums(rows["size"])
    rows["store_timestamp"] = STORE_TIME_MS + spread(total, 3, 900)
    rows["born_timestamp"] = rows["store_timestamp"] - spread(total, 4, 20)
    rows["sys_flag"] = spread(total, 5, 2)
    rows["body_crc"] = spread(total, 6, 2**31)
    rows["tag"] = spread(total, 7, 3)
    rows["queue_offsets"] = 1
    first_row = sums(per_run)
    split = np.where(per_run > 3, per_run // 2, per_run)
    per_block = np.stack([split, per_run - split], axis=1).reshape(-1)
    block_run = np.repeat(np.arange(count), 2)[per_block > 0]
    per_block = per_block[per_block > 0]
    raw = _records(rows["size"], per_block)
    compressed = [block.compress(b, level=level) for b in raw]
    runs = _runs(rows, per_run, first_row, block_run)
    blocks = np.zeros(len(raw), BLOCK_DTYPE)
    starts = sums(per_block)
    blocks["run"] = block_run
    blocks["rows"] = per_block
    blocks["first_queue_offset"] = runs["first_queue_offset"][block_run] + starts - first_row[block_run]
    blocks["stored_length"] = [len(s) for s, _, _ in compressed]
    blocks["raw_length"] = list(map(len, raw))
    blocks["codec"] = [c for _, c, _ in compressed]
    blocks["crc32c"] = [c for _, _, c in compressed]
    blocks["min_store_time"] = np.minimum.reduceat(rows["store_timestamp"], starts)
    blocks["max_store_time"] = np.maximum.reduceat(rows["store_timestamp"], starts)
    keyed = np.flatnonzero(spread(total, 8, 4) > 0) if keys else np.zeros(0, np.int64)
    return Tables(
        topics=[f"topic-{t:05d}" for t in range(-(-count // 4))],
        runs=runs,
        blocks=blocks,
        raw=raw,
        stored=[s for s, _, _ in compressed],
        rows=rows,
        tags=[b"", b"TagA", b"Tag\xc3\xa9"],
        key_hash=spread(len(keyed), 9, 2**62).astype(np.uint64) << np.uint64(2),
        key_run=run_of_row[keyed],
        key_queue_offset=runs["first_queue_offset"][run_of_row[keyed]] + keyed - first_row[run_of_row[keyed]],
        commit_seq=5 + run_of_row.astype(np.int64) if merged else None,
    )


def with_dictionary(made: Tables, size: int = 512) -> Tables:
    """The same blocks, compressed with a dictionary of their own where that saves something."""
    edges = np.append(0, np.cumsum([len(raw) for raw in made.raw]))
    raw = b"".join(made.raw)
    dictionary = trained_on(raw, edges, size)
    assert dictionary is not None
    stored = block.compress_pieces(raw, edges, level=1, dictionary=dictionary)
    blocks = made.blocks.copy()
    blocks["stored_length"], blocks["codec"], blocks["crc32c"] = stored.lengths, stored.codecs, stored.crcs
    return replace(made, blocks=blocks, stored=stored.between(0, len(stored)), dictionary=stored.dictionary)


def _records(sizes: npt.NDArray[Any], per_block: npt.NDArray[np.int64]) -> list[bytes]:
    """Bytes in place of records: every third block does not compress."""
    lengths = np.add.reduceat(sizes.astype(np.int64), sums(per_block))
    noise = spread(int(lengths.max()), 10, 256).astype(np.uint8).tobytes()
    return [
        noise[:length] if i % 3 == 2 else (b"record %d " % i * length)[:length]
        for i, length in enumerate(lengths.tolist())
    ]


def _runs(
    rows: npt.NDArray[Any],
    per_run: npt.NDArray[np.int64],
    first_row: npt.NDArray[np.int64],
    block_run: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    count = len(per_run)
    runs = np.zeros(count, RUN_DTYPE)
    runs["topic"] = np.arange(count) // 4
    runs["queue_id"] = np.arange(count) % 4
    runs["generation"] = spread(count, 11, 2)
    runs["first_queue_offset"] = spread(count, 12, 10**7)
    runs["rows"] = runs["queue_offsets"] = per_run
    runs["first_flat_offset"] = spread(count, 13, 10**10)
    runs["bytes"] = np.add.reduceat(rows["size"].astype(np.int64), first_row)
    runs["min_store_time"] = np.minimum.reduceat(rows["store_timestamp"], first_row)
    runs["max_store_time"] = np.maximum.reduceat(rows["store_timestamp"], first_row)
    runs["first_row"] = first_row
    runs["block_count"] = np.bincount(block_run, minlength=count)
    runs["first_block"] = sums(runs["block_count"])
    runs["physical_start"] = rows["physical_offset"][first_row]
    last = first_row + per_run - 1
    runs["physical_end"] = rows["physical_offset"][last] + rows["size"][last]
    return runs


def append_runs(made: Tables) -> EditBatch:
    """The ``AppendRun`` edits of an object's runs."""
    columns: dict[str, Any] = {
        name: made.runs[name].astype(np.int64) for name in RUN_DTYPE.names or () if name != "topic"
    }
    columns["object"] = np.zeros(len(made.runs), np.int64)
    return batch(EditKind.APPEND_RUN, topic=[made.topics[t] for t in made.runs["topic"].tolist()], **columns)


def add_object(encoded: EncodedObject, key: str = "", object_id: bytes = OBJECT_ID) -> EditBatch:
    """The ``AddObject`` edit of an object."""
    return batch(
        EditKind.ADD_OBJECT,
        key=key,
        object_id=object_id,
        level=0,
        length=encoded.length,
        sections={n: list(s) for n, s in encoded.sections.items()},
    )


def aliases() -> EditBatch:
    """Records of two queues in two lite queues."""
    runs = {"queue": [0, 0, 1], "generation": [1, 1, 7], "first_offset": [0, 9, 2**59], "rows": [2, 1, 1]}
    rows = {
        "target": [0, 1, 1, 0], "offset": [5, 2**40, 2**40 + 1, 6], "physical_offset": [100, 300, 900, 2**59],
        "store_time": [STORE_TIME_MS, STORE_TIME_MS - 1, -5, 0],
    }  # fmt: skip
    return Aliases(
        ["%LMQ%a", "%LMQ%ü"], ["Parent", "Parent"], [0, 3], [1, 2],
        {name: np.array(column, np.int64) for name, column in runs.items()},
        {name: np.array(column, np.int64) for name, column in rows.items()},
    ).edit()  # fmt: skip


def aged_aliases() -> EditBatch:
    """Of two lite queues one is trimmed, and runs of both are joined."""
    return batch(
        EditKind.REPLACE_ALIASES,
        topic=["%LMQ%a", "%LMQ%a", "%LMQ%ü"],
        generation=[1, 2, 1],
        first_offset=[2**40, 0, 0],
        start=[0, 9, 0],
        end=[0, 2**41, 4096],
    )


def every_kind() -> list[EditBatch]:
    """One batch or more of each kind that can be written."""
    made = tables([1, 5])
    runs = append_runs(made)
    targets = {name: [runs.row(i)[name] for i in range(2)] for name in runs.columns} | {
        "closed_by": [None, 7]
    }
    return [
        batch(
            EditKind.OPEN_EPOCH,
            epoch=2,
            writer_id=WRITER_ID,
            host="höst",
            store_time_ms=STORE_TIME_MS,
            lineage=1,
            source_kind="commitlog",
            role="master",
            broker_epoch=None,
            min_reader=1,
            min_writer=1,
            required_features=[],
        ),
        batch(
            EditKind.ADD_OBJECT,
            key=["", "data/x"],
            object_id=[OBJECT_ID, COMMIT_ID],
            level=[0, 1],
            length=[9, 2**40],
            sections=Rows([{1: [0, 5, 2**32 - 1]}, {}]),
        ),
        runs,
        batch(
            EditKind.PROGRESS,
            lineage=[1, 1],
            physical_offset=[10, 20],
            mark_crc=[2**32 - 1, 0],
            crc_from=[0, 10],
        ),
        batch(EditKind.PHYS_GAP, lineage=1, start=5, end=2**62, reason="deleted"),
        batch(
            EditKind.GAP,
            topic="t\udcff",
            queue_id=0,
            generation=1,
            start=5,
            end=6,
            reason="queue offsets jumped",
        ),
        batch(
            EditKind.REWIND,
            lineage=1,
            physical_offset=7,
            mark_crc=1,
            crc_from=0,
            queues={
                "topic": ["a", "b"],
                "queue_id": [0, 1],
                "generation": [0, 0],
                "max_offset": [4, 5],
                "flat_end": [9, 8],
            },
        ),
        batch(
            EditKind.NEW_GENERATION,
            topic="a",
            queue_id=-1,
            generation=1,
            lineage=1,
            first_queue_offset=0,
            physical_offset=9,
        ),
        batch(
            EditKind.REPLACE_RUNS,
            sources={
                "commit_seq": [1, 2],
                "index": [0, 9],
                "start": [0, 1],
                "end": [1, 5],
                "closed_by": [None, 7],
            },
            targets=targets,
        ),
        batch(EditKind.TRIM_QUEUE, topic=["a", "a"], queue_id=[0, 1], generation=[0, 0], first_offset=[3, 4]),
        batch(EditKind.RETIRE, keys=["data/x", "shard/y"], floor=5),
        batch(EditKind.RETIRE, keys=[], floor=None),
        batch(EditKind.DELETED, keys=["data/x"]),
    ]


def loss() -> EditBatch:
    """The kind that only what stands for a damaged commit holds."""
    return batch(
        EditKind.LOSS,
        topic=["a", "b", "a"],
        queue_id=[0, 1, 1],
        generation=[1, 1, 2],
        start=[5, 0, 7],
        end=[2**40, 3, 7],
        bytes=[2**41, 600, 0],
        physical_end=[2**42, 900, 900],
    )


def forget() -> EditBatch:
    """Queues of which nothing was left, in the order of their keys."""
    return batch(
        EditKind.FORGET_QUEUES,
        topic=["a", "a", "b"],
        queue_id=[0, 2**31 - 1, 1],
        generation=[1, 2, 2**31 - 1],
        lineage=[1, 1, 2],
        physical_end=[0, 2**41, 900],
    )


def sink_progress() -> EditBatch:
    """Sinks that go on, begin anew, and are removed."""
    some = {"topic": ["a", "b"], "queue_id": [0, 2**31 - 1], "next": [0, 2**41], "physical": [None, 2**41]}
    none: dict[str, list[object]] = {name: [] for name in some}
    return batch(
        EditKind.SINK_PROGRESS,
        sink_id=[OBJECT_ID, COMMIT_ID, ARCHIVE_ID],
        sink=["orders", "everything", "gone"],
        step=[0, 2, 3],
        revision=[1, 7, 1],
        lineage=[1, 2, 0],
        sink_position=Rows([[2**41, [2**41 - 300, 300, 2**32 - 1]], [None, None], [None, None]]),
        looked=[7, 6, 0],
        sink_queues=Rows([some, none, none]),
    )


def sink_map() -> EditBatch:
    """Queues of a sink: runs of every sort, and one of which nothing was given."""
    runs = {
        "first": [3, 2**41], "messages": [7, 9], "left_out": [0, 2], "target_offset": [2**33, 2**34],
        "between": [0, 5],
    }  # fmt: skip
    maps = [map_of_runs(0, 2**42, "Orders", "a topic id", 3, runs), nothing_given(5, 8)]
    packed = [each.pack() for each in maps]
    return batch(
        EditKind.SINK_MAP,
        sink_id=[OBJECT_ID, COMMIT_ID],
        topic=["a", "b"],
        queue_id=[0, 2**31 - 1],
        start=[each.start for each in maps],
        end=[each.end for each in maps],
        target=[each.target for each in maps],
        target_id=[each.target_id for each in maps],
        partition=[each.partition for each in maps],
        target_offset=[base for base, _ in packed],
        map_runs=[runs for _, runs in packed],
    )


def commit(edits: list[EditBatch], *, seq: int = 8, inline_length: int = 0) -> Commit:
    """A commit with fixed ids."""
    return Commit(
        seq=seq,
        epoch=2,
        archive_id=ARCHIVE_ID,
        commit_id=COMMIT_ID,
        previous_id=PREVIOUS_ID,
        writer_id=WRITER_ID,
        edits=edits,
        inline_length=inline_length,
    )
