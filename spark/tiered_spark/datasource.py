"""The data source that Spark calls: its schema, its reader, its partitions.

Spark plans in Python processes of its own, and a session's first query waits for them to begin: what only some plans need is
imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tiered.errors import Invalid, TieredError
from tiered_spark.columns import check_both, check_schema, message_schema, needs_records, parse_columns
from tiered_spark.errors import plainly
from tiered_spark.loss import check_bounds, warn_of_gaps
from tiered_spark.noted import note
from tiered_spark.options import Options, parse_options
from tiered_spark.plan import check_topics, enough, partitions, queue_runs, wanted_runs
from tiered_spark.snapshot import open_snapshots
from tiered_spark.sqltables import given, remembered, remembering
from tiered_spark.there import check_there
from tiered_spark.wanted import first_wish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tiered_spark.runs import RunTable
    from tiered_spark.snapshot import Snapshot

HEADER_PARTS = 8
"""How many times ``partitionBytes`` a task has whose columns need no record."""


def register(spark: SparkSession) -> None:
    """Make the formats ``rocketmq_tiered`` and ``rocketmq_tiered_replay`` known to a session."""
    from tiered_spark.replay.source import TieredReplay

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
        asked = given(self.options)
        schema = _schema(parse_options(asked.options))
        return remembering(schema, asked.options) if asked.table else schema

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """For a table of metadata or for messages."""
        options = parse_options(remembered(self.options, schema), stream=False)
        if options.table != "messages":
            return MetadataReader(options)
        check_both(options.columns, schema)
        return MessageReader(options, schema)

    @plainly()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For messages."""
        from tiered_spark.limits import ADMISSION
        from tiered_spark.stream import MessageStreamReader, RefusingReader

        try:
            options = parse_options(remembered(self.options, schema), stream=True)
            if options.table != "messages":
                raise Invalid(
                    "only messages can be streamed",
                    option="table",
                    found=options.table,
                    hint="use spark.read",
                )
            check_both(options.columns, schema)
            return MessageStreamReader(options, schema)
        except TieredError as error:
            if ADMISSION:
                raise
            return RefusingReader(error)  # Spark 4.1 shows an error of its own in the place of one from here

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """``Invalid``: an archive is read."""
        raise _only_read()

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """``Invalid``: an archive is read."""
        raise _only_read()


def _only_read() -> Invalid:
    return Invalid(
        "the format rocketmq_tiered only reads: only the daemon writes an archive",
        hint="send rows to a broker with df.write.format('rocketmq_tiered_replay'), or keep them with format('parquet')",
    )


def _schema(options: Options) -> StructType:
    if options.table == "messages":
        return message_schema(parse_columns(options.columns)) if options.columns else message_schema()
    if options.columns:
        raise Invalid(
            "the option columns is for messages only", table=options.table, hint="select() what you need"
        )
    from tiered_spark.tables import METADATA

    return METADATA[options.table].schema


class MetadataReader(DataSourceReader):
    """Rows that are known where the scan is planned, or cheap to fetch: one task per archive table."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of all archives."""
        from tiered_spark.tables import METADATA

        options = self._options
        with plainly():
            snapshots = open_snapshots(options)
            if options.table != "commits" and options.topics != ("*",):
                wanted = first_wish(options)
                check_topics(options, [queue_runs(s, options, wanted).queues for s in snapshots])
            for snapshot in snapshots:
                yield from METADATA[options.table].batches(snapshot, options)


class MessageReader(DataSourceReader):
    """Plans a scan of messages on the driver and reads its partitions on executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """``Invalid`` for columns that a message has not, or not with such a type."""
        check_schema(schema)
        self._options, self._spark_schema = options, schema
        self._wanted = first_wish(options)

    @plainly()
    def partitions(self) -> list[InputPartition]:
        """The whole plan: one fold per archive; of objects nothing is read but where keys are wanted."""
        made: list[InputPartition] = []
        options = self._options
        if not needs_records(self._spark_schema.names):
            # Such tasks read a small part of the bytes, and each costs a start.
            options = replace(options, partition_bytes=HEADER_PARTS * options.partition_bytes)
        opened = open_snapshots(options, keep=self._wanted.keys is not None)
        found = [(snapshot, wanted_runs(snapshot, options, self._wanted)) for snapshot in opened]
        check_topics(options, [runs.queues for _, runs in found])
        check_bounds(options, [snapshot for snapshot, _ in found])
        warn_of_gaps(options, [snapshot for snapshot, _ in found])
        found = [(snapshot, self._holding(snapshot, runs)) for snapshot, runs in found]
        for snapshot, runs in found:
            check_there(snapshot, runs, options)
        options = enough(options, [runs for _, runs in found])
        for snapshot, runs in found:
            some = partitions(snapshot, runs, options)
            note("planned", snapshot.place, partitions=len(some), bytes=int(runs.sizes.sum()))
            made += some
        return made

    def _holding(self, snapshot: Snapshot, runs: RunTable) -> RunTable:
        if self._wanted.keys is None:
            return runs
        from tiered_spark.plan_keys import holding_runs

        return holding_runs(snapshot, runs, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one partition."""
        from tiered_spark.scan import read_partition

        return read_partition(partition, self._options, self._wanted, self._spark_schema)
