"""Row-by-row, column-by-column equality of a Spark scan with ``tiered read``, over any number of generated messages.

    python -m tests.kit.sparkequal --messages 2000000

``tiered read`` runs as a process for each queue, and its lines go to files, which Spark reads beside the archive. Nothing but
counts, and the first differences, comes to the driver. Exit status 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tests.kit.command import tiered_process
from tests.kit.pysparks import BEST_JVM, session
from tests.kit.sparkscene import PLACE, archive
from tests.kit.variedlog import PLAIN, write
from tiered.codec.record.systemtopics import is_system_topic
from tiered_spark import register
from tiered_spark.columns import COLUMNS

KEY = ("topic", "queue_id", "queue_offset")
OTHERS = tuple(name for name in COLUMNS if name not in KEY)
LINES = (
    "topic string, queue_id int, queue_offset long, store_timestamp long, born_timestamp long, tags string, "
    "keys array<string>, unique_key string, msg_id string, properties map<string,string>, born_host string, "
    "store_host string, sys_flag int, flag int, reconsume_times int, prepared_transaction_offset long, "
    "physical_offset long, body_crc long, body_size int, body string, body_base64 string"
)
"""What ``tiered read --json`` writes; read strictly."""

READERS = 2
ROWS_PER_TASK = 50_000
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Result:
    """``lines`` of ``tiered read``, rows ``scanned``, ``paired`` of the same place, ``alone`` on one side; in how many pairs
    each column differs; the ``first`` rows that are alone or differ; bodies that are not what was compressed."""

    lines: int
    scanned: int
    paired: int
    alone: int
    differing: dict[str, int]
    first: list[str]
    wrong_bodies: int

    def same(self, messages: int) -> bool:
        """Whether both sides have so many rows, each once, with the same values."""
        counts = {self.lines, self.scanned, self.paired}
        return counts == {messages} and not (self.alone or self.wrong_bodies or any(self.differing.values()))


def read_lines(url: str, directory: Path) -> int:
    """``tiered read`` of every queue that the scan shows, into files of ``directory``; how many queues."""
    queues = tiered_process("queues", "--archive", url, "--json").json
    shown = [
        (row["topic"], row["queue_id"]) for row in queues
        if not is_system_topic(row["topic"], cluster=PLACE["cluster"], broker=PLACE["broker"])
    ]  # fmt: skip
    directory.mkdir()

    def read(number: int, topic: str, queue_id: int) -> None:
        words = [
            "read", "--archive", url, "--topic", topic, "--queue", str(queue_id), "--count", "0", "--format", "json",
        ]  # fmt: skip
        with (directory / f"{number}.json").open("wb") as file:
            subprocess.run([sys.executable, "-m", "tiered.cli.main", *words], stdout=file, check=True)

    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, range(len(shown)), *zip(*shown, strict=True)))
    return len(shown)


def compare(spark: SparkSession, url: str, directory: Path, messages: int) -> Result:
    """The files of ``read_lines`` against a scan of all columns, and of decoded bodies."""
    spark.conf.set("spark.sql.shuffle.partitions", max(2, messages // ROWS_PER_TASK))
    both = _joined(_lines(spark, directory), _scanned(spark, url))
    counts = both.agg(
        F.count_if(_on_both()).alias("paired"),
        F.count_if(~_on_both()).alias("alone"),
        *[F.count_if(_on_both() & _differs(name)).alias(name) for name in OTHERS],
    ).first()
    assert counts is not None
    told: dict[str, Any] = counts.asDict()
    paired, alone = told.pop("paired"), told.pop("alone")
    return Result(
        lines=spark.read.text(str(directory)).count(),
        scanned=_load(spark, url).option("columns", "topic").load().count(),
        paired=paired, alone=alone, differing=told,
        first=_first(both) if alone or any(told.values()) else [],
        wrong_bodies=_load(spark, url).option("columns", "properties,body").load()
        .where(~F.crc32("body").eqNullSafe(F.col("properties")[PLAIN].cast("long"))).count(),
    )  # fmt: skip


def _load(spark: SparkSession, url: str) -> Any:
    return spark.read.format("rocketmq_tiered").option("archive", url)


def _lines(spark: SparkSession, directory: Path) -> DataFrame:
    """What ``tiered read`` said, in the columns and types of a scan."""
    _check_names(directory)
    found = spark.read.schema(LINES).option("mode", "FAILFAST").json(str(directory))
    return found.select(
        *[F.lit(value).alias(name) for name, value in PLACE.items()],
        *[
            F.col(name)
            for name in COLUMNS
            if name not in (*PLACE, "body", "store_timestamp", "born_timestamp")
        ],
        *[F.timestamp_millis(F.col(name)).alias(name) for name in ("store_timestamp", "born_timestamp")],
        F.coalesce(F.unbase64("body_base64"), F.encode("body", "UTF-8")).alias("body"),
    )


def _check_names(directory: Path) -> None:
    """Spark leaves names out that the schema has not: a new field of ``tiered read`` has to be compared too."""
    known = {part.split()[0] for part in LINES.split(", ")}
    for path in directory.iterdir():
        with path.open(encoding="utf-8") as file:
            for line in [next(file, "{}"), next(file, "{}")]:
                new = json.loads(line).keys() - known
                if new:
                    raise SystemExit(
                        f"tiered read has fields that nothing compares: {', '.join(sorted(new))}"
                    )


def _scanned(spark: SparkSession, url: str) -> DataFrame:
    frame: DataFrame = _load(spark, url).option("decodeBody", "false").load()
    if tuple(frame.columns) != tuple(COLUMNS):
        raise SystemExit(f"a scan has other columns: {frame.columns}")
    return frame


def _joined(lines: DataFrame, scanned: DataFrame) -> DataFrame:
    """All rows of both, those of one place beside each other; maps as sorted entries, as Spark compares none."""

    def plain(frame: DataFrame) -> DataFrame:
        return frame.withColumn("properties", F.array_sort(F.map_entries("properties")))

    on = reduce(lambda a, b: a & b, (F.col(f"read.{n}") == F.col(f"scan.{n}") for n in KEY))
    return plain(lines).alias("read").join(plain(scanned).alias("scan"), on, "full_outer")


def _on_both() -> Column:
    return F.col("read.topic").isNotNull() & F.col("scan.topic").isNotNull()


def _differs(name: str) -> Column:
    return ~F.col(f"read.{name}").eqNullSafe(F.col(f"scan.{name}"))


def _first(both: DataFrame) -> list[str]:
    """The first rows that differ, as sentences."""
    wrong = both.where(~_on_both() | reduce(or_, map(_differs, OTHERS)))
    place = [F.coalesce(f"read.{name}", f"scan.{name}").alias(name) for name in KEY]
    sides = [
        F.when(F.col("read.topic").isNull(), F.lit("not in tiered read"))
        .otherwise(F.lit("not in the scan"))
        .alias("one"),
        _on_both().alias("both"),
    ]
    shown = [
        F.when(
            _differs(name),
            F.concat_ws(" ", F.lit(name), _text(f"read.{name}"), F.lit("≠"), _text(f"scan.{name}")),
        ).alias(name)
        for name in OTHERS
    ]  # fmt: skip
    rows = wrong.select(*place, *sides, F.concat_ws(", ", *shown).alias("what")).orderBy(*KEY).limit(SHOWN)
    return [
        f"{row.topic} {row.queue_id} {row.queue_offset}: {row.what if row.both else row.one}"
        for row in rows.collect()
    ]


def _text(name: str) -> Column:
    """A value as a person may compare it, shortened."""
    value = F.hex(name) if name.endswith(".body") else F.col(name).cast("string")
    return F.coalesce(F.substring(value, 1, 80), F.lit("null"))


def main(arguments: list[str]) -> int:
    """Generate, archive, read, compare; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.sparkequal", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tiered-equal-") as work:
        directory, began = Path(work), time.monotonic()

        def say(text: str) -> None:
            print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

        size = write(directory / "store", args.messages, args.seed)
        say(f"{args.messages:,} messages written, {size / 1e6:,.0f} MB")
        url = archive(directory / "store", directory)
        say("archived")
        queues = read_lines(url, directory / "lines")
        say(f"read by tiered read: {queues} queues")
        local = str(directory / "local")
        with session(jvm=BEST_JVM, spark__driver__memory="2g", spark__local__dir=local) as spark:
            register(spark)
            found = compare(spark, url, directory / "lines", args.messages)
        return report(found, args.messages, say)


def report(found: Result, messages: int, say: Callable[[str], None]) -> int:
    """Say what was found; 1 if it is not equality of all messages."""
    say(
        f"rows: {found.lines:,} of tiered read, {found.scanned:,} of Spark, {found.paired:,} pairs, {found.alone:,} without"
    )
    for name, count in found.differing.items():
        if count:
            say(f"{name} differs in {count:,} rows")
    for sentence in found.first:
        say(sentence)
    if found.wrong_bodies:
        say(f"{found.wrong_bodies:,} decoded bodies are not what was compressed")
    good = found.same(messages)
    say(f"{'EQUAL' if good else 'DIFFERENT'}: {messages:,} messages, {len(COLUMNS)} columns")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
