"""Merging and sealing a day that is over, beside pyarrow alone writing the same tables to the same store."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.run import QUIET, TIERED, Measured, Row, expect, measure
from tiered.clock import ManualClock, SystemClock
from tiered.codec.segment.writer import parquet_writer
from tiered.provider.posix import PosixProvider
from tiered.source.generator.store import GeneratorOptions, StoreGenerator

DAYS_AGO_MS = 2 * 86_400_000
ROUNDS = 3
FLUSHES = ("dispatch.group_commit_count=4000", "hold.max_disk_percent=99")
"""A few seconds of the load that the target speaks of, so that there is something to merge."""


def seal_day(work: Path, messages: int, queues: int) -> list[Row]:
    """``tiered maintain --once`` twice: merging alone, then sealing what was merged. What it takes to start, and to find
    nothing to do, is taken off: a daemon runs already."""
    size = _two_days_ago(work / "store", messages, queues)
    _tiered(work, "run", "--once", *FLUSHES)
    bounds = ("maintenance.max_bytes_per_second=0", "hold.max_disk_percent=99")
    merged = _tiered(work, "maintain", "--once", "seal.enabled=false", *bounds)
    sealed = _tiered(work, "maintain", "--once", *bounds)
    nothing = _tiered(work, "maintain", "--once", *bounds)
    merged, sealed = _without(merged, nothing), _without(sealed, nothing)
    files = sorted((work / "archive").glob("*/*/segment/*/*/*.parquet"))
    expect(sum(pq.read_metadata(file).num_rows for file in files), messages, "messages were sealed")
    alone = min((_alone(work, files, number) for number in range(ROUNDS)), key=lambda found: found.seconds)
    both = Measured(
        merged.seconds + sealed.seconds,
        merged.cpu_seconds + sealed.cpu_seconds,
        max(merged.peak_bytes, sealed.peak_bytes),
    )
    return [
        row
        for what, ours in (("merge", merged), ("seal", sealed), ("merge and seal", both))
        for row in _rows(what, ours, alone, size)
    ]


def _rows(what: str, ours: Measured, alone: Measured, size: int) -> list[Row]:
    peak = f"peak {ours.peak_bytes / 1e6:.0f} MB"
    return [
        Row(f"{what}, {peak}", f"{size / ours.seconds / 1e6:.0f} MB/s of records",
            f"{size / alone.seconds / 1e6:.0f} MB/s, pyarrow alone", f"{alone.seconds / ours.seconds:.2f}", "≥ 0.5"),
        Row(f"{what}, CPU", f"{ours.cpu_seconds / size * 1e9:.1f} ms a MB",
            f"{alone.cpu_seconds / size * 1e9:.1f} ms a MB", f"{alone.cpu_seconds / ours.cpu_seconds:.2f}", "-"),
    ]  # fmt: skip


def _without(ours: Measured, nothing: Measured) -> Measured:
    return Measured(ours.seconds - nothing.seconds, ours.cpu_seconds - nothing.cpu_seconds, ours.peak_bytes)


def _two_days_ago(store: Path, messages: int, queues: int) -> int:
    """A stored day that is over; its bytes of records."""
    options = GeneratorOptions(
        store_dir=store, messages=messages, topics=("Bench",), queues=queues, body_bytes=1024, vary_bodies=True,
        file_bytes=256 << 20, queue_file_units=max(64, messages // queues + 64),
    )  # fmt: skip
    with StoreGenerator(options, ManualClock(SystemClock().now_ms() - DAYS_AGO_MS)) as generator:
        generator.append(messages)
        return generator.physical_offset


def _tiered(work: Path, verb: str, flag: str, *sets: str) -> Measured:
    places = (
        "--store",
        str(work / "store"),
        "--archive",
        f"file://{work / 'archive'}",
        "--state",
        str(work / "state"),
    )
    flags = [part for pair in sets for part in ("--set", pair)]
    return measure((*TIERED, verb, flag, *places, *QUIET, *flags))


def _alone(work: Path, files: list[Path], number: int) -> Measured:
    """The tables of all files, decoded beforehand, written by pyarrow and put."""
    seconds = cpu_seconds = 0.0
    provider = PosixProvider(str(work / "archive"), SystemClock())
    for file in files:
        source = pq.ParquetFile(file)
        tables = [source.read_row_group(group) for group in range(source.num_row_groups)]
        began, busy = time.monotonic(), time.process_time()
        sink = pa.BufferOutputStream()
        writer = parquet_writer(sink, tables[0].combine_chunks().to_batches()[0])
        for table in tables:
            writer.write_table(table, row_group_size=len(table))
        writer.close()
        provider.put(f"alone/{number}/{file.name}", [sink.getvalue()])
        seconds += time.monotonic() - began
        cpu_seconds += time.process_time() - busy
    provider.close()
    return Measured(seconds, cpu_seconds, 0)
