"""`make demo-years`: a month of traffic, archived, merged, sealed, trimmed and swept, and then read in three ways.

A broker's store is generated and archived under a clock that is told to move; the same traffic goes into a second archive that
nothing ages, for comparison. Then a real broker starts on what is left of the store, and a pull consumer reads through
the gateway; DuckDB reads the sealed Parquet files, and Spark the whole archive. Everything is compared with what was sent.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from tests.kit.agedbroker import by_consumer
from tests.kit.contents import Contents, by_duckdb
from tests.kit.demo import work_directory
from tests.kit.pysparks import PLAIN_JVM, session
from tests.kit.years import DAY_SECONDS, Month, Traffic, ageing, month
from tiered_spark import frame, register

KEPT_DAYS = 14
"""Of topic ``Clicks``; the others stay for ever."""
KEPT_FILES = 3
"""Commitlog files that the broker keeps."""
FILE_BYTES = 1 << 20
VERBS = ("put", "get", "list", "delete")


def simulate(work: Path, days: int, start_ms: int, *, ages: bool) -> Month:
    """The month; ``ages``: with maintenance."""
    with month(work, ageing(KEPT_DAYS), start_ms=start_ms, traffic=Traffic(), file_bytes=FILE_BYTES) as made:
        if not ages:
            made.tasks = ()
        for _ in range(days):
            made.day()
            made.expire(KEPT_FILES)
        made.sweep(2 * DAY_SECONDS)
        return made


def by_spark(spark: SparkSession, archive: str) -> Contents:
    """The whole archive, sealed or not, as one frame."""
    found: DataFrame = frame(spark, archive)
    rows = found.selectExpr("topic", "queue_id", "queue_offset", "sha2(body, 256) digest").collect()
    return Contents.of((row.topic, row.queue_id, row.queue_offset, row.digest) for row in rows)


def before_and_after(young: Month, aged: Month) -> Table:
    """Objects and bytes of both archives, and the requests that the store was sent."""
    shown = Table(title="the same month, as archived and as aged")
    for name in ("", "objects", "bytes", "PUT", "GET", "LIST", "DELETE"):
        shown.add_column(name, justify="right" if name else "left")
    for name, made in (("only archived", young), ("merged, sealed, trimmed, swept", aged)):
        kinds = made.objects().values()
        asked = Counter(verb for verb, *_ in made.provider.calls)
        cells = (sum(count for count, _ in kinds), sum(size for _, size in kinds), *(asked[v] for v in VERBS))
        shown.add_row(name, *(f"{cell:,}" for cell in cells))
    return shown


def verdicts(wanted: Mapping[str, Contents], found: Mapping[str, Contents]) -> tuple[Table, bool]:
    """What each reader found beside what was sent, and whether all of it is the same."""
    shown = Table(title="every queue: first offset, number of messages, and digest of the bodies in order")
    for name in ("reader", "queues", "messages", "sent", "verdict"):
        shown.add_column(name, justify="left" if name in ("reader", "verdict") else "right")
    good = True
    for name, have in found.items():
        same = have == wanted[name]
        good = good and same
        verdict = "[green]identical[/]" if same else "[red]DIFFERENT[/]"
        shown.add_row(
            name, f"{len(have.queues)}", f"{have.messages:,}", f"{wanted[name].messages:,}", verdict
        )
    return shown, good


def run(work: Path, days: int, console: Console) -> bool:
    """All of it."""
    start_ms = int(time.time() * 1000) - days * DAY_SECONDS * 1000
    console.print(f"{days} days of traffic, twice: once only archived, once with maintenance …")
    young = simulate(work / "young", days, start_ms, ages=False)
    aged = simulate(work / "aged", days, start_ms, ages=True)
    directory = work / "archive"
    aged.write(directory)
    console.print(before_and_after(young, aged))
    archive = f"file://{directory}"
    console.print("a pull consumer through the gateway, DuckDB on the sealed files, Spark on the archive …")
    wanted = {"consumer": aged.live(), "DuckDB": aged.in_files(), "Spark": aged.live()}
    with session(jvm=PLAIN_JVM) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        found = {
            "consumer": by_consumer(work, aged, archive),
            "DuckDB": by_duckdb(directory),
            "Spark": by_spark(spark, archive),
        }
    shown, good = verdicts(wanted, found)
    console.print(shown)
    trimmed = sum(aged.minimums().values())
    console.print(f"retention of {KEPT_DAYS} days took {trimmed:,} messages of Clicks")
    return good and wanted["DuckDB"].messages > 0 and trimmed > 0


def main() -> int:
    """Run the demo; 0 if every reader found what was sent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--keep", action="store_true", help="leave store and archives on disk and say where")
    options = parser.parse_args()
    with work_directory(options.keep) as work:
        return 0 if run(work, options.days, Console(soft_wrap=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
