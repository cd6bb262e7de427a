"""Sealed history by Spark's own reader of Parquet, and what is not sealed yet by our source, as one frame. Where keys are asked
for our source reads all of it: its plan finds their rows.

Each archive is opened once, here; all parts of the frame are of that one commit. Spark learns exactly which files to read, and
of those that are not alive as a whole which rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA
from tiered.codec.record.layout import SYS_COMPRESSED
from tiered.errors import Corrupt, Invalid
from tiered_spark.columns import COLUMNS, arrow_schema, message_schema, parse_columns
from tiered_spark.enginepaths import engine_path, lacking
from tiered_spark.errors import plainly
from tiered_spark.inflate import Inflater
from tiered_spark.late import BATCH_ROWS, MAX_VALUE_BYTES, PINNED
from tiered_spark.loss import check_bounds, own_bounds, warn_of_gaps
from tiered_spark.options import Options, exactly, parse_options, perhaps
from tiered_spark.optionvalues import by_name
from tiered_spark.plan import check_topics, wanted_runs
from tiered_spark.ranges import Range
from tiered_spark.sealedfiles import PART_DTYPE, SealedFiles, sealed_files
from tiered_spark.snapshot import Snapshot, open_snapshots
from tiered_spark.there import check_there
from tiered_spark.wanted import first_wish

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "recursiveFileLookup": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "parquet.filter.dictionary.enabled": "false",  # it passes over rows by dictionaries whose checksum it does not compare
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""Of Spark's reader: whatever a session says, a file that is gone or damaged is an error, and times are in ISO 8601's calendar,
as they were written."""

_YEARS = Range(-62_135_596_800_000, 253_402_300_800_000)
"""From the year 1 to the end of 9999, in ms: other store times are null in a sealed file, and Spark cannot name all of them."""

UNPROVEN = {
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
}
"""And of files whose filters and page index nobody has proven: a flipped bit there would pass over rows."""

V1_SOURCES = "spark.sql.sources.useV1SourceList"
"""The setting of Spark by which it reads Parquet with the reader that numbers rows, as it does by default."""

_PLACE = ("cluster", "broker")


def frame(spark: SparkSession, archive: str, **options: object) -> DataFrame:
    """The messages of an archive (several: joined with commas) as they are now: ``frame(spark, "s3://…", topics="Orders*")``.

    Options are those of the format; columns and rows are those that it gives. ``Invalid`` for options that it cannot follow;
    ``Refused`` for an archive that Hadoop's file systems do not reach; errors else as of the format.
    """
    named = by_name({"archive": archive, **options})
    parsed = parse_options(named, stream=False)
    if parsed.table != "messages" or parsed.on_damage != "fail" or not parsed.sealed:
        raise Invalid(
            "a frame is of all messages, and damage fails its queries",
            found=f"table={parsed.table}, onDamage={parsed.on_damage}, sealed={str(parsed.sealed).lower()}",
            hint="spark.read.format('rocketmq_tiered') takes these options",
        )
    names = parse_columns(parsed.columns) if parsed.columns else tuple(COLUMNS)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        hint = "spark.read.format('rocketmq_tiered') has all; columns here: " + ", ".join(COLUMNS)
        raise Invalid("a frame has no such column", column=unknown[0], hint=hint)
    snapshots, wanted = open_snapshots(parsed, keep=bool(parsed.keys)), first_wish(parsed)
    found = [(snapshot, wanted_runs(snapshot, parsed, wanted)) for snapshot in snapshots]
    check_topics(parsed, [runs.queues for _, runs in found])
    check_bounds(parsed, snapshots)
    warn_of_gaps(parsed, snapshots)
    for snapshot, runs in found:
        check_there(snapshot, runs, parsed)
    parts = []
    for snapshot, runs in found:
        if parsed.keys:  # of lists Spark's reader asks no filter, and would read every row
            parts.append(_of_source(spark, snapshot, named, parsed, names, sealed=True))
            continue
        files = sealed_files(snapshot, parsed, wanted)
        parts += _of_files(spark, snapshot, files, parsed, names)
        if files.wanted_runs < len(runs) or not parts:
            parts.append(_of_source(spark, snapshot, named, parsed, names))
    return reduce(lambda above, below: above.unionByName(below), parts)


def _of_source(
    spark: SparkSession,
    snapshot: Snapshot,
    options: Mapping[str, str],
    parsed: Options,
    names: tuple[str, ...],
    *,
    sealed: bool = False,
) -> DataFrame:
    """What is not sealed; with ``sealed`` all of it."""
    place = snapshot.place
    mine = own_bounds(snapshot, parsed, options)
    chosen = {key: value for key, value in mine.items() if key.lower() not in PINNED}
    chosen |= {
        "archive": place.url, "cluster": exactly(place.cluster), "broker": exactly(place.broker),
        "asOfCommit": str(snapshot.commit), **perhaps(parsed.topics), "columns": ",".join(names),
        "sealed": str(sealed).lower(),
    }  # fmt: skip
    return spark.read.format("rocketmq_tiered").options(**chosen).load()


def _of_files(
    spark: SparkSession, snapshot: Snapshot, files: SealedFiles, options: Options, names: tuple[str, ...]
) -> list[DataFrame]:
    """What is sealed; no frame where nothing is."""
    from pyspark.sql import functions as f

    parts = _read(spark, snapshot, files, files.whole)
    if files.cut:
        parts.append(_alive(spark, snapshot, files))
    if not parts:
        return []
    rows = reduce(lambda above, below: above.unionByName(below), parts)
    for condition in _conditions(options):
        rows = rows.where(condition)
    shown = [
        f.lit(getattr(snapshot.place, name)).alias(name) if name in _PLACE else f.col(name) for name in names
    ]
    if "body" not in names or not options.decode_body:
        return [rows.select(*shown)]
    packed = f.col("sys_flag").bitwiseAND(SYS_COMPRESSED) != 0
    # Statistics of a row group say that all its flags are 0, and it is passed over.
    some = rows.where((f.col("sys_flag") != 0) & packed).withColumn("body", _inflated(snapshot))
    return [rows.where(f.col("sys_flag").isNull() | ~packed).select(*shown), some.select(*shown)]


