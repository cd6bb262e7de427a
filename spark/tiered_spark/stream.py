"""The archive as a stream. Its offsets are commits: a batch is what those in (start, end] have appended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tiered.archive.entities import RunState
from tiered.errors import Invalid, Refused
from tiered_spark.columns import check_schema
from tiered_spark.options import Options
from tiered_spark.plain import plainly
from tiered_spark.plan import partitions, size_of, wanted_runs
from tiered_spark.pushdown import first_wish
from tiered_spark.scan import read_partition
from tiered_spark.snapshot import Snapshot, open_snapshots

BEGIN = -1
"""Before the first commit."""

Offset = dict[str, int]
"""Archive (URL, cluster and broker) → its last commit that is included."""


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of messages. Lives on the driver while the query does; a copy of it reads on the executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """``Invalid`` for a schema or options that a stream cannot have."""
        check_schema(schema)
        if options.as_of_commit is not None or options.as_of_ms is not None:
            raise Invalid("a stream follows the archive", hint="leave asOfCommit and asOfTimestamp out")
        self._options, self._spark_schema = options, schema
        self._wanted = first_wish(options)
        self._snapshots: dict[str, Snapshot] | None = None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the executors: no fold."""
        return {**self.__dict__, "_snapshots": None}

    # ---- offsets

    @plainly()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        ends = self._ends()
        return ends if self._options.starting == "latest" else dict.fromkeys(ends, BEGIN)

    @plainly()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch may go."""
        ends = self._ends()
        if self._target is not None:
            ends = {place: min(end, self._target.get(place, BEGIN)) for place, end in ends.items()}
        for place, seq in start.items():
            if ends.get(place, BEGIN) < seq and self._target is None:
                raise Refused(
                    "the archive ends before what this query has read of it",
                    hint="restore the bucket, or start the query with a new checkpoint location",
                    archive=place, expected=f"commit {seq} or later", found=ends.get(place, "no such archive"),
                )  # fmt: skip
        if isinstance(limit, ReadAllAvailable):
            return {place: max(end, start.get(place, BEGIN)) for place, end in ends.items()}
        return {place: self._limited(place, start.get(place, BEGIN), end) for place, end in ends.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Of the options; where both are given, both hold."""
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.max_messages is not None:
            return ReadMaxRows(self._options.max_messages)
        return ReadAllAvailable()

    @plainly()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing after this moment is read."""
        self._target = self._ends()

    def _opened(self) -> dict[str, Snapshot]:
        if self._snapshots is None:
            self._snapshots = {str(s.place): s for s in open_snapshots(self._options)}
        return self._snapshots

    def _ends(self) -> Offset:
        if self._snapshots is None:
            return {place: s.commit for place, s in self._opened().items()}
        ends = {}
        for place, snapshot in self._snapshots.items():
            head = snapshot.archive.reader.follow(snapshot.archive.state.view)  # type: ignore[arg-type]
            ends[place] = BEGIN if head is None else head.seq
        return ends

    def _limited(self, place: str, start: int, end: int) -> int:
        """The furthest commit within the limits; at least one that has messages, if there is one."""
        runs = list(self._runs(self._opened()[place], start, end))
        if not runs:
            return max(start, end)
        commits = np.array([run.id.commit_seq for run in runs])
        order = np.argsort(commits, kind="stable")
        good = np.ones(len(runs), np.bool_)
        for sizes, most in (
            ([size_of(run) for run in runs], self._options.max_bytes),
            ([run.end - run.start for run in runs], self._options.max_messages),
        ):
            if most is not None:
                good &= np.cumsum(np.array(sizes)[order]) <= most
        if good.all():
            return end
        over = int(commits[order][int(np.argmin(good))])  # the commit that does not fit
        return max(over - 1, int(commits.min()))

    # ---- batches

    @plainly()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """What commits after ``start``, up to ``end``, have appended and is still readable."""
        made: list[InputPartition] = []
        for place, snapshot in self._opened().items():
            runs = self._runs(snapshot, start.get(place, BEGIN), end.get(place, BEGIN))
            made += partitions(snapshot, runs, self._options)
        return made

    def _runs(self, snapshot: Snapshot, start: int, end: int) -> Iterator[RunState]:
        for run in wanted_runs(snapshot, self._options, self._wanted):
            if run.id.commit_seq <= start:
                continue
            if snapshot.object(run.object).level > 0:
                raise Refused(
                    "this archive holds merged objects, which this version cannot stream",
                    hint="read it as a batch, or install a newer version", archive=snapshot.place, commit=run.id.commit_seq,
                )  # fmt: skip
            if run.id.commit_seq <= end:
                yield run

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one partition."""
        return read_partition(partition, self._options, self._wanted, self._spark_schema)
