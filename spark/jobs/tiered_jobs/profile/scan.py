"""The two readings of ``profile``: headers, which cost no block, and records, for what only they tell.

Each is one pass that ends in counts, so small that they are kept while they are asked: a row for each topic, and for each tag,
time bucket, size, delay or address of a topic. What comes to the driver is of at most ``limit`` topics; all others are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tiered_jobs.profile.histogram import LARGEST, bucket_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CLOCK_MS = (946_684_800_000, 253_402_300_800_000)
"""Born times outside of the years 2000 to 9999 were set by no clock: 0 and -1 are unset, others are seconds, or anything."""

OTHERS = None
"""Stands where a topic's name does, for those beyond the limit."""

_GROUPED = ("topic", "tag", "at", "size", "delay")
_SETS = (("topic",), *(("topic", name) for name in _GROUPED[1:]))
_NUMBER = {
    columns: sum(1 << (len(_GROUPED) - 1 - i) for i, n in enumerate(_GROUPED) if n not in columns)
    for columns in _SETS
}


@dataclass(slots=True)
class Counted:
    """A topic, or all others together: what was counted. Times and delays in ms, sizes in bytes; ``at``, ``size``, ``delay``:
    messages by bucket; ``absurd_clocks``: messages born outside of ``CLOCK_MS``; ``tags`` and
    ``producers``: the most frequent with their messages. Of records, unless ``None``: messages with a key, and about how many
    keys and unique keys there are."""

    topics: int = 1
    messages: int = 0
    body_bytes: int = 0
    first: int | None = None
    last: int | None = None
    smallest: int = 0
    largest: int = 0
    slowest: int = 0
    negative_delays: int = 0
    absurd_clocks: int = 0
    at: dict[int, int] = field(default_factory=dict)
    size: dict[int, int] = field(default_factory=dict)
    delay: dict[int, int] = field(default_factory=dict)
    tags: list[tuple[str, int]] = field(default_factory=list)
    distinct_tags: int = 0
    producers: list[tuple[str, int]] | None = None
    distinct_producers: int | None = None
    keyed: int | None = None
    keys: int | None = None
    unique_keys: int | None = None


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def count_headers(frame: DataFrame, bucket_ms: int, limit: int, top: int) -> dict[str | None, Counted]:
    """Topics with most messages first, then ``OTHERS`` if there are more than ``limit``. ``frame``: topic, store_timestamp,
    born_timestamp, tags, body_size, times as numbers (ms): what clients send as a born time need be no
    time. ``at`` counts in buckets since 1970."""
    from pyspark.sql import functions as f

    stored, born = f.col("store_timestamp"), f.col("born_timestamp")
    least, most = f.lit(-LARGEST - 1), f.lit(LARGEST)
    waited = f.coalesce(f.try_subtract(stored, born), f.when(born < 0, most).otherwise(least))
    rows = frame.select(
        "topic", f.col("tags").alias("tag"), "body_size", stored.alias("stored"), waited.alias("waited"),
        born.alias("born"),        f.floor(stored / f.lit(bucket_ms)).alias("at"), bucket_of(f.col("body_size")).alias("size"),
        bucket_of(waited).alias("delay"),
    )  # fmt: skip
    grouped = rows.groupingSets([[f.col(n) for n in names] for names in _SETS], *_GROUPED)
    counts = grouped.agg(
        f.grouping_id().alias("set"), f.count("*").alias("messages"), f.sum("body_size").alias("body_bytes"),
        f.min("stored").alias("first"), f.max("stored").alias("last"), f.min("body_size").alias("smallest"),
        f.max("body_size").alias("largest"), f.max("waited").alias("slowest"),
        f.sum((f.col("waited") < 0).cast("long")).alias("negative_delays"),
        f.sum((~f.col("born").between(CLOCK_MS[0], CLOCK_MS[1] - 1)).cast("long")).alias("absurd_clocks"),
    )  # fmt: skip
    with _kept(counts) as kept:
        ranked = kept.where(_is(("topic",))).orderBy(f.desc("messages"), "topic").limit(limit + 1)
        names = [row.topic for row in ranked.select("topic").collect()]
        shown = _shown(names, limit)
        found = _totals(kept, shown)
        ordered = {name: found[name] for name in [*names[:limit], OTHERS] if name in found}
        _add_buckets(kept, shown, ordered)
        tags = kept.where(_is(("topic", "tag")) & f.col("tag").isNotNull())
        for name, tag, messages, distinct in _most(tags, shown, "tag", top):
            ordered[name].tags.append((tag, messages))
            ordered[name].distinct_tags = distinct
    return ordered


