"""Metadata tables: what the archive knows of itself, as rows (``.option("table", …)``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from tiered.archive.read.keptaliases import KeptAliases
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.aliases import AliasRun, unpack_alias_run
from tiered.archive.state.keys import ALIAS, GAP, QUEUE, RUN, U8, queue_of, split_run_key
from tiered.archive.state.layout import NO_TIME_LOW, RUN_RECORD_DTYPE, table
from tiered.archive.state.values import ObjectState, gap_reason, gap_table
from tiered.codec.arrow.arrays import repeated, times
from tiered.codec.types import Ints
from tiered_spark.choice import Choice
from tiered_spark.columns import arrow_schema
from tiered_spark.options import Options
from tiered_spark.plan import SEALED_LEVEL, partitions, queue_runs
from tiered_spark.plan_keys import holding_runs
from tiered_spark.queues import CHUNK, Queues, gathered, values_of
from tiered_spark.runs import RunTable, blocks_of, objects_of
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import first_wish

COMMITS = 256
"""Commits of the log in one batch of rows."""

Row = tuple[object, ...]
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """A table: its columns, as DDL, and its columns of one archive, some thousand rows at a time."""

    columns: str
    parts: Callable[[Snapshot, Options], Iterator[Columns]]

    @property
    def schema(self) -> StructType:
        """Its schema. Spark's own parser of DDL needs a session, which a planning process has not."""
        pairs = (column.split() for column in self.columns.split(","))
        return StructType([StructField(name, _TYPES[kind]()) for name, kind in pairs])

    def batches(self, snapshot: Snapshot, options: Options) -> Iterator[pa.RecordBatch]:
        """All rows of an archive."""
        schema, place = arrow_schema(self.schema), snapshot.place
        for part in self.parts(snapshot, options):
            rows = len(next(iter(part.values())))
            named = {
                "cluster": repeated(place.cluster, rows), "broker": repeated(place.broker, rows),
                "commit": pa.repeat(pa.scalar(snapshot.commit, pa.int64()), rows), **part,
            }  # fmt: skip
            arrays = [_as(pa.array(named[field.name]), field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def rows(self, snapshot: Snapshot, options: Options) -> Iterator[Row]:
        """The same as tuples: for tables of few rows."""
        for batch in self.batches(snapshot, options):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


_TYPES = {"string": StringType, "int": IntegerType, "long": LongType, "timestamp": TimestampType}


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Timestamps come in ms."""
    if not pa.types.is_timestamp(kind):
        return column.cast(kind)
    known = pc.fill_null(column, NO_TIME_LOW).to_numpy(zero_copy_only=False)
    return times(known, kind)


def _named(queues: Queues) -> dict[str, pa.Array]:
    """The columns that name queues; the generation is null where none is current."""
    generation = pa.array(queues.generation, mask=queues.generation == 0)
    topics = queues.topics.take(pa.array(queues.topic))
    return {"topic": topics, "queue_id": pa.array(queues.queue_id), "generation": generation}


_COUNTED = ("min_offset", "max_offset", "messages", "bytes", "runs", "min_store_time", "max_store_time")


def _chosen(snapshot: Snapshot, options: Options) -> Choice:
    """The queues that ``topics`` and ``queueIds`` mean."""
    return snapshot.choice(options, frozenset(options.queue_ids) or None)


def _queues(snapshot: Snapshot, options: Options) -> Iterator[Columns]:
    choice = _chosen(snapshot, options)
    for prefix in choice.prefixes:
        pairs = snapshot.view.state.view.iterate(QUEUE + prefix)
        while chunk := list(islice(pairs, CHUNK)):
            found = gathered([iter(chunk)], choice, *_COUNTED, gone=True)
            if len(found.queues):
                columns = {
                    name.replace("_store_time", "_store_timestamp"): pa.array(c)
                    for name, c in found.columns.items()
                }
                yield {**_named(found.queues), **columns}


def _gaps(snapshot: Snapshot, options: Options) -> Iterator[Columns]:
    for found in values_of(snapshot.view.state, GAP, _chosen(snapshot, options)):
        table = gap_table(found.values)
        end = table["end"].astype(np.int64)
        yield {
            **_named(found.queues), "start_offset": pa.array(found.offsets), "end_offset": pa.array(end),
            "messages": pa.array(end - found.offsets), "reason": pa.array(map(gap_reason, found.values), pa.string()),
            "commit": pa.array(table["commit_seq"].astype(np.int64)),
        }  # fmt: skip


def _aliases(snapshot: Snapshot, options: Options) -> Iterator[Columns]:
    """``topics`` names lite queues here. Aliases whose records retention took are left out."""
    state, choice = snapshot.view.state, snapshot.choice(options)
    kept, waiting, held = KeptAliases(state), list[Columns](), 0
    for prefix in choice.prefixes:
        for key, value in state.view.iterate(ALIAS + prefix):
            queue, generation = split_run_key(key)
            name = queue_of(queue).topic
            if choice.shown(name):
                run = unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
                waiting.append(_places(name, generation, run, np.flatnonzero(kept.of(run))))
                held += len(run.rows)
            if held >= CHUNK:
                yield _joined(waiting)
                waiting, held = [], 0
    if waiting:
        yield _joined(waiting)


def _places(name: str, generation: int, run: AliasRun, at: Ints) -> Columns:
    rows, named = run.rows[at], [run.target(number) for number in range(len(run.targets))]
    target = pa.array(rows["target"].astype(np.int64))
    return {
        "lite_queue": repeated(name, len(rows)),
        "lite_generation": pa.array(np.full(len(rows), generation)),
        "lite_offset": pa.array(run.first_offset + at),
        "topic": pa.array([queue.topic for queue, _ in named], pa.string()).take(target),
        "queue_id": pa.array([queue.queue_id for queue, _ in named]).take(target),
        "generation": pa.array([number for _, number in named]).take(target),
        "queue_offset": pa.array(rows["offset"].astype(np.int64)),
        "physical_offset": pa.array(rows["physical_offset"].astype(np.int64)),
        "store_timestamp": pa.array(rows["store_time"].astype(np.int64)),
    }


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def _commits(snapshot: Snapshot, options: Options) -> Iterator[Columns]:
    reader, head = snapshot.view.log, snapshot.view.head
    names = ("commit", "epoch", "commit_id", "stored_at", "edits", "inline_bytes")
    for first in range(0 if head is None else head.floor, snapshot.commit + 1, COMMITS):
        rows: list[Row] = []
        for seq in range(first, min(first + COMMITS, snapshot.commit + 1)):
            found = reader.read(seq)
            if found is not None:
                kinds = ",".join(sorted({batch.kind.name for batch in found.commit.edits}))
                rows.append(
                    (seq, found.commit.epoch, found.commit.commit_id.hex(), found.last_modified_ms, kinds, found.inline_length)
                )  # fmt: skip
        if rows:
            yield {
                name: pa.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
            }


def _blocks(snapshot: Snapshot, options: Options) -> Iterator[Columns]:
    objects: ObjectReader = snapshot.view.objects
    for found in values_of(snapshot.view.state, RUN, _chosen(snapshot, options)):
        runs = RunTable(found.queues, np.arange(len(found.values)), table(found.values, RUN_RECORD_DTYPE))
        refs, mine = objects_of(runs)
        for number, item in enumerate(snapshot.objects(refs)):
            if not options.sealed and item.level == SEALED_LEVEL:
                continue
            yield _of_object(objects, item, runs.only(np.flatnonzero(mine == number)))


def _of_object(objects: ObjectReader, item: ObjectState, runs: RunTable) -> Columns:
    run, block = blocks_of(runs)
    blocks = objects.block_table(item)[block]
    return {
        **_named(runs.queues.each(runs.queue[run])),
        "key": repeated(objects.key_of(item), len(block)),
        "block": pa.array(block),
        **{name: pa.array(blocks[stored]) for name, stored in _STORED.items()},
    }


_STORED = {
    "first_queue_offset": "first_queue_offset", "rows": "rows", "position": "position", "stored_bytes": "stored_length",
    "raw_bytes": "raw_length", "codec": "codec", "crc32c": "crc32c", "min_store_timestamp": "min_store_time",
    "max_store_timestamp": "max_store_time",
}  # fmt: skip
"""Columns of the table by those of an object's table of blocks."""


def _plan(snapshot: Snapshot, options: Options) -> Iterator[Columns]:
    wanted = first_wish(options)
    runs = queue_runs(snapshot, options, wanted)
    kept = holding_runs(snapshot, runs.only(wanted.runs(snapshot.place.broker, runs)), wanted)
    objects, left = (len(objects_of(some)[0]) for some in (runs, kept))
    row = {
        "queues": len(runs.queues), "runs": len(runs), "runs_pruned": len(runs) - len(kept),
        "blocks": int(kept.records["block_count"].sum()), "bytes": int(kept.sizes.sum()),
        "partitions": len(partitions(snapshot, kept, options)), "objects": objects, "objects_pruned": objects - left,
    }  # fmt: skip
    yield {name: pa.array([value]) for name, value in row.items()}


_WHERE = "cluster string, broker string"
_QUEUE = f"{_WHERE}, topic string, queue_id int, generation int"

METADATA: dict[str, ArchiveTable] = {
    "queues": ArchiveTable(
        f"{_QUEUE}, min_offset long, max_offset long, messages long, bytes long, runs long, min_store_timestamp timestamp, "
        "max_store_timestamp timestamp, commit long",
        _queues,
    ),
    "gaps": ArchiveTable(
        f"{_QUEUE}, start_offset long, end_offset long, messages long, reason string, commit long", _gaps
    ),
    "aliases": ArchiveTable(
        f"{_WHERE}, lite_queue string, lite_generation int, lite_offset long, topic string, queue_id int, generation int, "
        "queue_offset long, physical_offset long, store_timestamp timestamp, commit long",
        _aliases,
    ),
    "commits": ArchiveTable(
        f"{_WHERE}, commit long, epoch long, commit_id string, stored_at timestamp, edits string, inline_bytes long",
        _commits,
    ),
    "blocks": ArchiveTable(
        f"{_QUEUE}, first_queue_offset long, rows int, key string, block int, position long, stored_bytes int, "
        "raw_bytes int, codec int, crc32c long, min_store_timestamp timestamp, max_store_timestamp timestamp",
        _blocks,
    ),
    "plan": ArchiveTable(
        f"{_WHERE}, commit long, queues long, runs long, runs_pruned long, blocks long, bytes long, partitions long, "
        "objects long, objects_pruned long",
        _plan,
    ),
}
"""``queues``: every queue and its bounds; ``gaps``: queue offsets that can never be served, and why; ``aliases``: which
messages are in lite queues, by lite queue and offset there; ``commits``: the log; ``blocks``: every block of live runs, by one
request per object; ``plan``: what a scan with the same options would read."""
