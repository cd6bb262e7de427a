"""The archive against a table that was made of it: every message there, once, with what the table has of it.

Each side is summed up per queue, in one scan, every column of a message by itself and not by a checksum that was kept beside
it; only queues whose sums differ are compared message by message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StringType, StructField, StructType

from tiered.codec.arrow.arrays import repeated
from tiered.errors import Invalid, NotFound
from tiered_jobs.audit.queues import DIFFERENCE, QUEUE, nothing
from tiered_jobs.pipeline.silver import topic_matches
from tiered_jobs.pipeline.table import Files, document, taken
from tiered_jobs.work import pinned
from tiered_spark.columns import COLUMNS, needs_records
from tiered_spark.options import matches, parse_options
from tiered_spark.queues import read_queues
from tiered_spark.snapshot import Snapshot

if TYPE_CHECKING:
    from tiered_jobs.work import Work

READ = (*QUEUE, "queue_offset", "body_crc")
BODY = ("body", "body_crc", "body_size")
LIFE = ("physical_offset", "store_timestamp")
"""What tells messages with one queue offset apart where a queue began anew: the pipeline's tables keep those of before."""

TYPES = {
    "cluster": "string", "broker": "string", "topic": "string", "queue_id": "int", "queue_offset": "long", "body_crc": "long",
    "physical_offset": "long", "store_timestamp": "timestamp",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """The table: its rows of the topics and archives that are looked at, the flags the pipeline made it with, and archive →
    last commit it has taken in. ``types``: its columns that are read; ``compared``: those held against the archive."""

    rows: DataFrame
    made: dict[str, Any]
    commits: dict[str, int]
    snapshots: list[Snapshot]
    types: dict[str, str]
    compared: tuple[str, ...]
    left_out: tuple[str, ...]


def open_table(work: Work, snapshots: Sequence[Snapshot]) -> ComparedTable:
    """The table that the flags name, of which no row is read. ``NotFound`` without one; ``Invalid`` for one that was made from
    other brokers, or lacks columns by which messages are told apart."""
    place, made, commits = _made_from(work)
    mine = _of_its_brokers(snapshots, place, made)
    frame = _frame(work, place, (*READ, *LIFE) if made else READ)
    types = {name: TYPES[name] for name in ((*READ, *LIFE) if made else READ)}
    left_out = []
    for name, kind in frame.dtypes:
        if name in types or name not in COLUMNS or (work.args.quick and needs_records([name])):
            continue
        known = COLUMNS[name]
        if kind in [each.simpleString() for each in (known.kind, *known.also)]:
            types[name] = kind
        else:
            left_out.append(name)
    compared = tuple(name for name in types if name not in (*QUEUE, "queue_offset"))
    here = [(F.col("cluster") == x.place.cluster) & (F.col("broker") == x.place.broker) for x in mine]
    rows = frame.select(*(F.col(name).cast(kind).alias(name) for name, kind in types.items()))
    rows = rows.filter(reduce(Column.__or__, here) & _named(work.args.topics))
    return ComparedTable(rows, made, commits, mine, types, compared, tuple(left_out))


def table_differences(work: Work, table: ComparedTable, told: dict[str, Any]) -> DataFrame:
    """Differences of table and archive. ``told`` gets ``table``: rows on both sides, how far the table reaches, and the
    columns compared.

    A table that the pipeline keeps is compared with the commit that it has taken in; any other one with the newest.
    """
    snapshots, made = table.snapshots, table.made
    archived = None
    behind = 0
    for snapshot in snapshots:
        names = {snapshot.place.archive_id.hex(), f"{snapshot.place.cluster}/{snapshot.place.broker}"}
        taken = [commit for name, commit in table.commits.items() if name.split(" ")[-1] in names]
        upto = min(taken[0] if len(taken) == 1 else snapshot.commit, snapshot.commit)
        behind += snapshot.commit - upto
        options = {**_selection(work, made), **pinned(snapshot), "asOfCommit": upto, "onDamage": "skip"}
        columns = ", ".join(f"{name} {kind}" for name, kind in table.types.items())
        rows = work.read(columns, **options).filter(_named(work.args.topics))
        archived = rows if archived is None else archived.unionByName(rows)
    assert archived is not None  # an archive is always found, or NotFound was raised
    both = _hashed(archived, table, 0).unionByName(_hashed(table.rows, table, 1))
    both = both.join(_queues(work, snapshots), list(QUEUE), "left")
    anew = F.coalesce("anew", F.lit(False)) if made else F.lit(False)
    both = both.withColumns({"anew": anew, "life": F.when(anew, F.col("life"))})
    # What retention has cut off the archive by now counts on neither side.
    both = both.filter(F.coalesce(F.col("queue_offset") >= F.col("min_offset"), F.lit(True))).drop(
        "min_offset"
    )
    work.say("columns of the archive and of the table")
    sums = both.groupBy(*QUEUE).agg(*_sums(table.compared)).persist()
    totals = sums.agg(F.sum("rows0").alias("archive"), F.sum("rows1").alias("table")).first()
    told["table"] = {
        "messages_in_archive": (totals["archive"] if totals else None) or 0,
        "messages_in_table": (totals["table"] if totals else None) or 0,
        "commits_behind": behind,
        "columns_compared": ", ".join(table.compared),
        **({"columns_not_compared": ", ".join(table.left_out)} if table.left_out else {}),
    }
    suspect = sums.filter("rows0 <> rows1 or fold0 <> fold1 or total0 <> total1").select(*QUEUE)
    if suspect.isEmpty():
        return work.spark.createDataFrame([], DIFFERENCE)
    return _by_message(both.join(F.broadcast(suspect), list(QUEUE), "left_semi"), table.compared)


def _made_from(work: Work) -> tuple[str, dict[str, Any], dict[str, int]]:
    """(directory of the rows, the flags the pipeline made it with, archive → last commit it has taken in)."""
    files, root = Files(work.spark), str(work.args.table).rstrip("/")
    place = f"{root}/bronze" if files.exists(f"{root}/bronze") else root
    if not files.exists(place):
        hint = "give --table of the pipeline, or a directory of Parquet files"
        raise NotFound("there is no table", flag="--table", table=place, hint=hint)
    source = f"{place}/_source.json"
    made = document(source, (files.read(source) or b"{}").decode(errors="replace"))
    return place, made, taken(files, place)


def _of_its_brokers(snapshots: Sequence[Snapshot], place: str, made: dict[str, Any]) -> list[Snapshot]:
    """The archives that the table was made from. ``Invalid`` if none of them is audited."""
    clusters, brokers = made.get("cluster", "*"), made.get("broker", "*")
    found = [
        s for s in snapshots
        if matches(s.place.cluster, _patterns(clusters)) and matches(s.place.broker, _patterns(brokers))
    ]  # fmt: skip
    if not found:
        raise Invalid(
            "the table was made from other brokers", flag="--table", table=place, expected=f"{clusters}/{brokers}",
            found=", ".join(f"{s.place.cluster}/{s.place.broker}" for s in snapshots),
            hint="give --cluster and --broker as the table was made with",
        )  # fmt: skip
    return found


def _selection(work: Work, made: dict[str, Any]) -> dict[str, object]:
    """Options: what of the archive the table should hold; its own topics, which ``--topics`` may narrow."""
    args = work.args
    own = made.get("topics", "*")
    system = made.get("include-system-topics", args.include_system_topics)
    return {
        "topics": args.topics if own == "*" else own,
        "includeSystemTopics": str(bool(system)).lower(),
        "startingTimestamp": made.get("from"),
        "endingTimestamp": made.get("to"),
    }


def _named(patterns: str) -> Column:
    """Rows of topics that match one of the patterns."""
    if patterns == "*":
        return F.lit(True)
    return reduce(Column.__or__, map(topic_matches, _patterns(patterns)))


def _patterns(joined: str) -> list[str]:
    return [pattern.strip() for pattern in joined.split(",")]


def _frame(work: Work, place: str, names: Sequence[str]) -> DataFrame:
    """All of its rows. ``Invalid`` if it lacks one of these columns."""
    reader = work.spark.read.format("delta" if Files(work.spark).exists(f"{place}/_delta_log") else "parquet")
    frame = reader.load(place)
    missing = sorted(set(names) - set(frame.columns))
    if missing:
        raise Invalid(
            "the table lacks columns that identify its messages", table=place, missing=", ".join(missing),
            hint="columns: " + ", ".join(names),
        )  # fmt: skip
    if (
        dict(frame.dtypes)["topic"] != "string"
    ):  # its directories are named by topics, and all of them are numbers
        fields = [
            StructField("topic", StringType()) if field.name == "topic" else field for field in frame.schema
        ]
        frame = reader.schema(StructType(fields)).load(place)
    return frame


def _hashed(rows: DataFrame, table: ComparedTable, side: int) -> DataFrame:
    """A message's place, and a hash of each column that is compared: none is carried further than here."""
    life = F.xxhash64(*LIFE) if table.made else F.lit(None).cast("long")
    hashes = (_hash(name, table.types[name]).alias(_of(name)) for name in table.compared)
    return rows.select(*QUEUE, "queue_offset", life.alias("life"), F.lit(side).alias("side"), *hashes)


def _hash(name: str, kind: str) -> Column:
    """Of a column's value, null or not: Spark's own hash passes over nulls, and takes no map."""
    value = F.array_sort(F.map_entries(name)) if kind.startswith("map") else F.col(name)
    return F.xxhash64(F.isnull(name), value)


def _of(name: str) -> str:
    return f"hash of {name}"


def _queues(work: Work, snapshots: Sequence[Snapshot]) -> DataFrame:
    """The first readable offset of every queue, and whether it ever began anew."""
    options = parse_options(work.options(includeSystemTopics="true"))
    parts = []
    for s in snapshots:
        walked = read_queues(s.view.state, s.choice(options), "min_offset", "highest_generation")
        queues, columns = walked.queues, walked.columns
        parts.append(
            pa.table(
                {
                    "cluster": repeated(s.place.cluster, len(queues)), "broker": repeated(s.place.broker, len(queues)),
                    "topic": queues.topics.take(pa.array(queues.topic)), "queue_id": queues.queue_id,
                    "min_offset": columns["min_offset"], "anew": columns["highest_generation"] > 1,
                }
            )
        )  # fmt: skip
    return work.spark.createDataFrame(pa.concat_tables(parts))


def _sums(compared: Iterable[str]) -> list[Column]:
    """Per side: rows, and two sums of a hash of place and columns that do not depend on the order of rows."""
    hashed = F.xxhash64("queue_offset", *map(_of, compared))
    made = []
    for side in (0, 1):
        mine = F.col("side") == side
        made += [
            F.sum(mine.cast("long")).alias(f"rows{side}"),
            F.bit_xor(F.when(mine, hashed).otherwise(F.lit(0).cast("long"))).alias(f"fold{side}"),
            F.sum(F.when(mine, hashed.bitwiseAND(0x7FFFFFFF)).otherwise(0)).alias(f"total{side}"),
        ]
    return made


def _by_message(both: DataFrame, compared: Sequence[str]) -> DataFrame:
    """Messages that are not the same, and there once, on both sides; one difference for neighbours of one kind.

    Of a queue that began anew the archive's side has the newest generation alone: rows of earlier ones in the table are not a
    difference.
    """
    counts = [F.sum((F.col("side") == side).cast("long")).alias(f"rows{side}") for side in (0, 1)]
    differs = {name: F.min(_of(name)) != F.max(_of(name)) for name in compared}
    named = F.concat_ws(", ", *(F.when(changed, F.lit(name)) for name, changed in differs.items()))
    body = reduce(Column.__or__, (differs[name] for name in BODY if name in differs))
    found = both.groupBy(*QUEUE, "queue_offset", "life", "anew").agg(
        *counts, named.alias("detail"), body.alias("other_body")
    )
    what = (
        F.when(F.col("rows1") == 0, "messages are not in the table")
        .when((F.col("rows0") == 0) & ~F.col("anew"), "messages are in the table only")
        .when(F.col("rows1") > 1, "messages are in the table twice")
        .when(F.col("other_body"), "bodies differ in the table")
        .when(F.col("detail") != "", "other columns differ in the table")
    )
    wrong = found.withColumn("what", what).filter("what is not null")
    wrong = wrong.withColumn("detail", F.when((F.col("rows0") > 0) & (F.col("rows1") > 0), F.col("detail")))
    same = ("what", *QUEUE, "detail")
    place = F.row_number().over(Window.partitionBy(*same).orderBy("queue_offset"))
    together = wrong.withColumn("island", F.col("queue_offset") - place).groupBy(*same, "island")
    return together.agg(
        F.min("queue_offset").alias("start_offset"), (F.max("queue_offset") + 1).alias("end_offset")
    ).select("what", *QUEUE, "start_offset", "end_offset", *nothing("key string", "block int"), "detail")
