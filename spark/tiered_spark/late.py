"""Columns of records, fetched for the rows that a query wants them of.

Spark (4.1 to 4.3) tells a Python data source neither which columns a query uses nor, safely, its filters. So ``late_frame``
scans headers only, each row with the place of its record, and makes every column of the record a function of that place: what a
query does not name Spark does not call, and what its filters on headers leave out is not fetched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import ObjectState, pack_object, unpack_object
from tiered.codec.types import Ints
from tiered.errors import Invalid
from tiered.model import ObjectRef
from tiered.settings import MIB
from tiered_spark.columns import COLUMNS, RECORD, ColumnCost, arrow_schema, message_schema, parse_columns
from tiered_spark.errors import plainly
from tiered_spark.groups import GROUP_BYTES
from tiered_spark.loss import check_bounds, own_bounds
from tiered_spark.options import Options, exactly, parse_options, perhaps
from tiered_spark.optionvalues import by_name
from tiered_spark.plan import check_topics, wanted_runs
from tiered_spark.queues import Queues
from tiered_spark.records import RecordBlock
from tiered_spark.scan import INFLATED_BYTES
from tiered_spark.snapshot import ArchivePlace, Snapshot, open_objects, open_snapshots
from tiered_spark.there import check_there
from tiered_spark.wanted import first_wish

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import Column, DataFrame, SparkSession

KEPT_BYTES = 64 * MIB
"""Decoded blocks that a worker keeps for the other columns of the same rows, and for the next rows."""

MAX_VALUE_BYTES = 1 << 30
"""Of one column of one batch of rows."""

BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

Packed = dict[tuple[int, int], bytes]
"""Objects by commit and number."""


def view(spark: SparkSession, name: str, **options: object) -> DataFrame:
    """A temporary view of the messages, for SQL: ``view(spark, "messages", archive="s3://…", topics="Orders*")``.

    Its options are those of the format. As ``late_frame``: the state of now; made again, it shows what came since.
    """
    frame = late_frame(spark, **options)
    frame.createOrReplaceTempView(name)
    return frame


def late_frame(spark: SparkSession, **options: object) -> DataFrame:
    """The messages as they are now, as a frame whose queries cost what they use.

    ``Invalid`` for options that it cannot follow; errors else as of the format.
    """
    named = by_name(options)
    parsed = parse_options(named, stream=False)
    if parsed.table != "messages" or parsed.on_damage != "fail":
        raise Invalid(
            "a view is of messages, and damage fails its queries",
            found=f"table={parsed.table}, onDamage={parsed.on_damage}",
            hint="spark.read.format('rocketmq_tiered') takes these options",
        )
    names = parse_columns(parsed.columns) if parsed.columns else tuple(message_schema().names)
    snapshots = open_snapshots(parsed)
    objects = _objects(snapshots, parsed)
    check_bounds(parsed, snapshots)
    frames = []
    for snapshot in snapshots:
        sent = spark.sparkContext.broadcast(objects[snapshot.place])
        mine = own_bounds(snapshot, parsed, named)
        frames.append(_of_one(spark, snapshot.place, snapshot.commit, mine, parsed, names, sent))
    return reduce(lambda above, below: above.unionByName(below), frames)


def _objects(snapshots: list[Snapshot], options: Options) -> dict[ArchivePlace, Packed]:
    """The objects that hold wanted runs: executors open no fold."""
    found: dict[ArchivePlace, Packed] = {}
    seen: list[Queues] = []
    for snapshot in snapshots:
        runs = wanted_runs(snapshot, options, first_wish(options))
        seen.append(runs.queues)
        check_there(snapshot, runs, options)
        refs = np.unique(runs.records[["commit_seq", "object"]]).tolist()
        items = snapshot.objects([ObjectRef(*ref) for ref in refs])
        found[snapshot.place] = {ref: pack_object(item) for ref, item in zip(refs, items, strict=True)}
    check_topics(options, seen)
    return found


def _of_one(
    spark: SparkSession,
    place: ArchivePlace,
    commit: int,
    options: Mapping[str, str],
    parsed: Options,
    names: tuple[str, ...],
    objects: Broadcast[Packed],
) -> DataFrame:
    from pyspark.sql import functions as f

    headers = [name for name in names if COLUMNS[name].cost is not ColumnCost.BLOCK]
    chosen = {key: value for key, value in options.items() if key.lower() not in PINNED}
    chosen |= {
        "archive": place.url, "cluster": exactly(place.cluster), "broker": exactly(place.broker), "asOfCommit": str(commit),
        **perhaps(parsed.topics), "columns": ",".join([*headers, RECORD]),
    }  # fmt: skip
    frame = spark.read.format("rocketmq_tiered").options(**chosen).load()
    at: list[Column] = [f.col(RECORD)[part] for part in ("commit", "object", "row")]
    columns = [
        f.col(name) if name in headers else _function(place, name, parsed, objects)(*at).alias(name)
        for name in names
    ]
    return frame.select(*columns)


PINNED = ("archive", "cluster", "broker", "asofcommit", "asoftimestamp", "topics", "missingtopics", "columns")
"""Options that a frame of one snapshot gives its source itself."""


def _function(
    place: ArchivePlace, name: str, options: Options, objects: Broadcast[Packed]
) -> Callable[..., Column]:
    """The column of the records as a function of their places."""
    from pyspark.sql.pandas.functions import arrow_udf

    reader = _Reader(place, options.requests, options.decode_body, objects)

    def fetch(commit: pa.Array, number: pa.Array, row: pa.Array) -> pa.Array:
        with plainly():
            return reader.column(name, commit, number, row)

    made: Callable[..., Column] = arrow_udf(fetch, COLUMNS[name].kind)  # type: ignore[call-overload]
    return made


@dataclass(frozen=True)
class _Group:
    """Neighbouring blocks of an object, and which rows are asked for: where in the answer, and which of the group's."""

    item: ObjectState
    first_block: int
    end_block: int
    where: Ints
    rows: Ints


