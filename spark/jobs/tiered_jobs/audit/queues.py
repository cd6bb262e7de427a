"""Checked ranges against what the archive says of its queues: contiguous, complete, counted right. All of it runs on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tiered_jobs.audit.check import SCHEMA, check, shares
from tiered_spark.options import Options
from tiered_spark.plan import partitions, wanted_runs
from tiered_spark.snapshot import Snapshot
from tiered_spark.wanted import first_wish

if TYPE_CHECKING:
    from tiered_jobs.work import Work

QUEUE = ("cluster", "broker", "topic", "queue_id")

DIFFERENCE = (
    "what string, cluster string, broker string, topic string, queue_id int, start_offset long, end_offset long, key string, "
    "block int, detail string"
)
"""A difference: what is wrong, in which queue and queue offsets, in which object and block, as far as each is known."""

NAMES = tuple(part.split()[0] for part in DIFFERENCE.split(","))


def checked(work: Work, snapshots: Sequence[Snapshot], options: Options, *, quick: bool) -> DataFrame:
    """``check.SCHEMA``: every live run of every archive, read by as many tasks as a scan has partitions."""
    wanted = first_wish(options)
    parts = list(
        chain.from_iterable(
            shares(partitions(s, wanted_runs(s, options, wanted), options)) for s in snapshots
        )
    )
    if not parts:
        return work.spark.createDataFrame([], SCHEMA)
    found = work.spark.sparkContext.parallelize(parts, len(parts)).flatMap(partial(check, quick=quick))
    return work.spark.createDataFrame(found, SCHEMA)


def damage(ranges: DataFrame) -> DataFrame:
    """Differences: what could not be read or is not what its checksum says."""
    bad = ranges.filter("error is not null")
    return bad.select(F.col("error").alias("what"), *NAMES[1:])


def contiguity(ranges: DataFrame, queues: DataFrame, gaps: DataFrame) -> DataFrame:
    """Differences: queue offsets of [min, max) that are nowhere, or twice. Damaged ranges and recorded gaps count as there.

    ``queues`` and ``gaps``: the tables of these names.
    """
    known = queues.filter("generation is not null")
    read = ranges.filter("start_offset < end_offset").select(*QUEUE, "start_offset", "end_offset")
    lost = gaps.join(known.select(*QUEUE, "generation", "min_offset"), [*QUEUE, "generation"]).select(
        *QUEUE, F.greatest("start_offset", "min_offset").alias("start_offset"), "end_offset"
    )
    edges = [
        known.select(*QUEUE, F.col(edge).alias("start_offset"), F.col(edge).alias("end_offset"))
        for edge in ("min_offset", "max_offset")
    ]
    together = reduce(DataFrame.union, [read, lost.filter("start_offset < end_offset"), *edges])
    # An edge is an empty range: one at the maximum comes behind whatever ends there, as ranges are ordered by start, then end.
    before = (
        Window.partitionBy(*QUEUE)
        .orderBy("start_offset", "end_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    seen = together.withColumn("reached", F.max("end_offset").over(before)).filter("start_offset <> reached")
    missing = F.col("start_offset") > F.col("reached")
    edge = F.col("start_offset") == F.col("end_offset")
    what = F.when(missing, F.lit("queue offsets are missing")).when(
        edge, F.lit("queue offsets lie outside the queue")
    )
    end = F.when(missing, F.col("start_offset")).when(edge, F.col("reached"))
    return seen.select(
        what.otherwise(F.lit("queue offsets come twice")).alias("what"), *QUEUE,
        F.least("start_offset", "reached").alias("start_offset"),
        end.otherwise(F.least("end_offset", "reached")).alias("end_offset"),
        *nothing("key string", "block int", "detail string"),
    )  # fmt: skip


def counters(ranges: DataFrame, queues: DataFrame) -> DataFrame:
    """Differences: queues whose own counter of messages is not what was read, damaged ranges included."""
    width = F.sum(F.col("end_offset") - F.col("start_offset")).alias("found")
    read = ranges.filter("topic is not null").groupBy(*QUEUE).agg(width)
    both = queues.filter("generation is not null").join(read, list(QUEUE), "left")
    found = F.coalesce("found", F.lit(0))
    text = F.concat(F.lit("the archive counts "), F.col("messages"), F.lit(", found "), found)
    return both.filter(F.col("messages") != found).select(
        F.lit("a queue's counter is wrong").alias("what"), *QUEUE, F.col("min_offset").alias("start_offset"),
        F.col("max_offset").alias("end_offset"), *nothing("key string", "block int"), text.alias("detail"),
    )  # fmt: skip


def nothing(*columns: str) -> list[Column]:
    """Null, under each of these names and types."""
    return [F.lit(None).cast(kind).alias(name) for name, kind in (column.split() for column in columns)]
