"""Is the archive what it says, and what broker and table say?

Every object is read: checksums of blocks, the CRC of each body, columns against records. Every queue must be contiguous, each
offset once, recorded gaps excepted, and hold as many messages as the archive counts. RocketMQ's own topics are audited too.
With --store the queues of a broker's store directory are compared, with --table a Parquet table that the pipeline has made.
Exit code 1 if anything differs. Messages that are merely not archived yet are reported and are not a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tiered.errors import Invalid, TieredError
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered_jobs.work import SharedFlags, Work, commits, whole_flag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tiered_spark.snapshot import Snapshot

COLUMNS = (
    Column("what"),
    Column("broker", less=2),
    Column("topic", flexible=True),
    Column("queue_id", "queue"),
    Column("start_offset", "from", Kind.COUNT),
    Column("end_offset", "to", Kind.COUNT),
    Column("key", "object", less=1),
    Column("block", less=1),
    Column("detail", less=3),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """How much is read, and what the archive is compared with."""

    quick: Annotated[
        bool, typer.Option("--quick", help="Tables and columns only: no block and no body is read.")
    ] = False
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="DIR",
            help="A Parquet table of the archive's messages, such as the pipeline's bronze.",
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="DIR", help="The broker's store directory, on this machine; it is only read."
        ),
    ] = None
    limit: Annotated[int, whole_flag("--limit", 1, 100_000, "Differences listed at most.")] = 100


def writes(work: Work) -> tuple[str, ...]:
    """Nothing; wrong flags are found by a dry run too."""
    _check(work)
    if work.args.store:
        from tiered_jobs.audit.store import check_store

        check_store(work, work.snapshots())
    return ()


def run(work: Work) -> int:
    """Audit; 1 if there is a difference."""
    _check(work)
    snapshots = work.snapshots()
    work.check_topics(snapshots, includeSystemTopics="true")
    table = None
    # What can be refused is refused before everything is read.
    if work.args.store:
        from tiered_jobs.audit.store import check_store, store_differences

        check_store(work, snapshots)
    if work.args.table:
        from tiered_jobs.audit.table import open_table, table_differences

        table = open_table(work, snapshots)
    told: dict[str, Any] = {
        "verdict": "", "archives": commits(snapshots), "quick": work.args.quick,
    }  # fmt: skip
    found = [_archive(work, snapshots, told)]
    if table is not None:
        try:
            found.append(listed(table_differences(work, table, told), work.args.limit))
        except Exception as error:
            if not found[0][1]:
                raise
            told["table"] = (
                f"not compared: {str(error).splitlines()[0]}"  # the archive's own differences are worth telling
            )
    if work.args.store:
        found.append(store_differences(work, snapshots, told))
    kinds: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    for part, counts in found:
        kinds |= counts
        rows += part
    told["differences"] = sum(kinds.values())
    told["verdict"] = "DIFFERENT" if kinds else "sound"
    _tell(work, told, kinds, rows[: work.args.limit])
    return TieredError.exit_code if kinds else 0


def _check(work: Work) -> None:
    args = work.args
    if args.start is not None or args.end is not None:
        raise Invalid(
            "an audit looks at whole queues",
            flags="--from, --to",
            hint="leave them out; --topics narrows an audit",
        )


def _archive(
    work: Work, snapshots: list[Snapshot], told: dict[str, Any]
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """The archive against itself."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    from tiered_jobs.audit.queues import checked, contiguity, counters, damage
    from tiered_spark.options import parse_options

    system = {"includeSystemTopics": "true"}
    options = parse_options(work.options(**system))
    queues = work.read_at(snapshots, table="queues", **system).persist()
    gaps = work.read_at(snapshots, table="gaps", **system).persist()
    work.say("reading columns" if work.args.quick else "reading every block")
    ranges = checked(work, snapshots, options, quick=work.args.quick).persist()
    try:
        sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("records", "blocks", "bytes")]
        read = ranges.agg(*sums).first()
        told["queues"] = queues.count()
        told.update(read.asDict() if read is not None else {})
        told["gaps"] = gaps.count()
        work.say("queues: contiguity and counters")
        parts = [damage(ranges), contiguity(ranges, queues, gaps), counters(ranges, queues)]
        return listed(reduce(DataFrame.unionByName, parts), work.args.limit)
    finally:
        for frame in (ranges, queues, gaps):
            frame.unpersist()


def listed(differences: DataFrame, limit: int) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """At most ``limit`` of them, in order of their place, and how many there are of each kind."""
    from tiered_jobs.audit.queues import NAMES

    kept = differences.select(*NAMES).persist()
    try:
        counts = {row["what"]: row["count"] for row in kept.groupBy("what").count().collect()}
        if not counts:
            return [], {}
        ordered = kept.orderBy("cluster", "broker", "topic", "queue_id", "start_offset", "key", "what")
        return [tuple(row) for row in ordered.limit(limit).collect()], counts
    finally:
        kept.unpersist()


def _tell(work: Work, told: dict[str, Any], kinds: dict[str, int], rows: list[tuple[Any, ...]]) -> None:
    from tiered_jobs.audit.queues import NAMES

    named = [dict(zip(NAMES, row, strict=True)) for row in rows]
    if work.args.json:
        work.out.record({**told, "kinds": kinds, "listed": named})
        return
    work.out.record(
        {**told, **({"kinds": kinds} if kinds else {})}, kinds={"bytes": Kind.SIZE, "records": Kind.COUNT}
    )
    if named:
        work.out.table(COLUMNS, [[row[c.name] for c in COLUMNS] for row in named], title="differences")
    if told["differences"] > len(named):
        work.out.note(f"{told['differences'] - len(named)} more differences; --limit shows more")
    if any(row["key"] for row in named):
        work.out.note(
            "restore damaged objects from the bucket's versions or a copy; tiered verify --deep shows the same"
        )