@dataclass(frozen=True)
class _Reader:
    """Reads records by their places, on an executor."""

    place: ArchivePlace
    requests: int
    inflate: bool
    objects: Broadcast[Packed]

    def column(self, name: str, commit: pa.Array, number: pa.Array, row: pa.Array) -> pa.Array:
        """One value for each place. ``Corrupt`` for damage."""
        kind = arrow_schema(message_schema((name,))).field(0).type
        if not len(row):
            return pa.array([], kind)
        reader = _open(self.place)
        seqs, numbers, rows = (
            np.asarray(part.to_numpy(zero_copy_only=False), np.int64) for part in (commit, number, row)
        )
        groups = list(self._groups(reader, seqs, numbers, rows))
        with ThreadPoolExecutor(self.requests, "late") as pool:
            found = pool.map(lambda group: self._values(reader, group, name, kind), groups)
            parts, size = [], 0
            for part in found:
                parts.append(part)
                size += part.nbytes
                if size > MAX_VALUE_BYTES:
                    raise Invalid(
                        f"a batch of {name} is too large", expected=f"at most {MAX_VALUE_BYTES} bytes", found=len(rows),
                        hint=f"set {BATCH_ROWS} to fewer rows than {len(rows)}",
                    )  # fmt: skip
        where = np.concatenate([group.where for group in groups])
        values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if np.array_equal(where, np.arange(len(where))):
            return values
        return values.take(pa.array(np.argsort(where, kind="stable")))

    def _groups(self, reader: ObjectReader, seqs: Ints, numbers: Ints, rows: Ints) -> Iterator[_Group]:
        order = np.lexsort((rows, numbers, seqs))
        seqs, numbers, rows = seqs[order], numbers[order], rows[order]
        cuts = np.flatnonzero((np.diff(seqs) != 0) | (np.diff(numbers) != 0)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
            ref = (int(seqs[start]), int(numbers[start]))
            item = unpack_object(ObjectRef(*ref), self.objects.value[ref])
            table = reader.block_table(item)
            ends = np.cumsum(table["rows"].astype(np.int64))
            block = np.searchsorted(ends, rows[start:stop], side="right")
            used = np.unique(block)
            raw = table["raw_length"][used].astype(np.int64)
            for first, last in _stretches(used, raw):
                mine = np.flatnonzero((block >= first) & (block <= last)) + start
                begin = int(ends[first]) - int(table["rows"][first])
                yield _Group(item, first, last + 1, order[mine], rows[mine] - begin)

    def _values(self, reader: ObjectReader, group: _Group, name: str, kind: pa.DataType) -> pa.Array:
        block = _records(self.place, reader, group)
        rows, again = np.unique(group.rows, return_inverse=True)
        if len(rows) < len(block):
            block = block.only(rows)
        inflated = block.inflated(INFLATED_BYTES) if name == "body" and self.inflate else (block,)
        parts = [part.column(name, kind).cast(kind) for part in inflated]
        values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return values if len(rows) == len(group.rows) else values.take(pa.array(again))


def _stretches(blocks: Ints, sizes: Ints) -> Iterator[tuple[int, int]]:
    """First and last of neighbouring blocks, about ``GROUP_BYTES`` together."""
    first, size = 0, 0
    for n in range(len(blocks)):
        if n > first and (blocks[n] != blocks[n - 1] + 1 or size + sizes[n] > GROUP_BYTES):
            yield int(blocks[first]), int(blocks[n - 1])
            first, size = n, 0
        size += int(sizes[n])
    yield int(blocks[first]), int(blocks[-1])


def _size(block: RecordBlock) -> int:
    return len(block.data) + block.headers.nbytes


_lock = threading.Lock()
_kept: LRUCache[tuple[Any, ...], RecordBlock] = LRUCache(KEPT_BYTES, getsizeof=_size)


def _records(place: ArchivePlace, reader: ObjectReader, group: _Group) -> RecordBlock:
    """All records of a group, kept for a while: the other columns of the same rows are asked for next."""
    name = (place, group.item.ref, group.first_block, group.end_block)
    with _lock:
        found = _kept.get(name)
    if found is None:
        data = b"".join(reader.block_bytes(group.item, group.first_block, group.end_block))
        rows = int(reader.block_table(group.item)["rows"][group.first_block : group.end_block].sum())
        found = RecordBlock.parse(data, rows, reader.key_of(group.item))
        with _lock:
            if _size(found) <= _kept.maxsize:
                _kept[name] = found
    return found


@lru_cache(maxsize=4)
def _open(place: ArchivePlace) -> ObjectReader:
    return open_objects(place)
