"""Silver: bodies decoded by declaration, each message once; what cannot be decoded goes to the dead letters."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tiered_jobs.pipeline.bronze import Bronze
from tiered_jobs.pipeline.declarations import Declaration
from tiered_jobs.pipeline.decode import Decoder, decoder
from tiered_jobs.pipeline.queries import drain, dropped
from tiered_jobs.pipeline.table import Files, checkpoint, keep, last_batch
from tiered_jobs.work import Work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACE = ("cluster", "broker", "topic", "queue_id", "queue_offset", "store_timestamp")
READ = (*PLACE, "born_timestamp", "tags", "keys", "unique_key", "body", "store_date")
"""Columns of bronze that silver is made from."""

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
_PARTS = "spark.sql.shuffle.partitions"
MAX_PARTS = 200


@dataclass(slots=True)
class Filled:
    """What one declaration added."""

    rows: int = 0
    bytes: int = 0
    dead_letters: int = 0
    late: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Silver:
    """One declaration at work. ``others``: patterns before its own, whose topics are not its."""

    declared: Declaration
    others: tuple[str, ...]
    decode: Decoder

    def fill(self, work: Work, bronze: Bronze) -> Filled:
        """Take what bronze has that this table has not.

        A query runs one batch and ends. One that was cut off is done again with the watermark it had, in a run of its own: only
        then is what is late in the next one known.
        """
        filled = Filled()
        with _settings(work.spark, _STATE | _parts(work.spark)):
            unfinished = True
            while unfinished:
                unfinished = self._batch(work, bronze, filled)
        return filled

    def _batch(self, work: Work, bronze: Bronze, filled: Filled) -> bool:
        """True if it was an unfinished one, and new rows may be there."""
        name, place = self.declared.table, bronze.table.silver(self.declared.table)
        unfinished, watermark = last_batch(Files(work.spark), place)

        def write(batch: DataFrame, number: int) -> None:
            self._write(bronze, batch, number, filled)

        rows = self.distinct(bronze.stream(work.spark), watermark)
        writer = rows.writeStream.foreachBatch(write).queryName(f"silver {name}")
        query = writer.option("checkpointLocation", checkpoint(place)).trigger(once=True).start()
        batches = drain(query, lambda text: work.say(f"silver {name}: {text}"), bronze.beat)
        filled.duplicates += dropped(batches, "numDroppedDuplicateRows")
        lost = dropped(batches, "numRowsDroppedByWatermark")
        if lost:
            work.say(f"silver {name}: {lost:,} late rows were dropped; bronze has them")
        return unfinished is not None

    def distinct(self, rows: DataFrame, watermark: int) -> DataFrame:
        """Rows of the declared topics without duplicates, with ``late``.

        Spark forgets unique keys, and drops rows, behind the watermark. A row there is instead taken as if it came just before
        it, marked, and compared with the keys that are still known.
        """
        from pyspark.sql import functions as sf

        mine = rows.filter(topic_matches(self.declared.topics))
        for pattern in self.others:
            mine = mine.filter(~topic_matches(pattern))
        edge = sf.timestamp_millis(sf.lit(watermark))
        # Where a queue began anew or a broker lost its tail, a queue offset comes again, with another time or physical offset.
        own = sf.concat_ws("/", *(sf.col(name).cast("string") for name in (*PLACE, "physical_offset")))
        named = mine.select(
            *READ, (sf.col("store_timestamp") <= edge).alias("late"),
            sf.coalesce("unique_key", own).alias("__key"),
            sf.greatest("store_timestamp", sf.timestamp_millis(sf.lit(watermark + 1))).alias("__seen"),
        )  # fmt: skip
        known = named.withWatermark("__seen", f"{self.declared.within_ms} milliseconds")
        return known.dropDuplicatesWithinWatermark(["topic", "__key"]).drop("__key", "__seen")

    def _write(self, bronze: Bronze, batch: DataFrame, number: int, filled: Filled) -> None:
        """A batch has directories of its own, which are replaced if it is done again."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as sf

        name = self.declared.table
        decoded = self.decode(batch).persist(StorageLevel.DISK_ONLY)
        try:
            good = sf.col("reason").isNull()
            counted = decoded.agg(
                sf.count_if(good), sf.count_if(~good), sf.count_if(good & sf.col("late")),
                sf.sum(sf.when(good, sf.octet_length("body"))),
            ).collect()[0]  # fmt: skip
            rows, dead, late, size = (int(value or 0) for value in counted)
            if rows:
                kept = [column for column in READ if column != "body"]
                table = decoded.filter(good).select(*kept, "late", "value")
                place = f"{bronze.table.silver(name)}/batch={number}"
                table.write.mode("overwrite").partitionBy("store_date").parquet(place)
            if dead:
                letters = decoded.filter(~good).select(*PLACE, "unique_key", "reason", "body")
                letters.write.mode("overwrite").parquet(f"{bronze.table.dead_letter(name)}/batch={number}")
        finally:
            decoded.unpersist()
        filled.rows += rows
        filled.bytes += size
        filled.late += late
        filled.dead_letters += dead

    def keep(self, work: Work, bronze: Bronze) -> None:
        """``Refused`` for a table that was made with another declaration: rows of two schemas would lie in it otherwise."""
        name = self.declared.table
        wanted: dict[str, object] = {
            "topics": self.declared.topics, "format": self.declared.format, "before it": list(self.others),
            "duplicates_within": self.declared.within_ms, **self.declared.values,
        }  # fmt: skip
        keep(
            Files(work.spark), f"{bronze.table.silver(name)}/_declaration.json", wanted, what=f"the silver table {name}",
            hint=f'give the declaration another name: table = "…", or delete silver/{name} and dead_letter/declaration={name}',
        )  # fmt: skip


def prepare(spark: SparkSession, declarations: Sequence[Declaration]) -> list[Silver]:
    """All declarations, checked with Spark. ``Invalid`` as of ``decoder``."""
    return [
        Silver(one, tuple(before.topics for before in declarations[:i]), decoder(spark, one))
        for i, one in enumerate(declarations)
    ]


def fill(work: Work, bronze: Bronze, tables: Sequence[Silver]) -> dict[str, object]:
    """Every declaration, one after the other; the part of the summary about it."""
    return {one.declared.table: asdict(one.fill(work, bronze)) for one in tables}


def topic_matches(pattern: str) -> Column:
    """Whether a row's topic matches a shell pattern. Java's regular expressions understand what ``fnmatch`` makes."""
    from pyspark.sql import functions as sf

    return sf.col("topic").rlike(f"^{fnmatch.translate(pattern)}")


def _parts(spark: SparkSession) -> dict[str, str]:
    """Parts of the keys that are known; a table keeps its number. Spark's 200 are slow where there are few cores."""
    if spark.sparkContext.getConf().contains(_PARTS):
        return {}
    return {_PARTS: str(min(MAX_PARTS, max(4, 2 * spark.sparkContext.defaultParallelism)))}


@contextlib.contextmanager
def _settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
