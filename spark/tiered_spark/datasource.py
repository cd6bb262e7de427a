"""The data source that Spark calls: its schema, its reader, its partitions.

Spark plans in Python processes of its own, and a session's first query waits for them to begin: what only some plans need is
imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tiered.errors import Invalid
from tiered_spark.columns import check_schema, message_schema, needs_records, parse_columns
from tiered_spark.options import Options, parse_options
from tiered_spark.plain import plainly
from tiered_spark.plan import partitions, wanted_runs
from tiered_spark.pushdown import first_wish, narrow
from tiered_spark.snapshot import open_snapshots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tiered_spark.runs import RunTable
    from tiered_spark.snapshot import Snapshot

HEADER_PARTS = 8
"""How many times ``partitionBytes`` a task has whose columns need no record."""

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the formats ``rocketmq_tiered`` and ``rocketmq_tiered_replay`` known to a session.

    Lets Spark hand the filters of queries to those frames that ask for them with the option ``pushFilters``.
    """
    from tiered_spark.replay.source import TieredReplay

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(TieredDataSource)
    spark.dataSource.register(TieredReplay)


class TieredDataSource(DataSource):
    """Archived messages, or a table about them; see ``spark/README.md`` for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq_tiered"

    @plainly()
    def schema(self) -> StructType | str:
        """Of the table that the options name."""
        options = parse_options(self.options)
        if options.table != "messages":
            if options.columns:
                raise Invalid(
                    "the option columns goes with messages",
                    table=options.table,
                    hint="select() what you need",
                )
            from tiered_spark.tables import METADATA

            return METADATA[options.table].schema
        return message_schema(parse_columns(options.columns)) if options.columns else message_schema()

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """For a table of metadata or for messages."""
        options = parse_options(self.options)
        if options.table != "messages":
            return MetadataReader(options)
        return MessageReader(options, schema)

    @plainly()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For messages."""
        options = parse_options(self.options)
        if options.table != "messages":
            raise Invalid(
                "only messages can be streamed", option="table", found=options.table, hint="use spark.read"
            )
        from tiered_spark.stream import MessageStreamReader

        return MessageStreamReader(options, schema)


class MetadataReader(DataSourceReader):
    """Rows that are known where the scan is planned, or cheap to fetch: one task per archive table."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """All rows, of all archives."""
        from tiered_spark.tables import METADATA

        with plainly():
            for snapshot in open_snapshots(self._options):
                yield from METADATA[self._options.table].rows(snapshot, self._options)


class _Pushed:
    """``pushFilters`` of one reader. Spark refuses a reader of a class that overrides it in sessions that do not push filters;
    there this scan is right too, only it reads more."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take(filters)


class MessageReader(DataSourceReader):
    """Plans a scan of messages on the driver and reads its partitions on executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """``Invalid`` for columns that a message has not, or not with such a type."""
        check_schema(schema)
        self._options, self._spark_schema = options, schema
        self._wanted = first_wish(options)
        self.pushFilters = _Pushed(self)  # type: ignore[method-assign]

    def take(self, filters: list[Filter]) -> Iterable[Filter]:
        """Learn from the filters, if the options say so; Spark applies all of them itself as well.

        Spark 4.3 keeps what it pushed last with the loaded frame, and reads the frame's next query with the same plan, whatever
        its filters: rows would be missing without an error.
        """
        if self._options.push_filters:
            self._wanted = narrow(self._wanted, filters)
        return filters

    @plainly()
    def partitions(self) -> list[InputPartition]:
        """The whole plan: one fold per archive; of objects nothing is read but where keys are wanted."""
        made: list[InputPartition] = []
        options = self._options
        if not needs_records(self._spark_schema.names):
            # Such tasks read a small part of the bytes, and each costs a start.
            options = replace(options, partition_bytes=HEADER_PARTS * options.partition_bytes)
        for snapshot in open_snapshots(options):
            made += partitions(snapshot, self._runs(snapshot), options)
        return made

    def _runs(self, snapshot: Snapshot) -> RunTable:
        runs = wanted_runs(snapshot, self._options, self._wanted)
        if not self._wanted.by_key:
            return runs
        from tiered_spark.keyed import holding_runs

        return holding_runs(snapshot, runs, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one partition."""
        from tiered_spark.scan import read_partition

        return read_partition(partition, self._options, self._wanted, self._spark_schema)
