"""`make demo-spark`: Spark follows a live archive as a stream, scans it, and writes a report.

A generator writes a live broker store and the daemon archives it; meanwhile a stream takes what is new into a Parquet table. At
the end the table and a scan of the archive are compared with the store, and the job ``profile`` writes its report.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from tests.kit.demo import Demo, parse, work_directory
from tests.kit.oracle import read_store
from tests.kit.pysparks import PLAIN_JVM, session
from tiered_jobs.main import main as job
from tiered_spark import SteadyQuery, register

COLUMNS = "topic,queue_id,queue_offset,store_timestamp,body"
REPORT = Path("out/profile.html")


class SparkDemo(Demo):
    """One run: the generator and daemon of the other demo, and a session."""

    def follow(self, spark: SparkSession) -> Path:
        """Stream until everything that was written is in the table."""
        self.start_generator()
        while not (self.store / "commitlog").exists() or not any((self.store / "commitlog").iterdir()):
            time.sleep(0.05)
        self.start_daemon()
        while not self.status().get("messages"):
            time.sleep(0.1)
        table = self.work / "table"
        reader = spark.readStream.format("rocketmq_tiered").option("archive", self.archive)
        writer = (
            reader.option("columns", COLUMNS).load().writeStream.format("parquet").option("path", str(table))
        )
        query = SteadyQuery(writer.option("checkpointLocation", str(self.work / "checkpoint")).start)
        started, taken = time.monotonic(), 0
        before, restarted = 0, 0  # what queries that were started again have written
        while taken < self.messages:
            time.sleep(1.0)
            query.look()
            if query.restarted > restarted:
                restarted = query.restarted
                before = spark.read.parquet(str(table)).count() if (table / "_spark_metadata").exists() else 0
            if time.monotonic() - started > self.limit_seconds:
                raise SystemExit(f"the stream took {taken:,} messages in {self.limit_seconds:.0f} s")
            taken = before + sum(int(progress["numInputRows"]) for progress in query.query.recentProgress)
            archived = int(str(self.status().get("messages", 0)))
            self.console.print(f"archived {archived:>8,}   in the table {taken:>8,}")
        query.stop()
        return table

    def compare(self, spark: SparkSession, table: Path) -> bool:
        """The streamed table and a scan, beside the store."""
        expected = {queue: len(records) for queue, records in read_store(self.store).items()}
        reader = spark.read.format("rocketmq_tiered").option("archive", self.archive)
        frames = {"stream": spark.read.parquet(str(table)), "scan": reader.option("columns", COLUMNS).load()}
        shown = Table(
            title="messages of each queue: those written, and those that Spark has, each offset once"
        )
        for name in ("queue", "written", *frames):
            shown.add_column(name, justify="left" if name == "queue" else "right")
        found = {name: counts(frame) for name, frame in frames.items()}
        for (topic, queue_id), count in sorted(expected.items()):
            cells = [
                f"[{'green' if have == (count, count) else 'red'}]{have[0]:,}[/]"
                for have in (counted.get((topic, queue_id), (0, 0)) for counted in found.values())
            ]
            shown.add_row(f"{topic}/{queue_id}", f"{count:,}", *cells)
        self.console.print(shown)
        wanted = {queue: (count, count) for queue, count in expected.items()}
        return all(counted == wanted for counted in found.values())


def counts(frame: DataFrame) -> dict[tuple[str, int], tuple[int, int]]:
    """Of each queue: rows, and different offsets."""
    frame.createOrReplaceTempView("found")
    query = "select topic, queue_id, count(*) n, count(distinct queue_offset) d from found group by topic, queue_id"
    rows = frame.sparkSession.sql(query).collect()
    return {(row.topic, row.queue_id): (row.n, row.d) for row in rows}


def main() -> int:
    """Run the demo; 0 if nothing is missing or double and the report is there."""
    options = parse(__doc__, messages=60_000, rate=6_000)
    with work_directory(options.keep) as work, session(jvm=PLAIN_JVM) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        demo = SparkDemo(work, options.messages, options.rate, Console(soft_wrap=True))
        try:
            good = demo.compare(spark, demo.follow(spark))
            REPORT.parent.mkdir(exist_ok=True)
            code = job(["profile", "--archive", demo.archive, "--html", str(REPORT)])
        finally:
            demo.end()
    Console().print(
        f"{'[green]nothing missing, nothing double[/]' if good else '[red]FAILED[/]'}; report: {REPORT}"
    )
    return code if good else 1


if __name__ == "__main__":
    sys.exit(main())
