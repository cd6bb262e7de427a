"""Gold: volume, delay and retries per topic, tag and hour of store time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiered_jobs.pipeline.bronze import Bronze
from tiered_jobs.pipeline.queries import Hours, drain
from tiered_jobs.pipeline.table import checkpoint
from tiered_jobs.work import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_DATES = 1000
"""More days than this in one batch, and all of bronze is looked through."""

ACCURACY = 10_000
"""Of percentiles: ranks are right to a ten-thousandth."""


def fill(work: Work, bronze: Bronze) -> dict[str, object]:
    """Make the days again that new messages belong to; the part of the summary about it.

    A day's figures are always made from all its messages and replace those before, so running twice changes nothing.
    """
    place, written = bronze.table.gold, [0, 0]

    def renew(batch: DataFrame, number: int) -> None:
        touched = batch.select("topic", "store_date").distinct().persist()
        made = figures(_days(bronze, touched)).repartition("topic", "store_date").persist()
        try:
            rows, days = _sizes(made)
            writer = made.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
            writer.partitionBy("topic", "store_date").parquet(place)
        finally:
            made.unpersist()
            touched.unpersist()
        written[:] = written[0] + rows, written[1] + days

    writer = bronze.stream(work.spark).writeStream.foreachBatch(renew).queryName("gold")
    query = writer.option("checkpointLocation", checkpoint(place)).trigger(availableNow=True).start()
    drain(query, lambda text: work.say(f"gold: {text}"), bronze.beat)
    return {"rows": written[0], "topic_days": written[1]}


def _days(bronze: Bronze, touched: DataFrame) -> DataFrame:
    """All rows of bronze of these topics and days; only files of these days are read."""
    from pyspark.sql import functions as sf

    rows = bronze.read(touched.sparkSession)
    days = touched.select("store_date").distinct().limit(MAX_DATES + 1).collect()
    if len(days) <= MAX_DATES:
        rows = rows.filter(sf.col("store_date").isin([row.store_date for row in days]))
    return rows.join(touched, ["topic", "store_date"], "left_semi")


def _sizes(made: DataFrame) -> tuple[int, int]:
    """Rows, and topics times days."""
    from pyspark.sql import functions as sf

    row = made.agg(sf.count(sf.lit(1)), sf.count_distinct("topic", "store_date")).collect()[0]
    return int(row[0]), int(row[1])


def figures(rows: DataFrame) -> DataFrame:
    """One row per topic, tag and hour. Delays in ms from the client's clock to the broker's: below 0 where they differ."""
    from pyspark.sql import functions as sf

    delay = sf.unix_millis("store_timestamp") - sf.unix_millis("born_timestamp")
    named = rows.select(
        "topic", "store_date", sf.col("tags").alias("tag"), Hours(sf.col("store_timestamp")).hour().alias("hour"),
        "body_size", "reconsume_times", delay.alias("delay"),
    )  # fmt: skip
    grouped = named.groupBy("topic", "store_date", "tag", "hour").agg(
        sf.count(sf.lit(1)).alias("messages"),
        sf.sum(sf.col("body_size").cast("long")).alias("bytes"),
        sf.percentile_approx("delay", [0.5, 0.99], ACCURACY).alias("delays"),
        sf.max("delay").alias("delay_max_ms"),
        sf.count_if(sf.col("reconsume_times") > 0).alias("retries"),
    )
    return grouped.select(
        "topic", "store_date", "tag", "hour", "messages", "bytes", sf.col("delays")[0].alias("delay_p50_ms"),
        sf.col("delays")[1].alias("delay_p99_ms"), "delay_max_ms", "retries",
    )  # fmt: skip
