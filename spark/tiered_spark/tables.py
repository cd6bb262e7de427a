"""Metadata tables: what the archive knows of itself, as rows (``.option("table", …)``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from tiered.archive.read.objects import ObjectReader
from tiered.codec.arrow.arrays import FIRST_MS, LAST_MS
from tiered_spark.options import Options
from tiered_spark.plan import partitions, queue_runs
from tiered_spark.plan_keys import holding_runs
from tiered_spark.runs import objects_of
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import first_wish

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """A table: its columns, as DDL, and its rows of one archive."""

    columns: str
    rows: Callable[[Snapshot, Options], Iterator[Row]]

    @property
    def schema(self) -> StructType:
        """Its schema. Spark's own parser of DDL needs a session, which a planning process has not."""
        pairs = (column.split() for column in self.columns.split(","))
        return StructType([StructField(name, _TYPES[kind]()) for name, kind in pairs])


_TYPES = {"string": StringType, "int": IntegerType, "long": LongType, "timestamp": TimestampType}


def _time(ms: int | None) -> datetime | None:
    if ms is None or not FIRST_MS <= ms <= LAST_MS:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC)


def _queues(snapshot: Snapshot, options: Options) -> Iterator[Row]:
    place = snapshot.place
    for queue in snapshot.view.state.queues():
        if not snapshot.shows(queue.queue.topic, options):
            continue
        yield (
            place.cluster, place.broker, queue.queue.topic, queue.queue.queue_id, queue.generation, queue.min_offset,
            queue.max_offset, queue.messages, queue.bytes, queue.runs, _time(queue.min_store_time),
            _time(queue.max_store_time), snapshot.commit,
        )  # fmt: skip


def _gaps(snapshot: Snapshot, options: Options) -> Iterator[Row]:
    place = snapshot.place
    for gap in snapshot.view.state.gaps():
        if snapshot.shows(gap.queue.topic, options):
            yield (
                place.cluster, place.broker, gap.queue.topic, gap.queue.queue_id, gap.generation, gap.start, gap.end,
                gap.end - gap.start, gap.reason, gap.commit_seq,
            )  # fmt: skip


def _commits(snapshot: Snapshot, options: Options) -> Iterator[Row]:
    place, reader = snapshot.place, snapshot.view.log
    head = snapshot.view.head
    for seq in range(0 if head is None else head.floor, snapshot.commit + 1):
        found = reader.read(seq)
        if found is not None:
            kinds = ",".join(sorted({batch.kind.name for batch in found.commit.edits}))
            yield (
                place.cluster, place.broker, seq, found.commit.epoch, found.commit.commit_id.hex(),
                _time(found.last_modified_ms), kinds, found.inline_length,
            )  # fmt: skip


def _blocks(snapshot: Snapshot, options: Options) -> Iterator[Row]:
    place, state = snapshot.place, snapshot.view.state
    objects: ObjectReader = snapshot.view.objects
    for run in state.runs_all():
        if not snapshot.shows(run.queue.topic, options):
            continue
        item = snapshot.object(run.object)
        table = objects.block_table(item)[run.first_block : run.end_block]
        for number, block in enumerate(table.tolist(), run.first_block):
            _, first, rows, position, stored, raw, codec, crc, low, high = block
            yield (
                place.cluster, place.broker, run.queue.topic, run.queue.queue_id, run.generation, first, rows,
                objects.key_of(item), number, position, stored, raw, codec, crc, _time(low), _time(high),
            )  # fmt: skip


def _plan(snapshot: Snapshot, options: Options) -> Iterator[Row]:
    place, wanted = snapshot.place, first_wish(options)
    runs = queue_runs(snapshot, options, wanted)
    kept = holding_runs(snapshot, runs.only(wanted.runs(place.broker, runs)), wanted)
    objects, left = (len(objects_of(some)[0]) for some in (runs, kept))
    yield (
        place.cluster, place.broker, snapshot.commit, len(runs.queues), len(runs),
        len(runs) - len(kept), int(kept.records["block_count"].sum()), int(kept.sizes.sum()),
        len(partitions(snapshot, kept, options)), objects, objects - left,
    )  # fmt: skip


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
"""``queues``: every queue and its bounds; ``gaps``: queue offsets that can never be served, and why; ``commits``: the log;
``blocks``: every block of live runs, by one request per object; ``plan``: what a scan with the same options would read."""
