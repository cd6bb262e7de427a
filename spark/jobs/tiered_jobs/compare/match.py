"""Both sides, one below the other, grouped by what makes messages the same: one scan of each and one shuffle.

A group tells for each side how many messages it has, and the least, greatest and folded hash of what is compared: where these
differ, the sides do. Only figures per topic and a few examples come to the driver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tiered_spark.options import parse_options
from tiered_spark.snapshot import find_archives

if TYPE_CHECKING:
    from tiered_jobs.work import Work

BROKERS_OWN = ("__CRC32#", "CLUSTER", "MSG_REGION", "TRACE_ON", "1ST_PHYSICAL_OFFSET")
"""Properties that brokers and their clients set by themselves: they differ between clusters, and are never compared."""

PARTS = 16
"""Parts for each example that is wanted: so many that of a few differences hardly ever three meet in one."""

HEADER = ("topic", "queue_id", "queue_offset", "body_crc", "body_size", "tags")

FIGURES = (
    "left", "right", "same", "missing", "extra", "different", "repeated_left", "repeated_right", "unmatched_left",
    "unmatched_right",
)  # fmt: skip
"""Of a topic: messages of each side; identities that are the same on both, on one side only, not the same; further messages of
one identity; messages that cannot be matched."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """``other``: options of the right side that differ from the left one's. ``renamed``: the name that both topics get."""

    by: str
    ignored: tuple[str, ...]
    other: Mapping[str, object]
    renamed: str | None
    limit: int

    @property
    def properties(self) -> bool:
        """Whether properties are compared."""
        return "properties" not in self.ignored

    @property
    def columns(self) -> tuple[str, ...]:
        """What must be read: of the records only where it is needed."""
        more = {"unique_key": ("unique_key", "reconsume_times"), "place": (), "keys_body": ("keys",)}[self.by]
        return ("cluster", "broker", *HEADER, *more, *(("properties",) if self.properties else ()))


def compare(work: Work, plan: ComparisonPlan) -> tuple[list[Row], list[Row]]:
    """(figures per topic, examples of what differs)."""
    several = plan.by == "place" and any(
        len(find_archives(parse_options(work.options(**other)))) > 1 for other in ({}, plan.other)
    )
    left = _side(work.read(",".join(plan.columns)), plan, 0, several=several)
    right = _side(work.read(",".join(plan.columns), **plan.other), plan, 1, several=several)
    return _collected(_judged(left.unionByName(right)), plan)


def _side(frame: DataFrame, plan: ComparisonPlan, side: int, *, several: bool) -> DataFrame:
    """topic, identity (null: cannot be matched), hash of what is compared, place in words, side."""
    topic = F.lit(plan.renamed) if plan.renamed is not None else F.col("topic")
    within = [F.lit("")] if "topic" in plan.ignored else [topic]
    if plan.by == "unique_key":
        # A group's retries of a message have its unique key too.
        parts = [*within, F.col("unique_key"), F.col("reconsume_times")]
        identity = F.when(F.col("unique_key").isNotNull(), F.struct(*_named(parts)))
        shown = F.col("unique_key")
    elif plan.by == "place":
        where = [F.col("cluster"), F.col("broker")] if several else []
        identity = F.struct(*_named([*within, *where, F.col("queue_id"), F.col("queue_offset")]))
        shown = F.concat_ws("/", "queue_id", "queue_offset")
    else:
        keys = F.array_join(F.array_sort("keys"), " ")
        identity = F.struct(*_named([*within, keys, F.col("body_crc"), F.col("body_size")]))
        shown = F.concat_ws(" ", keys, F.concat(F.lit("crc "), F.col("body_crc")))
    return frame.select(
        topic.alias("topic"), identity.alias("identity"), shown.alias("message"), _compared(plan).alias("content"),
        F.concat_ws("/", "broker", "queue_id", "queue_offset").alias("place"), F.lit(side).alias("side"),
    )  # fmt: skip


def _named(parts: list[Column]) -> list[Column]:
    return [part.alias(f"part{number}") for number, part in enumerate(parts)]


