"""``make bench-spark``: scans of the archive by Spark beside Spark's own Parquet scan of the same rows, in one warm session.

What a scan asks the store for is counted in one process without a JVM, on the same archive and plan.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from tests.bench.run import Row, expect, generate, once
from tests.kit.command import tiered
from tests.kit.fetchscene import Ranges
from tests.kit.pysparks import BEST_JVM, session
from tests.kit.sparkscene import archive, batches_of
from tiered.clock import SystemClock
from tiered.settings import ONE_DAY_MS
from tiered_spark import frame, register, snapshot
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import parse_options

HEADER = "topic,queue_id,queue_offset,store_timestamp,tags"
USUAL = "topic,queue_id,queue_offset,store_timestamp,tags,keys,body"
CORES = 2
RUNS = 3
TURNS = 7


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
    usual = USUAL.split(",")
    body = seconds(lambda: ours(USUAL)), seconds(lambda: spark.read.parquet(parquet).select(*usual))
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
            f"with body ({USUAL})", f"{body[0]:.2f} s, {size / body[0] / 1e6 / CORES:.0f} MB/s a core",
            f"{body[1]:.2f} s (Parquet, zstd)", f"{body[1] / body[0]:.2f}", "≥ 0.5",
        ),
        Row(
            f"header columns ({HEADER})", f"{heads[0]:.2f} s", f"{heads[1]:.2f} s (Parquet, zstd)",
            f"{heads[1] / heads[0]:.2f}", "≥ 0.5",
        ),
        *requests(url, messages),
    ]  # fmt: skip


def requests(url: str, messages: int) -> list[Row]:
    """What pruned scans fetch."""
    seen = Ranges(snapshot.shared_provider(url))
    snapshot.shared_provider = lambda _: seen  # type: ignore[assignment]

    def run(**options: str) -> tuple[int, int, int, float]:
        seen.gets.clear()
        options = {"archive": url, **options}
        began = time.monotonic()
        rows = sum(batch.num_rows for batch in batches_of(options))
        took = time.monotonic() - began
        data = [length for key, _, length in seen.gets if "/data/" in key or "/segment/" in key]
        return rows, len(data), sum(data), took

    everything = run(columns="topic,store_timestamp,body")
    expect(everything[0], messages)
    times = np.concatenate(
        [
            b.column(0).cast("int64").to_numpy() // 1000
            for b in batches_of({"archive": url, "columns": "store_timestamp"})
        ]
    )
    low, high = (int(t) for t in np.percentile(times, (49.5, 50.5)))
    part = run(
        columns="topic,store_timestamp,body",
        startingTimestamp=str(low),
        endingTimestamp=str(max(high, low + 1)),  # many messages have one time
    )
    return [
        Row(
            f"store_timestamp range, {part[0] / messages:.1%} of the rows: bytes fetched", f"{part[2] / 1e6:.1f} MB",
            f"{everything[2] / 1e6:.1f} MB (all)", f"{part[2] / everything[2]:.3f}", "≤ 0.03 for 1 %",
        ),
        key_look_ups(url, messages, seen),
    ]  # fmt: skip


def key_look_ups(url: str, messages: int, seen: Ranges) -> Row:
    """Two unique keys, one after the other, in a process that has looked for none before; every request counts, those for the
    log too. Spark keeps its planning process for a session, which then does as this one.
    """
    source = {"archive": url, "columns": "unique_key"}
    parts = batches_of({**source, "partitionBytes": str(1 << 20)})
    keys = [batch.column(0)[len(batch) // 2].as_py() for batch in islice(parts, 2)]
    told, took, worst, found = [], 0.0, 0, 0
    for key in keys:
        seen.gets.clear()
        began = time.monotonic()
        reader = MessageReader(parse_options({**source, "keys": key}), message_schema(("unique_key",)))
        partitions = reader.partitions()
        data = sum("/data/" in name or "/segment/" in name for name, _, _ in seen.gets)
        told.append(f"{time.monotonic() - began:.2f} s, {len(seen.gets)} GETs ({data} of objects)")
        seen.gets.clear()
        began = time.monotonic()
        for partition in partitions:
            for batch in reader.read(partition):
                found += sum(value == key for value in batch.column(0).to_pylist())
        took, worst = max(took, time.monotonic() - began), max(worst, len(seen.gets))
    expect(found, len(keys), "keys were found")
    return Row(
        f"one unique key of {messages:,}, after planning (plan: {told[0]}; a second key: {told[1]})",
        f"{took:.2f} s, {worst} GETs; {found} of {len(keys)} found", "-", "-", "≤ 1 s, ≤ 100 GETs (10 M)",
    )  # fmt: skip


class DaysAgo(SystemClock):
    """Messages of a day that is over."""

    def now_ms(self) -> int:
        return super().now_ms() - 3 * ONE_DAY_MS


def sealed_archive(directory: Path, messages: int, body_bytes: int = 1024) -> tuple[str, int]:
    """An archive of two topics, all of it sealed: its URL and bytes of records."""
    size = generate(directory / "store", messages, 8, body_bytes=body_bytes, topics=2, clock=DaysAgo())
    url = f"file://{directory / 'archive'}"
    once(directory / "store", url, directory / "state", "web.port=-1")
    sets = [part for pair in ("seal.enabled=true", "archive.takeover_wait_ms=0") for part in ("--set", pair)]
    done = tiered("maintain", "--once", "--archive", url, "--state", directory / "other", *sets, "--json")
    expect(done.json["seal"]["messages"], messages, "messages were sealed")
    return url, size


def sealed(spark: SparkSession, work: Path, messages: int) -> list[Row]:
    """Sealed history by ``frame``, against Spark's own Parquet of the same rows; bodies as they are stored."""
    directory = work / "sealed"
    directory.mkdir()
    url, size = sealed_archive(directory, messages)
    parquet = str(directory / "parquet")
    frame(spark, url, decodeBody=False).write.option("compression", "zstd").parquet(parquet)
    began = time.monotonic()
    ours = frame(spark, url, decodeBody=False)
    made = time.monotonic() - began
    theirs = spark.read.parquet(parquet)
    header = HEADER.split(",")
    full = in_turn(lambda: ours, lambda: theirs)
    heads = in_turn(lambda: ours.select(*header), lambda: theirs.select(*header))
    key = theirs.select("unique_key").where("unique_key is not null").first()
    assert key is not None
    found = f"unique_key = '{key[0]}'"
    expect(ours.where(found).count(), 1, "message has the key")
    one = in_turn(lambda: ours.where(found), lambda: theirs.where(found))
    files = len(ours.inputFiles())

    def row(what: str, took: tuple[Took, Took], beside: str, target: str) -> Row:
        mine, other = took
        ratio = f"{other.cpu / mine.cpu:.2f} of CPU, {other.wall / mine.wall:.2f}"
        return Row(f"sealed: {what}", str(mine), f"{other} ({beside})", ratio, target)

    plain = "Parquet, zstd"
    return [
        row(
            f"full scan by frame, {messages:,} messages, {size / 1e6:.0f} MB, {files} files",
            full,
            plain,
            "≥ 0.95",
        ),
        row(f"header columns ({HEADER})", heads, plain, "≥ 0.95"),
        row(f"one unique key (frame made in {made:.2f} s)", one, "Parquet, no Bloom filters", "≤ 2 s (10 M)"),
    ]