def count_records(
    frame: DataFrame, found: dict[str | None, Counted], more: bool, top: int
) -> tuple[int, int, int]:
    """Fill in what only records tell; about how many unique keys and keys, and how many producers there are in all. ``frame``:
    topic, born_host, unique_key, keys; ``more``: whether ``found`` has others."""
    from pyspark.sql import functions as f

    port = f.length(f.substring_index("born_host", ":", -1)) + 1
    address = f.expr("born_host").substr(f.lit(1), f.length("born_host") - port)
    # One row for the message with its unique key, at 0, and one for each key.
    split = frame.select(
        "topic",
        address.alias("address"),
        f.posexplode(f.concat(f.array("unique_key"), "keys")).alias("n", "key"),
    )
    grouped = split.groupBy("topic", "address").agg(
        f.sum((f.col("n") == 0).cast("long")).alias("messages"),
        f.sum((f.col("n") == 1).cast("long")).alias("keyed"),
        f.hll_sketch_agg(f.when(f.col("n") == 0, f.col("key"))).alias("unique_keys"),
        f.hll_sketch_agg(f.when(f.col("n") > 0, f.col("key"))).alias("keys"),
        f.count(f.when(f.col("n") == 0, f.col("key"))).alias("with_unique_key"),
        f.count(f.when(f.col("n") > 0, f.col("key"))).alias("with_keys"),
    )
    shown = _shown(
        [name for name in found if name is not OTHERS], len(found) - 1 if more else len(found), more=more
    )
    with _kept(grouped) as kept:
        counted = kept.drop("topic", "messages").columns
        totals = kept.select(shown.alias("shown"), *counted).rollup("shown").agg(
            f.grouping_id().alias("all"), f.sum("keyed").alias("keyed"),
            _distinct("unique_keys", "with_unique_key"), _distinct("keys", "with_keys"),
            f.countDistinct("address").alias("addresses"),
        )  # fmt: skip
        all_unique = all_keys = all_addresses = 0
        for row in totals.collect():
            if row["all"]:
                all_unique, all_keys, all_addresses = row.unique_keys, row["keys"], row.addresses
                continue
            one = found[row.shown]
            one.keyed, one.unique_keys, one.keys = row.keyed, row.unique_keys, row["keys"]
            one.producers = []
        for name, producer, messages, distinct in _most(kept, shown, "address", top):
            one = found[name]
            one.producers = [*(one.producers or []), (producer, messages)]
            one.distinct_producers = distinct
    return all_unique, all_keys, all_addresses


def _distinct(sketch: str, counted: str) -> Column:
    """How many a sketch has seen, about, and never more than were counted."""
    from pyspark.sql import functions as f

    estimate = f.hll_sketch_estimate(f.hll_union_agg(sketch))
    return f.least(estimate, f.sum(counted)).alias(sketch)


def _is(columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    return f.col("set") == _NUMBER[tuple(columns)]


def _shown(names: Sequence[str], limit: int, *, more: bool = False) -> Column:
    """The topic of a row, or null if it is one of the others."""
    from pyspark.sql import functions as f

    if len(names) <= limit and not more:
        return f.col("topic")
    return f.when(f.col("topic").isin(list(names[:limit])), f.col("topic"))


def _totals(kept: DataFrame, shown: Column) -> dict[str | None, Counted]:
    from pyspark.sql import functions as f

    totals = kept.where(_is(("topic",))).groupBy(shown.alias("shown")).agg(
        f.count("*").alias("topics"), f.sum("messages").alias("messages"), f.sum("body_bytes").alias("body_bytes"),
        f.min("first").alias("first"), f.max("last").alias("last"), f.min("smallest").alias("smallest"),
        f.max("largest").alias("largest"), f.max("slowest").alias("slowest"),
        f.sum("negative_delays").alias("negative_delays"), f.sum("absurd_clocks").alias("absurd_clocks"),
    )  # fmt: skip
    found = {}
    for row in totals.collect():
        values: dict[str, Any] = row.asDict()
        name = values.pop("shown")
        found[name] = Counted(**values)
    return found


def _add_buckets(kept: DataFrame, shown: Column, found: dict[str | None, Counted]) -> None:
    from pyspark.sql import functions as f

    names = {_NUMBER[("topic", name)]: name for name in ("at", "size", "delay")}
    bucket = f.coalesce("at", f.col("size").cast("long"), f.col("delay").cast("long"))
    rows = kept.where(f.col("set").isin(list(names)))
    summed = rows.groupBy(shown.alias("shown"), "set", bucket.alias("bucket")).agg(
        f.sum("messages").alias("messages")
    )
    for row in summed.toLocalIterator():
        getattr(found[row.shown], names[row.set])[row.bucket] = row.messages


def _most(kept: DataFrame, shown: Column, what: str, top: int) -> Iterator[tuple[str | None, str, int, int]]:
    """(topic, value, messages, how many values the topic has) of the ``top`` most frequent values of each topic, in order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    summed = kept.groupBy(shown.alias("shown"), what).agg(f.sum("messages").alias("messages"))
    of_topic = Window.partitionBy("shown")
    place = f.row_number().over(of_topic.orderBy(f.desc("messages"), what))
    rows = summed.select("*", place.alias("place"), f.count("*").over(of_topic).alias("distinct"))
    for row in rows.where(f.col("place") <= top).orderBy("shown", "place").collect():
        yield row.shown, row[what], row.messages, row.distinct