def _compared(plan: ComparisonPlan) -> Column:
    """A hash of what must be equal. Properties count as a mapping, whatever their order."""
    parts: list[Column] = [F.lit(0)]
    if "body" not in plan.ignored:
        parts += [F.col("body_crc"), F.col("body_size")]
    if "tags" not in plan.ignored:
        parts.append(F.coalesce("tags", F.lit("")))
    if plan.properties:
        left_out = [
            *BROKERS_OWN,
            *(n.removeprefix("properties.") for n in plan.ignored if n.startswith("properties.")),
        ]
        if plan.by == "keys_body":
            left_out.append("UNIQ_KEY")
        if "tags" in plan.ignored:
            left_out.append("TAGS")
        kept = F.map_filter("properties", lambda name, _: ~name.isin(left_out))
        parts.append(F.array_sort(F.map_entries(kept)))
    return F.xxhash64(*parts)


def _judged(both: DataFrame) -> DataFrame:
    """One row for each identity, with ``what`` it is; messages without identity make one row a topic."""
    figures = []
    for side in (0, 1):
        mine = F.col("side") == side
        content = F.when(mine, F.col("content"))
        figures += [
            F.sum(mine.cast("long")).alias(f"rows{side}"), F.min(content).alias(f"low{side}"),
            F.max(content).alias(f"high{side}"), F.bit_xor(content).alias(f"fold{side}"),
            F.min(F.when(mine, F.col("place"))).alias(f"place{side}"),
        ]  # fmt: skip
    apart = F.when(F.col("identity").isNull(), F.col("topic")).alias("apart")
    first = [F.min(name).alias(name) for name in ("topic", "message")]
    found = both.groupBy("identity", apart).agg(*first, *figures)
    unequal = (F.col("low0") != F.col("low1")) | (F.col("high0") != F.col("high1"))
    folded = (F.col("rows0") == F.col("rows1")) & (F.col("fold0") != F.col("fold1"))
    what = (
        F.when(F.col("identity").isNull(), "unmatched")
        .when(F.col("rows1") == 0, "missing")
        .when(F.col("rows0") == 0, "extra")
        .when(unequal | folded, "different")
        .otherwise("same")
    )
    return found.withColumn("what", what)


def _collected(judged: DataFrame, plan: ComparisonPlan) -> tuple[list[Row], list[Row]]:
    """Figures by topic and examples by kind, by one action. What differs is cut into many parts, of which each gives two."""
    differs = F.col("what").isin("missing", "extra", "different")
    part = F.when(differs, F.pmod(F.xxhash64("topic", "message"), F.lit(PARTS * plan.limit))).otherwise(-1)
    matched = F.col("what") != "unmatched"
    sums = [F.count(F.lit(1)).alias("identities")]
    for side in (0, 1):
        rows = F.col(f"rows{side}")
        repeated = F.when(matched & (rows > 1), rows - 1).otherwise(0)
        sums += [F.sum(rows).alias(f"rows{side}"), F.sum(repeated).alias(f"repeated{side}")]
    example = F.struct("topic", "message", "place0", "place1")
    cut = judged.withColumn("part", part).withColumn("example", example)
    grouped = cut.groupingSets([["topic", "what"], ["what", "part"]], "topic", "what", "part")
    topics: dict[str, Row] = {}
    examples: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for row in grouped.agg(
        *sums, F.min("example").alias("first"), F.max("example").alias("last")
    ).toLocalIterator():
        what = row["what"]
        if row["part"] is None:
            _count(topics.setdefault(row["topic"], {"topic": row["topic"], **dict.fromkeys(FIGURES, 0)}), row)
        elif what not in ("same", "unmatched"):
            examples[what] |= {tuple(row["first"]), tuple(row["last"])}
    shown = [
        {"what": what, **dict(zip(("topic", "message", "left", "right"), found, strict=True))}
        for what in sorted(examples)
        for found in sorted(examples[what], key=lambda e: e[:2])[: plan.limit]
    ]
    return [topics[name] for name in sorted(topics)], shown


def _count(figures: Row, row: Any) -> None:
    """Add one kind of a topic's identities."""
    for side, name in enumerate(("left", "right")):
        figures[name] += row[f"rows{side}"]
        figures[f"repeated_{name}"] += row[f"repeated{side}"]
        if row["what"] == "unmatched":
            figures[f"unmatched_{name}"] += row[f"rows{side}"]
    if row["what"] != "unmatched":
        figures[row["what"]] += row["identities"]