@dataclass(frozen=True, slots=True)
class Took:
    """Median seconds of a scan, by the wall clock and of the JVM's CPU, which tells more on a busy machine."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.cpu:.2f} s CPU"


def in_turn(ours: Callable[[], DataFrame], theirs: Callable[[], DataFrame]) -> tuple[Took, Took]:
    """Both brought into the JVM and dropped, one run of each after the other; the first runs warm up."""
    found: tuple[list[Took], list[Took]] = ([], [])
    for _ in range(TURNS + 1):
        for frame_of, times in zip((ours, theirs), found, strict=True):
            began, cpu = time.monotonic(), jvm_cpu()
            frame_of().write.format("noop").mode("overwrite").save()
            times.append(Took(time.monotonic() - began, jvm_cpu() - cpu))
    return median_of(found[0][1:]), median_of(found[1][1:])


def median_of(some: Sequence[Took]) -> Took:
    return Took(statistics.median(t.wall for t in some), statistics.median(t.cpu for t in some))


def jvm_cpu() -> float:
    """Seconds of CPU that the session's JVM has taken so far."""
    pid = next(pid for pid, command, _ in processes(os.getpid()) if "java" in command)
    ticks = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


class Peaks:
    """Most memory that the JVM and any one Python worker took while a block runs, in bytes, by sampling ``/proc``."""

    def __init__(self) -> None:
        self.jvm = self.worker = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            for pid, command, resident in processes(os.getpid()):
                if "java" in command:
                    self.jvm = max(self.jvm, resident)
                elif "pyspark" in command and pid != os.getpid():
                    self.worker = max(self.worker, resident)


