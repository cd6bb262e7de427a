"""Queries over what is new, run to their end, and what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 1
MS_PER_HOUR = 3_600_000

Say = Callable[[str], None]


def drain(query: StreamingQuery, say: Say, beat: Callable[[], None]) -> list[Any]:
    """Wait for the end of a query that ends by itself; the progress of each batch that had rows. Its error is raised, and that
    of ``beat``, which is called meanwhile and ends the query so.

    Spark keeps the last hundred batches, so they are taken while the query runs.
    """
    seen: dict[tuple[int, str], Any] = {}
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(POLL_SECONDS))
            beat()
            for progress in query.recentProgress:
                place = (progress.batchId, progress.timestamp)
                if place not in seen:
                    seen[place] = progress
                    if progress.numInputRows:
                        say(f"batch {progress.batchId}: {progress.numInputRows:,} rows")
    finally:
        if query.isActive:
            query.stop()
    return [progress for progress in seen.values() if progress.numInputRows]


def observed(batches: Iterable[Any], name: str, field: str) -> int:
    """Sum of one observed figure over batches."""
    found = [batch.observedMetrics.get(name) for batch in batches]
    return sum(int(row[field] or 0) for row in found if row is not None)


def dropped(batches: Iterable[Any], figure: str) -> int:
    """Sum of a figure of the state operators: ``numDroppedDuplicateRows``, or rows behind the watermark."""
    total = 0
    for batch in batches:
        for operator in batch.stateOperators:
            own = getattr(operator, figure, None)
            total += int(own if own is not None else operator.customMetrics.get(figure, 0))
    return total


@dataclass(frozen=True, slots=True)
class Hours:
    """Calendar columns in UTC, whatever time zone a session has."""

    time: Column

    def date(self) -> Column:
        """The day."""
        from pyspark.sql import functions as sf

        return sf.date_from_unix_date(sf.floor(sf.unix_millis(self.time) / (24 * MS_PER_HOUR)).cast("int"))

    def hour(self) -> Column:
        """The moment at which the hour begins."""
        from pyspark.sql import functions as sf

        ms = sf.unix_millis(self.time)
        return sf.timestamp_millis(ms - sf.pmod(ms, sf.lit(MS_PER_HOUR)))
