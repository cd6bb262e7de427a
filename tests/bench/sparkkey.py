"""One key of many messages that are sealed, by Spark: the data source, and ``tiered_spark.frame``, in one session."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from tests.bench.run import Row, expect
from tests.bench.sparkscan import CORES, Took, jvm_cpu, median_of, sealed_archive
from tests.kit.pysparks import BEST_JVM, session
from tiered_spark import frame, register


def one_key(spark: SparkSession, work: Path, messages: int) -> list[Row]:
    """One key of many small messages, all of them sealed: another key each time, the frame made anew."""
    directory = work / "keys"
    directory.mkdir()
    url, _ = sealed_archive(directory, messages, body_bytes=64)
    some = frame(spark, url, columns="queue_offset,unique_key,keys")
    rows = some.where(f"queue_offset = {messages // 40}").collect()

    def by_source(key: str) -> DataFrame:
        return spark.read.format("rocketmq_tiered").option("archive", url).option("keys", key).load()

    def row(what: str, asked: Callable[[str], DataFrame], keys: Sequence[str]) -> Row:
        took = []
        for key in keys:
            began, cpu = time.monotonic(), jvm_cpu()
            expect(len(asked(key).collect()), 1, "message has the key")
            took.append(Took(time.monotonic() - began, jvm_cpu() - cpu))
        return Row(
            f"{what}, one key of {messages:,}",
            f"{median_of(took[1:])}; the first {took[0]}",
            "-",
            "-",
            "≤ 2 s",
        )

    unique, listed = [row.unique_key for row in rows], [row["keys"][0] for row in rows]
    return [
        row("source, unique key", by_source, unique[:5]),
        row("source, key", by_source, listed[:5]),
        row("frame(keys=…), unique key", lambda key: frame(spark, url, keys=key), unique[5:10]),
        row("frame(keys=…), key", lambda key: frame(spark, url, keys=key), listed[5:10]),
        row(
            "frame, unique_key = …",
            lambda key: frame(spark, url).where(f"unique_key = '{key}'"),
            unique[10:15],
        ),
    ]


def main(arguments: list[str]) -> int:
    """Run, print, 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sparkkey", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    given = parser.parse_args(arguments)
    table = Table(title="medians of four, after the first")
    for heading in ("what", "ours", "must reach"):
        table.add_column(heading)
    settings = {"spark.python.unix.domain.socket.enabled": "true"}
    with (
        tempfile.TemporaryDirectory(prefix="tiered-bench-spark-") as work,
        session(f"local[{CORES}]", jvm=BEST_JVM, spark__driver__memory="2g", **settings) as spark,
    ):
        register(spark)
        for row in one_key(spark, Path(work), given.messages):
            table.add_row(row.what, row.ours, row.target)
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
