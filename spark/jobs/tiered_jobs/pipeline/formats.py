"""Table formats that bronze may be written in: how each is written, and read again, as a table and as a stream of new rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tiered.errors import Refused
from tiered_jobs.pipeline.table import Files
from tiered_spark.columns import message_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType


NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class TableFormat(ABC):
    """A format of the table in directory ``place``."""

    name: str

    @abstractmethod
    def check(self, spark: SparkSession) -> None:
        """``Refused`` where the session cannot write it."""

    def start(self, writer: DataStreamWriter, place: str) -> StreamingQuery:
        """The query that appends."""
        return writer.format(self.name).start(place)

    @abstractmethod
    def there(self, spark: SparkSession, place: str) -> bool:
        """Whether a batch was ever written."""

    def stream(self, spark: SparkSession, place: str) -> DataFrame:
        """Rows that a query has not seen."""
        return spark.readStream.format(self.name).load(place)

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        """All rows of now."""
        return spark.read.format(self.name).load(place)


class Parquet(TableFormat):
    """Spark's own file sink, whose list of files says which count."""

    name = "parquet"

    def check(self, spark: SparkSession) -> None:
        """See ``TableFormat``: every session can."""

    def there(self, spark: SparkSession, place: str) -> bool:
        """See ``TableFormat``."""
        return any(name[:1].isdigit() for name in Files(spark).names(f"{place}/_spark_metadata"))

    def stream(self, spark: SparkSession, place: str) -> DataFrame:
        """See ``TableFormat``; only what a batch has written completely."""
        return _with_topics(spark.readStream.schema(bronze_schema()).parquet(place))

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        """See ``TableFormat``."""
        return _with_topics(spark.read.schema(bronze_schema()).parquet(place))


class Delta(TableFormat):
    """Delta Lake."""

    name = "delta"

    def check(self, spark: SparkSession) -> None:
        """See ``TableFormat``."""
        _check(spark, self.name, "org.apache.spark.sql.delta.sources.DeltaDataSource", (4, 3))

    def there(self, spark: SparkSession, place: str) -> bool:
        """See ``TableFormat``."""
        return any(name.endswith(".json") for name in Files(spark).names(f"{place}/_delta_log"))


class Iceberg(TableFormat):
    """Iceberg, in a catalog of the table's own directory."""

    name = "iceberg"
    catalog = "tiered_pipeline"

    def check(self, spark: SparkSession) -> None:
        """See ``TableFormat``."""
        _check(spark, self.name, "org.apache.iceberg.spark.SparkCatalog", (4, 2))

    def start(self, writer: DataStreamWriter, place: str) -> StreamingQuery:
        """See ``TableFormat``. A batch has rows of many topics and days, in no order."""
        return writer.format(self.name).option("fanout-enabled", "true").toTable(self._table(None, place))

    def there(self, spark: SparkSession, place: str) -> bool:
        """See ``TableFormat``."""
        return any(name.endswith(".metadata.json") for name in Files(spark).names(f"{place}/metadata"))

    def stream(self, spark: SparkSession, place: str) -> DataFrame:
        """See ``TableFormat``."""
        return spark.readStream.format(self.name).load(self._table(spark, place))

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        """See ``TableFormat``."""
        return spark.table(self._table(spark, place))

    def _table(self, spark: SparkSession | None, place: str) -> str:
        from pyspark.sql import SparkSession

        session = spark or SparkSession.getActiveSession()
        assert session is not None
        directory, _, name = place.rpartition("/")
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": directory}
        for key, value in settings.items():
            session.conf.set(f"spark.sql.catalog.{self.catalog}{key}", value)
        return f"{self.catalog}.{name}"


FORMATS: Mapping[str, TableFormat] = {each.name: each for each in (Parquet(), Delta(), Iceberg())}


def bronze_schema() -> StructType:
    """The columns of the archive and ``store_date``. Topics stay texts: Spark would take one named ``42`` for a number."""
    return message_schema().add("store_date", "date")


def _with_topics(rows: DataFrame) -> DataFrame:
    """A topic may have the very name that a directory of Hive's has for null; no message is without a topic."""
    from pyspark.sql import functions as sf

    return rows.withColumn("topic", sf.coalesce("topic", sf.lit(NO_PARTITION)))


def _check(spark: SparkSession, name: str, java: str, before: tuple[int, int]) -> None:
    """``Refused`` for a Spark from version ``before`` on, for which the format has no release, or without its classes."""
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    found: Any = spark._jvm
    for part in java.split("."):
        found = getattr(found, part)
    if version < before and type(found).__name__ == "JavaClass":
        return
    raise Refused(
        f"this session of Spark cannot write {name}", flag="--format", found=f"Spark {spark.version}",
        expected=f"Spark below {before[0]}.{before[1]}, with the format's package",
        hint="--format parquet; see spark/jobs/pipeline.md",
    )  # fmt: skip