def sealed_schema() -> StructType:
    """Of sealed files, so that Spark opens none to learn it."""
    return from_arrow_schema(MESSAGE_SCHEMA)


def _read(
    spark: SparkSession, snapshot: Snapshot, files: SealedFiles, paths: tuple[str, ...]
) -> list[DataFrame]:
    """Rows of some of the files; those whose indexes may be used, and the others."""
    keys, parts = snapshot.view.keys, []
    for more in ({}, UNPROVEN):
        some = [path for path in paths if (path in files.unindexed) == bool(more)]
        if some:
            named = [engine_path(snapshot.place.url, keys.key(path)) for path in some]
            reader = spark.read.schema(sealed_schema()).options(**OPTIONS, **more)
            try:
                parts.append(reader.parquet(*named))
            except Exception as error:
                found = lacking(error, snapshot.place.url, "spark.read.format('rocketmq_tiered') reads it")
                if found is None:
                    raise
                raise found from error
    return parts


def _alive(spark: SparkSession, snapshot: Snapshot, files: SealedFiles) -> DataFrame:
    """Rows of cut files, each compared with the live runs of its file and queue."""
    from pyspark.sql import functions as f

    first = str(spark.conf.get(V1_SOURCES, "parquet"))
    if "parquet" not in [name.strip().lower() for name in first.split(",")]:
        raise Invalid(
            "of some sealed files not all rows may be shown, and this session's reader of Parquet does not number rows",
            setting=V1_SOURCES, found=first, expected="parquet among them",
            hint="unset it; spark.read.format('rocketmq_tiered') reads the archive with it",
        )  # fmt: skip
    names = [path.rpartition("/")[2] for path in files.cut]
    columns = {name: files.parts[name] for name in PART_DTYPE.names or () if name != "file"}
    table = pa.table({"file": [names[i] for i in files.parts["file"].tolist()], **columns})
    live = f.broadcast(spark.createDataFrame(table)).alias("live")
    at = (f.col("_metadata.file_name").alias("_file"), f.col("_metadata.row_index").alias("_row"))
    parts = [rows.select("*", *at) for rows in _read(spark, snapshot, files, files.cut)]
    numbered = reduce(lambda above, below: above.unionByName(below), parts).alias("rows")
    stored = f.coalesce(f.unix_millis(f.col("rows.store_timestamp")), f.lit(Range().low))
    same = (
        (f.col("_file") == f.col("live.file"))
        & (f.col("rows.queue_id") == f.col("live.queue_id"))
        & (f.col("_row") >= f.col("live.first_row"))
        & (f.col("_row") < f.col("live.end_row"))
        & f.col("rows.queue_offset").between(f.col("live.first_offset"), f.col("live.last_offset"))
        & stored.between(f.col("live.early"), f.col("live.late"))
    )
    return numbered.join(live, same, "left_semi").drop("_file", "_row")


def _conditions(options: Options) -> list[Column]:
    """What options say of every row."""
    from pyspark.sql import functions as f

    found = []
    for low, end, column, value in (
        (options.starting_offset, options.ending_offset, "queue_offset", f.lit),
        (options.starting_ms, options.ending_ms, "store_timestamp", _moment),
    ):
        found += [f.col(column) >= value(low)] if low is not None else []
        found += [f.col(column) < value(end)] if end is not None else []
    if options.queue_ids:
        found.append(f.col("queue_id").isin(list(options.queue_ids)))
    if options.tags:
        found.append(f.col("tags").isin(list(options.tags)))
    return found


def _moment(ms: int) -> Column:
    from pyspark.sql import functions as f

    return f.timestamp_millis(f.lit(min(max(ms, _YEARS.low), _YEARS.high)))


def _inflated(snapshot: Snapshot) -> Column:
    """Bodies that clients compressed, as they were before."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    where = str(snapshot.place)

    def inflate(bodies: pa.Array, flags: pa.Array) -> pa.Array:
        with plainly():
            return _all_inflated(bodies, flags, where)

    made: Callable[..., Column] = arrow_udf(inflate, COLUMNS["body"].kind)  # type: ignore[call-overload]
    return made(f.col("body"), f.col("sys_flag"))


def _all_inflated(bodies: pa.Array, flags: pa.Array, where: str) -> pa.Array:
    inflater, size = Inflater(), 0
    made: list[bytes] = []
    for body, flag in zip(bodies, flags.to_pylist(), strict=True):
        packed = memoryview(body.as_buffer())
        try:
            made.append(inflater.inflate(packed, flag) if len(packed) else b"")
        except ValueError as error:
            hint = "frame(…, decodeBody=False) gives bodies as they are stored"
            raise Corrupt("a body cannot be decompressed", hint=hint, key=where, found=str(error)) from error
        size += len(made[-1])
        if size > MAX_VALUE_BYTES:
            raise Invalid(
                "a batch of bodies is too large", expected=f"at most {MAX_VALUE_BYTES} bytes", found=len(bodies),
                hint=f"set {BATCH_ROWS} to fewer rows than {len(bodies)}",
            )  # fmt: skip
    return pa.array(made, arrow_schema(message_schema(("body",))).field(0).type)
