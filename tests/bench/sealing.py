"""Merging and sealing a day that is over, beside pyarrow alone writing the same tables to the same store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.run import QUIET, TIERED, Row, expect
from tests.kit.measured import Measured, measure
from tiered.clock import ManualClock, SystemClock
from tiered.codec.segment.cutting import MOST_BAND_ROWS
from tiered.codec.segment.writer import parquet_writer
from tiered.provider.posix import PosixProvider
from tiered.source.generator.store import GeneratorOptions, StoreGenerator

DAYS_AGO_MS = 2 * 86_400_000
ROUNDS = 3
FEW = 100
FLUSHES = ("dispatch.group_commit_count=4000", "hold.max_disk_percent=99")
"""A few seconds of the load that the target speaks of, so that there is something to merge."""


def seal_day(work: Path, messages: int, queues: int) -> list[Row]:
    """``tiered maintain --once`` twice: merging alone, then sealing what was merged; the best of some rounds in turn with the
    baseline. What the same takes of a day of hardly any messages is taken off: a daemon runs already, and has its libraries
    loaded."""
    started = _archived(work / "started", FEW, 1)
    day = _archived(work / "day", messages, queues)
    starts, aged, alone = [], [], []
    for number in range(ROUNDS):
        starts.append(_aged(started, work / f"start-{number}"))
        again = work / f"day-{number}"
        aged.append(_aged(day, again))
        files = sorted((again / "archive").glob("*/*/segment/*/*/*.parquet"))
        expect(sum(pq.read_metadata(file).num_rows for file in files), messages, "messages were sealed")
        alone.append(_alone(again, files))
    merged, sealed = (
        _without(_best(ours), _best(taken))
        for ours, taken in zip(zip(*aged, strict=True), zip(*starts, strict=True), strict=True)
    )
    both = Measured(
        merged.seconds + sealed.seconds,
        merged.cpu_seconds + sealed.cpu_seconds,
        max(merged.peak_bytes, sealed.peak_bytes),
    )
    return [
        row
        for what, ours in (("merge", merged), ("seal", sealed), ("merge and seal", both))
        for row in _rows(what, ours, _best(alone), day.size)
    ]


@dataclass(frozen=True, slots=True)
class _Day:
    """An archived day that is over: store, archive and state below ``work``; its bytes of records."""

    work: Path
    size: int


def _archived(work: Path, messages: int, queues: int) -> _Day:
    work.mkdir()
    size = _two_days_ago(work / "store", messages, queues)
    _tiered(work, work / "store", "run", "--once", *FLUSHES)
    return _Day(work, size)


def _aged(day: _Day, work: Path) -> tuple[Measured, Measured]:
    """A copy of an archive merged, and then sealed: what either took."""
    work.mkdir()
    for name in ("archive", "state"):
        shutil.copytree(day.work / name, work / name)
    store, bounds = day.work / "store", ("maintenance.max_bytes_per_second=0", "hold.max_disk_percent=99")
    merged = _tiered(work, store, "maintain", "--once", "seal.enabled=false", *bounds)
    return merged, _tiered(work, store, "maintain", "--once", *bounds)


def _rows(what: str, ours: Measured, alone: Measured, size: int) -> list[Row]:
    peak = f"peak {ours.peak_bytes / 1e6:.0f} MB"
    return [
        Row(f"{what}, {peak}", f"{size / ours.seconds / 1e6:.0f} MB/s of records",
            f"{size / alone.seconds / 1e6:.0f} MB/s, pyarrow alone", f"{alone.seconds / ours.seconds:.2f}", "≥ 0.5"),
        Row(f"{what}, CPU", f"{ours.cpu_seconds / size * 1e9:.1f} ms a MB",
            f"{alone.cpu_seconds / size * 1e9:.1f} ms a MB", f"{alone.cpu_seconds / ours.cpu_seconds:.2f}", "-"),
    ]  # fmt: skip


def _best(rounds: Sequence[Measured]) -> Measured:
    """The least time, the least CPU time, the highest peak."""
    return Measured(
        min(each.seconds for each in rounds),
        min(each.cpu_seconds for each in rounds),
        max(each.peak_bytes for each in rounds),
    )


def _without(ours: Measured, started: Measured) -> Measured:
    return Measured(ours.seconds - started.seconds, ours.cpu_seconds - started.cpu_seconds, ours.peak_bytes)


def _two_days_ago(store: Path, messages: int, queues: int) -> int:
    """A stored day that is over; its bytes of records."""
    options = GeneratorOptions(
        store_dir=store, messages=messages, topics=("Bench",), queues=queues, body_bytes=1024, vary_bodies=True,
        file_bytes=256 << 20, queue_file_units=max(64, messages // queues + 64),
    )  # fmt: skip
    with StoreGenerator(options, ManualClock(SystemClock().now_ms() - DAYS_AGO_MS)) as generator:
        generator.append(messages)
        return generator.physical_offset


def _tiered(work: Path, store: Path, verb: str, flag: str, *sets: str) -> Measured:
    places = (
        "--store",
        str(store),
        "--archive",
        f"file://{work / 'archive'}",
        "--state",
        str(work / "state"),
    )
    flags = [part for pair in sets for part in ("--set", pair)]
    return measure((*TIERED, verb, flag, *places, *QUIET, *flags))


def _alone(work: Path, files: list[Path]) -> Measured:
    """The tables of all files, decoded beforehand, written by pyarrow and put."""
    seconds = cpu_seconds = 0.0
    provider = PosixProvider(str(work / "archive"), SystemClock())
    for file in files:
        source = pq.ParquetFile(file)
        tables = [source.read_row_group(group) for group in range(source.num_row_groups)]
        began, busy = time.monotonic(), time.process_time()
        sink = pa.BufferOutputStream()
        writer = parquet_writer(sink, tables[0], band_rows=MOST_BAND_ROWS)
        for table in tables:
            writer.write_table(table, row_group_size=len(table))
        writer.close()
        provider.put(f"alone/{file.name}", [sink.getvalue()])
        seconds += time.monotonic() - began
        cpu_seconds += time.process_time() - busy
    provider.close()
    return Measured(seconds, cpu_seconds, 0)
