"""The archive as a stream. Its offsets are commits: a batch is what those in (start, end] have appended.

A commit that is larger than a batch may be is divided: an offset may stand inside it (``positions.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from tiered_spark.plan import (
    enough,
    idle_patterns,
    levels,
    missing_topics,
    partitions,
    queue_runs,
    wanted_runs,
)
from tiered_spark.plan_merged import appended_by
from tiered_spark.positions import BEGIN, Position, Shown, StreamBatch
from tiered_spark.queues import Queues
from tiered_spark.runs import RunTable
from tiered_spark.scan import read_partition
from tiered_spark.snapshot import ArchivePlace, Snapshot, open_snapshots
from tiered_spark.wanted import first_wish

log = logging.getLogger("tiered.spark")

Offset = dict[str, Shown]
"""Archive (URL, cluster, broker and id) → how far it is included: a position as JSON has it."""

Ends = dict[str, int]
"""Archive → its last commit."""


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
        self._target: Ends | None = None
        self._told = False
        self._watches: dict[str, RetentionWatch] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For the executors: no fold."""
        return {**self.__dict__, "_snapshots": None, "_watches": {}}

    # ---- offsets

    @plainly()
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        ends = self._ends()
        return _offset(ends) if self._options.starting == "latest" else _offset(dict.fromkeys(ends, BEGIN))

    def _warn_of_topics(self) -> None:
        """A topic may come later: no error. Once a query."""
        if self._told or self._options.topics == ("*",):
            return
        self._told = True
        found = [queue_runs(s, self._options, self._wanted).queues for s in self._opened().values()]
        missing = [*missing_topics(self._options, found), *idle_patterns(self._options, found)]
        if missing:
            log.warning("no archive has these topics yet, the stream waits for them: %s", ", ".join(missing))

    @plainly()
    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:  # noqa: N802
        """How far the next batch may go. Spark 4.1 asks without a start: ``partitions`` is told it."""
        ends = self._ends()
        self._warn_of_topics()
        if start is None or limit is None:
            return _offset(ends)
        began = _positions(start)
        _check(began, ends)
        if self._target is not None:
            ends = {place: min(end, self._target.get(place, BEGIN)) for place, end in ends.items()}
        reached = {}
        for place, end in ends.items():
            at = began.get(place, Position())
            whole = isinstance(limit, ReadAllAvailable)
            reached[place] = max(at, Position(end) if whole else self._limited(place, at, end)).shown
        return reached

    @plainly()
    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """The archive's end, for the query's progress: how far behind it is."""
        return _offset(self._ends())

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

    def _ends(self) -> Ends:
        if self._snapshots is None:
            return {place: s.commit for place, s in self._opened().items()}
        ends = {}
        for place, snapshot in list(self._snapshots.items()):
            self._snapshots[place] = snapshot.follow()
            ends[place] = self._snapshots[place].commit
        return ends

    def _known(self) -> Ends:
        """The ends as they were when they were last looked at; no request but for archives that are to be opened."""
        return {place: s.commit for place, s in self._opened().items()}

    def _limited(self, place: str, start: Position, end: int) -> Position:
        """The furthest position within the limits: behind a commit, or inside one that is too large for a batch of its own; at
        least one message further, if there is one."""
        snapshot = self._opened()[place]
        parts = self._parts(snapshot, start, Position(end))
        order = np.argsort(parts.commit, kind="stable")
        whole = self._fitting(parts.only(order))
        if whole == len(order):
            return Position(end)
        over, first = int(parts.commit[order[whole]]), int(parts.commit[order[0]])
        if over > first:
            return Position(over - 1)
        return self._inside(parts.only(np.flatnonzero(parts.commit == first)))

    def _inside(self, parts: _Parts) -> Position:
        """The furthest position within the limits inside the one commit of these parts, which is too large."""
        used, mine = np.unique(parts.queue, return_inverse=True)
        names = parts.queues.only(used).names()
        rank = np.empty(len(names), np.int64)
        rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        order = np.lexsort((parts.low, rank[mine]))
        ordered = parts.only(order)
        at = min(self._fitting(ordered), len(order) - 1)
        low, high = int(ordered.low[at]), int(ordered.high[at])
        step = high - low
        for amounts, most in self._limits(ordered):
            room = most - int(amounts[:at].sum())
            step = min(step, room * (high - low) // max(1, int(amounts[at])))
        step = max(step, 0 if at else 1)
        return Position(int(ordered.commit[at]), names[int(mine[order[at]])], low + step)

    def _limits(self, parts: _Parts) -> list[tuple[Ints, int]]:
        """What each part has of what is bounded, and the bounds that are given."""
        found = ((parts.size, self._options.max_bytes), (parts.high - parts.low, self._options.max_messages))
        return [(amounts, most) for amounts, most in found if most is not None]

    def _fitting(self, parts: _Parts) -> int:
        """How many of the parts, from the first on, are within the limits."""
        good = np.ones(len(parts.commit), np.bool_)
        for amounts, most in self._limits(parts):
            good &= np.cumsum(amounts) <= most
        return len(good) if good.all() else int(np.argmin(good))

    def _parts(self, snapshot: Snapshot, start: Position, end: Position) -> _Parts:
        """What commits have appended between the two, in parts of one commit and queue each."""
        runs, merged = self._runs(snapshot, start, end)
        plain = runs.only(~merged)
        found = [
            (
                plain.records["commit_seq"], plain.queue, plain.records["start"], plain.records["end"],
                plain.records["start"], plain.sizes,
            )
        ]  # fmt: skip
        rows = np.flatnonzero(merged)
        for row, run in zip(rows.tolist(), runs.only(rows), strict=True):
            commits, counts = appended_by(snapshot, run)
            high = np.clip(run.first_queue_offset + np.cumsum(counts), run.start, run.end)
            low = np.append(run.start, high[:-1])
            size = (high - low) * (run.flat_end - run.first_flat_offset) // max(1, run.end - run.start)
            found.append((commits, np.full(len(commits), runs.queue[row]), low, high, low, size))
        commit, queue, low, high, first, size = (
            np.concatenate(columns).astype(np.int64) for columns in zip(*found, strict=True)
        )
        if start.queue is not None:  # of the commit that it lies in, what is behind it
            side = start.sides(runs.queues.names())[queue]
            mine = commit == start.commit
            low = np.where(mine & (side < 0), high, low)
            low = np.where(mine & (side == 0), np.clip(start.offset, low, high), low)
        size = size * (high - low) // np.maximum(1, high - first)
        good = (commit > start.whole) & (commit <= end.commit) & (high > low)
        return _Parts(runs.queues, *(column[good] for column in (commit, queue, low, high, size)))

    # ---- batches

    @plainly()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """What commits after ``start``, up to ``end``, have appended and is still readable.

        Spark does a batch again after a crash without asking for an offset before. Archives that are not there, or behind,
        would be no rows of it, and it would be committed without them: ``Refused``.
        """
        began, upto = _positions(start), _positions(end)
        asked = {
            name: max(began.get(name, Position()), upto.get(name, Position())) for name in {**began, **upto}
        }
        ends = self._known()
        if _beyond(asked, ends):
            ends = self._ends()  # they may have grown
        _check(asked, ends)
        made: list[InputPartition] = []
        found = []
        for place, snapshot in self._opened().items():
            batch = StreamBatch(began.get(place, Position()), upto.get(place, Position()))
            if batch.start.commit > BEGIN:
                self._watch(place).check(snapshot, self._options, batch.start)
            found.append((snapshot, self._between(snapshot, batch.start, batch.end), batch))
        options = enough(self._options, [runs for _, runs, _ in found])
        for snapshot, runs, batch in found:
            for partition in partitions(snapshot, runs, options):
                partition.commits = batch
                made.append(partition)
        return made

    def _watch(self, place: str) -> RetentionWatch:
        return self._watches.setdefault(place, RetentionWatch())

    def _runs(self, snapshot: Snapshot, start: Position, end: Position) -> tuple[RunTable, Bools]:
        """Runs that may hold what was appended between the two; and which of them are of merged objects.

        A merged run is younger than its messages: it holds some of them, or none, whichever commit has made it.
        """
        runs = wanted_runs(snapshot, self._options, self._wanted, after=start.whole)
        merged = levels(snapshot, runs) > 0
        good = runs.records["commit_seq"] <= end.commit
        for row, run in zip(np.flatnonzero(merged).tolist(), runs.only(merged), strict=True):
            commits, _ = appended_by(snapshot, run)
            good[row] = bool(((commits > start.whole) & (commits <= end.commit)).any())
        return runs.only(good), merged[good]

    def _between(self, snapshot: Snapshot, start: Position, end: Position) -> RunTable:
        """The same runs; of those that are not merged only what lies between the two."""
        runs, merged = self._runs(snapshot, start, end)
        if start.queue is None and end.queue is None:
            return runs
        good = np.ones(len(runs), np.bool_)
        runs = replace(runs, records=runs.records.copy())
        records, names = runs.records, runs.queues.names()
        for cut, behind in ((start, True), (end, False)):
            if cut.queue is None:
                continue
            side = cut.sides(names)[runs.queue]
            mine = ~merged & (records["commit_seq"] == cut.commit)
            good &= ~(mine & (side == (-1 if behind else 1)))
            here = mine & (side == 0)
            edge, keep = ("start", np.maximum) if behind else ("end", np.minimum)
            records[edge][here] = keep(records[edge][here], cut.offset)
        return runs.only(good & (records["start"] < records["end"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow batches of one partition."""
        return read_partition(partition, self._options, self._wanted, self._spark_schema)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of commits: of each its commit, queue (an index of ``queues``), queue offsets [low, high), and about its bytes."""

    queues: Queues
    commit: Ints
    queue: Ints
    low: Ints
    high: Ints
    size: Ints

    def only(self, rows: Ints) -> _Parts:
        """Some of them, in this order."""
        columns = (self.commit, self.queue, self.low, self.high, self.size)
        return _Parts(self.queues, *(column[rows] for column in columns))


def _offset(ends: Ends) -> Offset:
    return dict(ends)


def _positions(offset: Offset) -> dict[str, Position]:
    """``Corrupt`` for what is no offset: Spark keeps them in files that others may change."""
    try:
        return {place: Position.parse(shown) for place, shown in offset.items()}
    except (AttributeError, TypeError, ValueError):
        raise Corrupt(
            "the checkpoint of this query holds what is no offset of an archive", found=offset,
            hint="restore the checkpoint location from a copy, or start the query with a new one",
        ) from None  # fmt: skip


def _beyond(offset: dict[str, Position], ends: Ends) -> list[str]:
    """Archives of an offset that have not, or not yet, what it includes of them."""
    return [place for place, position in offset.items() if ends.get(place, BEGIN) < position.commit]


def _check(offset: dict[str, Position], ends: Ends) -> None:
    """``Refused`` unless all that an offset includes is there."""
    for place in _beyond(offset, ends):
        raise Refused(
            "the archive ends before what this query has read of it",
            hint="name the archives as this query did before, restore the bucket, or start it with a new checkpoint location",
            archive=place, expected=f"commit {offset[place].commit} or later", found=ends.get(place, "no such archive"),
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
