"""The archive as a stream. Its offsets are commits: a batch is what those in (start, end] have appended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt, Invalid, Refused, TieredError
from tiered_spark.columns import check_schema
from tiered_spark.errors import plainly
from tiered_spark.limits import (
    ADMISSION,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from tiered_spark.loss import RetentionWatch
from tiered_spark.options import Options
from tiered_spark.plan import enough, levels, missing_topics, partitions, queue_runs, wanted_runs
from tiered_spark.plan_merged import appended_by
from tiered_spark.ranges import Range
from tiered_spark.runs import RunTable
from tiered_spark.scan import read_partition
from tiered_spark.snapshot import ArchivePlace, Snapshot, open_snapshots
from tiered_spark.wanted import first_wish

log = logging.getLogger("tiered.spark")

BEGIN = -1
"""Before the first commit."""


Offset = dict[str, int]
"""Archive (URL, cluster, broker and id) → its last commit that is included."""


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of messages. Lives on the driver while the query does; a copy of it reads on the executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """``Invalid`` for a schema or options that a stream cannot have."""
        check_schema(schema)
        if options.as_of_commit is not None or options.as_of_ms is not None:
            raise Invalid("a stream follows the archive", hint="leave asOfCommit and asOfTimestamp out")
        if not ADMISSION and (options.max_bytes is not None or options.max_messages is not None):
            raise Invalid(
                "Spark 4.1 does not let a Python stream bound its batches",
                hint="leave maxBytesPerTrigger and maxMessagesPerTrigger out, or take PySpark 4.2 or newer",
            )
        self._options, self._spark_schema = options, schema
        self._wanted = first_wish(options)
        self._snapshots: dict[str, Snapshot] | None = None
        self._target: Offset | None = None
        self._watches: dict[str, RetentionWatch] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For the executors: no fold."""
        return {**self.__dict__, "_snapshots": None, "_watches": {}}

    # ---- offsets

    @plainly()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        ends = self._ends()
        self._warn_of_topics()
        return ends if self._options.starting == "latest" else dict.fromkeys(ends, BEGIN)

    def _warn_of_topics(self) -> None:
        """A topic may come later: no error."""
        if not self._options.named_topics:
            return
        found = [queue_runs(s, self._options, self._wanted).queues for s in self._opened().values()]
        missing = missing_topics(self._options, found)
        if missing:
            log.warning("no archive has these topics yet, the stream waits for them: %s", ", ".join(missing))

    @plainly()
    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: N802
        """How far the next batch may go. Spark 4.1 asks without a start: ``partitions`` is told it."""
        ends = self._ends()
        if start is None or limit is None:
            return ends
        _check_values(start)
        _check(start, ends)
        if self._target is not None:
            ends = {place: min(end, self._target.get(place, BEGIN)) for place, end in ends.items()}
        if isinstance(limit, ReadAllAvailable):
            return {place: max(end, start.get(place, BEGIN)) for place, end in ends.items()}
        return {place: self._limited(place, start.get(place, BEGIN), end) for place, end in ends.items()}

    @plainly()
    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """The archive's end, for the query's progress: how far behind it is."""
        return self._ends()

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
            found = open_snapshots(self._options, begun=False)
            self._snapshots = {_name(s.place): s for s in found}
        return self._snapshots

    def _ends(self) -> Offset:
        if self._snapshots is None:
            return {place: s.commit for place, s in self._opened().items()}
        ends = {}
        for place, snapshot in list(self._snapshots.items()):
            self._snapshots[place] = snapshot.follow()
            ends[place] = self._snapshots[place].commit
        return ends

    def _known(self) -> Offset:
        """The ends as they were when they were last looked at; no request but for archives that are to be opened."""
        return {place: s.commit for place, s in self._opened().items()}

    def _limited(self, place: str, start: int, end: int) -> int:
        """The furthest commit within the limits; at least one that has messages, if there is one."""
        found = self._commits(self._opened()[place], start, end)
        commits, messages, sizes = (np.concatenate(parts) for parts in zip(*found, strict=True))
        inside = (commits > start) & (commits <= end)
        commits, messages, sizes = commits[inside], messages[inside], sizes[inside]
        if not len(commits):
            return max(start, end)
        order = np.argsort(commits, kind="stable")
        good = np.ones(len(commits), np.bool_)
        for amounts, most in ((sizes, self._options.max_bytes), (messages, self._options.max_messages)):
            if most is not None:
                good &= np.cumsum(amounts[order]) <= most
        if good.all():
            return end
        over = int(commits[order][int(np.argmin(good))])  # the commit that does not fit
        return max(over - 1, int(commits.min()))

    def _commits(self, snapshot: Snapshot, start: int, end: int) -> list[tuple[Ints, Ints, Ints]]:
        """Commits with the messages and about the bytes that they have appended; a commit may come several times."""
        runs, merged = self._runs(snapshot, start, end)
        plain = runs.only(~merged)
        found = [(plain.records["commit_seq"], plain.messages, plain.sizes)]
        for run in runs.only(merged):
            commits, rows = appended_by(snapshot, run)
            found.append(
                (commits, rows, rows * (run.flat_end - run.first_flat_offset) // max(1, int(rows.sum())))
            )
        return found

    # ---- batches

    @plainly()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """What commits after ``start``, up to ``end``, have appended and is still readable.

        Spark does a batch again after a crash without asking for an offset before. Archives that are not there, or behind,
        would be no rows of it, and it would be committed without them: ``Refused``.
        """
        _check_values(start)
        _check_values(end)
        asked = {place: max(start.get(place, BEGIN), end.get(place, BEGIN)) for place in {**start, **end}}
        ends = self._known()
        if _beyond(asked, ends):
            ends = self._ends()  # they may have grown
        _check(asked, ends)
        made: list[InputPartition] = []
        found = []
        for place, snapshot in self._opened().items():
            after, last = start.get(place, BEGIN), end.get(place, BEGIN)
            if after > BEGIN:
                self._watch(place).check(snapshot, self._options, after)
            found.append((snapshot, self._runs(snapshot, after, last)[0], Range(after + 1, last)))
        options = enough(self._options, [runs for _, runs, _ in found])
        for snapshot, runs, commits in found:
            for partition in partitions(snapshot, runs, options):
                partition.commits = commits
                made.append(partition)
        return made

    def _watch(self, place: str) -> RetentionWatch:
        return self._watches.setdefault(place, RetentionWatch())

    def _runs(self, snapshot: Snapshot, start: int, end: int) -> tuple[RunTable, Bools]:
        """Runs that may hold what the commits in (start, end] have appended; and which of them are of merged objects.

        A merged run is younger than its messages: it holds some of them, or none, whichever commit has made it.
        """
        runs = wanted_runs(snapshot, self._options, self._wanted, after=start)
        merged = levels(snapshot, runs) > 0
        good = runs.records["commit_seq"] <= end
        for row, run in zip(np.flatnonzero(merged).tolist(), runs.only(merged), strict=True):
            commits, _ = appended_by(snapshot, run)
            good[row] = bool(((commits > start) & (commits <= end)).any())
        return runs.only(good), merged[good]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one partition."""
        return read_partition(partition, self._options, self._wanted, self._spark_schema)


def _beyond(offset: Offset, ends: Offset) -> list[str]:
    """Archives of an offset that have not, or not yet, what it includes of them."""
    return [place for place, seq in offset.items() if ends.get(place, BEGIN) < seq]


def _check_values(offset: Offset) -> None:
    """``Corrupt`` for what is no offset: Spark keeps them in files that others may change."""
    if not isinstance(offset, dict) or not all(isinstance(seq, int) for seq in offset.values()):
        raise Corrupt(
            "the checkpoint of this query holds what is no offset of an archive", found=offset,
            hint="restore the checkpoint location from a copy, or start the query with a new one",
        )  # fmt: skip


def _check(offset: Offset, ends: Offset) -> None:
    """``Refused`` unless all that an offset includes is there."""
    for place in _beyond(offset, ends):
        raise Refused(
            "the archive ends before what this query has read of it",
            hint="name the archives as this query did before, restore the bucket, or start it with a new checkpoint location",
            archive=place, expected=f"commit {offset[place]} or later", found=ends.get(place, "no such archive"),
        )  # fmt: skip


def _name(place: ArchivePlace) -> str:
    """With the archive's id, so that a query does not go on in another archive that has taken its place."""
    return f"{place} {place.archive_id.hex()}"


class RefusingReader(DataSourceStreamReader):
    """Of a stream that cannot be: it says why at the first question, whichever that is."""

    def __init__(self, error: TieredError) -> None:
        self._error = error

    @plainly()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Of a new query, the first question."""
        raise self._error

    @plainly()
    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: N802
        """Of a query that is started again, the first question."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Never asked: there are no partitions."""
        raise self._error
