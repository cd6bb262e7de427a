"""``make bench-spark``: scans of the archive by Spark beside Spark's own Parquet scan of the same rows, in one warm session.

What a scan asks the store for is counted in one process without a JVM, on the same archive and plan.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo
from rich.console import Console
from rich.table import Table

from tests.bench.run import Row, generate
from tests.kit.fetchscene import Ranges
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive, batches_of
from tiered_spark import register, scan, snapshot
from tiered_spark.options import parse_options
from tiered_spark.snapshot import open_snapshots

HEADER = "topic,queue_id,queue_offset,store_timestamp,tags"
CORES = 2
RUNS = 3


def seconds(frame: Callable[[], DataFrame]) -> float:
    """Median time to bring every row of a frame into the JVM and drop it; the first run warms up."""
    found = []
    for _ in range(RUNS + 1):
        began = time.monotonic()
        frame().write.format("noop").mode("overwrite").save()
        found.append(time.monotonic() - began)
    return statistics.median(found[1:])


def scans(spark: SparkSession, work: Path, messages: int) -> list[Row]:
    """All columns, and header columns, against Parquet."""
    size = generate(work / "store", messages, 8, topics=2)
    url = archive(work / "store", work)
    parquet = str(work / "parquet")

    def ours(columns: str = "") -> DataFrame:
        reader = spark.read.format("rocketmq_tiered").option("archive", url)
        return (reader.option("columns", columns) if columns else reader).load()

    ours().write.option("compression", "zstd").parquet(parquet)
    header = HEADER.split(",")
    full = seconds(ours), seconds(lambda: spark.read.parquet(parquet))
    heads = seconds(lambda: ours(HEADER)), seconds(lambda: spark.read.parquet(parquet).select(*header))
    rate = size / full[0] / 1e6
    return [
        Row(
            f"full scan, {messages:,} messages of 1 KiB", f"{full[0]:.2f} s, {rate:.0f} MB/s",
            f"{full[1]:.2f} s (Parquet, zstd)", f"{full[1] / full[0]:.2f}", "≥ 0.5",
        ),
        Row("the same a core", f"{rate / CORES:.0f} MB/s of records", "-", "-", "≥ 150 MB/s"),
        Row(
            f"header columns ({HEADER})", f"{heads[0]:.2f} s", f"{heads[1]:.2f} s (Parquet, zstd)",
            f"{heads[1] / heads[0]:.2f}", "≥ 0.5",
        ),
        *requests(url, messages),
    ]  # fmt: skip


def requests(url: str, messages: int) -> list[Row]:
    """What pruned scans fetch."""
    seen = Ranges(snapshot.shared_provider(url))
    snapshot.shared_provider = scan.shared_provider = lambda _: seen  # type: ignore[assignment]

    def run(**options: str) -> tuple[int, int, int, float]:
        seen.gets.clear()
        options = {"archive": url, **options}
        began = time.monotonic()
        rows = sum(batch.num_rows for batch in batches_of(options))
        took = time.monotonic() - began
        data = [length for key, _, length in seen.gets if "/data/" in key or "/segment/" in key]
        return rows, len(data), sum(data), took

    everything = run(columns="topic,store_timestamp,body")
    queue = next(open_snapshots(parse_options({"archive": url}))[0].archive.state.queues())
    low, high = queue.min_store_time or 0, queue.max_store_time or 0
    middle = (low + high) // 2
    span = max(1, (high - low) // 100)
    part = run(
        columns="topic,store_timestamp,body",
        startingTimestamp=str(middle),
        endingTimestamp=str(middle + span),
    )
    (batch, *_) = batches_of({"archive": url, "columns": "unique_key"})
    key = batch.column(0)[len(batch) // 2].as_py()
    planned = time.monotonic()
    open_snapshots(parse_options({"archive": url}))
    planning = time.monotonic() - planned
    seen.gets.clear()
    began = time.monotonic()
    found = sum(
        sum(value == key for value in batch.column(0).to_pylist())
        for batch in batches_of({"archive": url, "columns": "unique_key"}, [EqualTo(("unique_key",), key)])
    )
    took = time.monotonic() - began - planning
    gets = sum("/data/" in name for name, _, _ in seen.gets)
    return [
        Row(
            "store_timestamp range of 1 %: bytes fetched", f"{part[2] / 1e6:.1f} MB, {part[0]:,} rows",
            f"{everything[2] / 1e6:.1f} MB (all)", f"{part[2] / everything[2]:.3f}", "≤ 0.03",
        ),
        Row(
            f"one unique key of {messages:,}, after planning", f"{took:.2f} s, {gets} GETs, {found} found", "-", "-",
            "≤ 1 s, ≤ 100 GETs (10 M)",
        ),
    ]  # fmt: skip


def planning(work: Path, queues: int) -> list[Row]:
    """A plan over many queues, in a process that has done nothing else big."""
    generate(work / "many", 2 * queues, 100, body_bytes=64, topics=queues // 100)
    (work / "plan").mkdir()
    url = archive(work / "many", work / "plan")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    from tiered_spark.columns import message_schema
    from tiered_spark.datasource import MessageReader

    made = MessageReader(parse_options({"archive": url}), message_schema()).partitions()
    took = time.monotonic() - began
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return [
        Row(
            f"planning over {queues:,} queues",
            f"{took:.2f} s, +{peak} MiB, {len(made)} partitions",
            "-",
            "-",
            "≤ 5 s",
        )
    ]


def main(arguments: list[str]) -> int:
    """Run, print, 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sparkscan", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke-test sizes: the figures mean nothing")
    quick = parser.parse_args(arguments).quick
    table = Table(title="ratios to a baseline run beside them; machines differ, ratios less")
    for heading in ("what", "ours", "baseline", "ratio", "must reach"):
        table.add_column(heading)
    with tempfile.TemporaryDirectory(prefix="tiered-bench-spark-") as work:
        rows = planning(Path(work), 2_000 if quick else 100_000)
        with session(f"local[{CORES}]", spark__driver__memory="2g") as spark:
            register(spark)
            rows += scans(spark, Path(work), 20_000 if quick else 1_000_000)
    for row in rows:
        table.add_row(row.what, row.ours, row.baseline, row.ratio, row.target)
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