def processes(root: int) -> list[tuple[int, str, int]]:
    """Process id, command and resident bytes of all that descend from ``root``."""
    found: dict[int, tuple[int, str, int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                pages = int((path / "statm").read_text().split()[1])
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(path.name)] = (parent, command, pages * resource.getpagesize())

    def below(pid: int) -> bool:
        while pid in found and pid != root:
            pid = found[pid][0]
        return pid == root

    return [(pid, command, resident) for pid, (_, command, resident) in found.items() if below(pid)]


def spilled(log: Path) -> int:
    """Bytes that tasks of a session have spilled, by its event log."""
    total = 0
    for path in log.rglob("*"):
        for line in path.read_text().splitlines() if path.is_file() and path.name[0] != "." else ():
            metrics = json.loads(line).get("Task Metrics") or {}
            total += metrics.get("Memory Bytes Spilled", 0) + metrics.get("Disk Bytes Spilled", 0)
    return total


def memory(spark: SparkSession, work: Path, log: Path, size_bytes: int) -> Row:
    """A full scan of many bytes."""
    (work / "large").mkdir()
    size = generate(work / "large" / "store", size_bytes // 1200, 8, topics=2)
    url = archive(work / "large" / "store", work / "large")
    with Peaks() as peaks:
        frame = spark.read.format("rocketmq_tiered").option("archive", url).load()
        frame.write.format("noop").mode("overwrite").save()
    return Row(
        f"memory of a full scan of {size / 1e9:.1f} GB, {CORES} cores",
        f"a worker {peaks.worker >> 20} MiB, JVM {peaks.jvm >> 20} MiB, spilled {spilled(log)} bytes",
        "-", "-", "bounded, no spill",
    )  # fmt: skip


def planning(work: Path, queues: int) -> list[Row]:
    """A plan over many queues, in a process that has done nothing else big."""
    generate(work / "many", 2 * queues, 100, body_bytes=64, topics=queues // 100)
    (work / "plan").mkdir()
    url = archive(work / "many", work / "plan")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
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
    parser.add_argument("--only-sealed", action="store_true", help="what is sealed, and nothing else")
    parser.add_argument("--messages", type=int, default=1_000_000, help="that are sealed")
    given = parser.parse_args(arguments)
    quick, only_sealed = given.quick, given.only_sealed
    table = Table(title="ratios to a baseline run beside them; machines differ, ratios less")
    for heading in ("what", "ours", "baseline", "ratio", "must reach"):
        table.add_column(heading)
    with tempfile.TemporaryDirectory(prefix="tiered-bench-spark-") as work:
        rows = [] if only_sealed else planning(Path(work), 2_000 if quick else 100_000)
        log = Path(work) / "events"
        log.mkdir()
        settings = {
            "spark.python.unix.domain.socket.enabled": "true",  # as spark/README.md recommends
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{log}",
        }
        with session(f"local[{CORES}]", jvm=BEST_JVM, spark__driver__memory="2g", **settings) as spark:
            register(spark)
            if not only_sealed:
                rows += scans(spark, Path(work), 20_000 if quick else 1_000_000)
            rows += sealed(spark, Path(work), 20_000 if quick else given.messages)
            if not only_sealed:
                rows.append(memory(spark, Path(work), log, (1 << 25) if quick else (4 << 30)))
    for row in rows:
        table.add_row(row.what, row.ours, row.baseline, row.ratio, row.target)
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
