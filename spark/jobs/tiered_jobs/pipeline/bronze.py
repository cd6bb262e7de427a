"""Bronze: every archived message as it is, once, by topic and day of its store time."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiered.errors import NotFound
from tiered_jobs.pipeline.formats import TableFormat
from tiered_jobs.pipeline.queries import Hours, drain, observed
from tiered_jobs.pipeline.table import Files, Table, checkpoint, keep
from tiered_jobs.work import Work
from tiered_spark.columns import COLUMNS
from tiered_spark.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = ",".join(COLUMNS)
"""Bronze is the one layer that keeps everything, bodies too: the others are made from it, and may be made again."""

METRICS = "bronze"


@dataclass(frozen=True, slots=True)
class Bronze:
    """The table of messages. ``beat``: called while a query of any layer runs."""

    table: Table
    beat: Callable[[], None]
    format: TableFormat

    def fill(self, work: Work, batch_bytes: int) -> dict[str, object]:
        """Take what the archive has committed since the last run; the part of the summary about it."""
        from pyspark.sql import functions as sf

        self._keep(work)
        strict = str(not work.args.skip_lost).lower()
        options = work.options(columns=ALL, maxBytesPerTrigger=batch_bytes or None, failOnDataLoss=strict)
        rows = work.spark.readStream.format("rocketmq_tiered").options(**options).load()
        counted = rows.withColumn("store_date", Hours(sf.col("store_timestamp")).date()).observe(
            METRICS, sf.count(sf.lit(1)).alias("rows"), sf.sum(sf.octet_length("body")).alias("bytes")
        )
        writer = counted.writeStream.partitionBy("topic", "store_date").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", checkpoint(self.table.bronze)).queryName("bronze")
        query = self.format.start(writer, self.table.bronze)
        batches = drain(query, lambda text: work.say(f"bronze: {text}"), self.beat)
        return {
            "rows": observed(batches, METRICS, "rows"),
            "bytes": observed(batches, METRICS, "bytes"),
            "commits": _commits(batches),
        }

    def _keep(self, work: Work) -> None:
        """A stream's positions belong to one selection of one archive: with another, messages would be missing or twice."""
        args = work.args
        chosen = {
            "archive": args.archive.partition("?")[0].rpartition("@")[2],
            "digest of the archive's URL": hashlib.sha256(args.archive.encode()).hexdigest()[:16],
            "cluster": args.cluster,
            "broker": args.broker,
            "topics": args.topics,
            "include-system-topics": args.include_system_topics,
            "from": args.start,
            "to": args.end,
            "format": self.format.name,
        }
        keep(
            Files(work.spark), f"{self.table.bronze}/_source.json", chosen, what="this table",
            hint="use the flags that it was made with, or another --table",
        )  # fmt: skip

    def there(self, spark: SparkSession) -> bool:
        """Whether a batch was ever written."""
        return self.format.there(spark, self.table.bronze)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Rows that a query has not seen."""
        return self.format.stream(spark, self.table.bronze)

    def read(self, spark: SparkSession) -> DataFrame:
        """All rows of now."""
        return self.format.read(spark, self.table.bronze)


def check(spark: SparkSession, table: Table) -> None:
    """``NotFound`` if there is no bronze to make other layers from."""
    if not Files(spark).exists(f"{table.bronze}/_source.json"):
        raise NotFound(
            "there is no bronze layer to make this from", table=table.bronze,
            hint="run the layer bronze first, or leave --layers out",
        )  # fmt: skip


def _commits(batches: list[Any]) -> dict[str, list[int]]:
    """Archive → first and last commit that batches took in."""
    found: dict[str, list[int]] = {}
    for batch in batches:
        source = batch.sources[0]
        start, end = _offset(source.startOffset), _offset(source.endOffset)
        for place, last in end.items():
            first = start.get(place, -1) + 1
            if first <= last:
                before = found.get(place, [first, last])
                found[place] = [min(before[0], first), max(before[1], last)]
    return found


def _offset(text: Any) -> dict[str, int]:
    """The commits that an offset stands behind or inside; none before the first batch. Spark 4.1 shows offsets as Python does,
    later ones as JSON."""
    try:
        found = json.loads(text) if text else None
    except ValueError:
        found = ast.literal_eval(text)
    return {place: Position.parse(shown).commit for place, shown in dict(found or {}).items()}
