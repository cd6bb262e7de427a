"""A stored backlog to POSIX and to S3, beside ``cp``, ``zstd -1 -T2`` and raw parallel PUTs."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.run import Row, expect, generate, idle_run, once
from tests.kit.measured import Measured, measure
from tests.kit.oracle import opened
from tests.kit.s3server import versitygw
from tiered.settings import Store

CHUNK = 8 << 20
MIB = 1 << 20
ROUNDS = 2
DICTIONARY = "dispatch.dictionary_bytes=8KiB"
LIBRARY = """
import pathlib, sys, zstandard
for name in sys.argv[2:]:
    source = pathlib.Path(name)
    with source.open("rb") as raw, open(f"{sys.argv[1]}/{source.name}", "wb") as out:
        zstandard.ZstdCompressor(level=1, threads=2).copy_stream(raw, out)
"""


def copied(store: Path, end: int, target: Path) -> float:
    """Seconds to copy the log's bytes into one synced file."""
    started = time.monotonic()
    with target.open("wb") as out:
        for view in _log(store, end):
            out.write(view)
        out.flush()
        os.fsync(out.fileno())
    return time.monotonic() - started


def _log(store: Path, end: int) -> Iterator[bytes]:
    """The commitlog's bytes up to ``end``, in chunks."""
    for path in sorted((store / "commitlog").iterdir()):
        left = end - int(path.name)
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk


def compressed(store: Path, end: int, target: Path) -> tuple[Measured, str]:
    """``zstd -1 -T2`` of the same files, as a program of its own, and its output synced; which program it was."""
    files = sorted((store / "commitlog").iterdir())
    files = [path for path in files if int(path.name) < end]
    target.mkdir()
    if shutil.which("zstd"):
        command = ["zstd", "-1", "-T2", "-q", "-f", *map(str, files), "--output-dir-flat", str(target)]
        name = "zstd -1 -T2"
    else:
        command = [sys.executable, "-c", LIBRARY, str(target), *map(str, files)]
        name = "python-zstandard, level 1, 2 threads"
    measured = measure(command)
    started = time.monotonic()
    for path in target.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return replace(measured, seconds=measured.seconds + time.monotonic() - started), name


def backlog(work: Path, messages: int, many: int) -> list[Row]:
    """64 queues and ``many`` queues, the latter with a dictionary too, with memory.

    Best of ``ROUNDS`` each, baseline and program in turn: other work on the machine comes and goes.
    """
    idle = idle_run(work)
    end = generate(work / "q64", messages, 64)
    last = generate(work / "many", messages // 2, many)
    plain: list[float] = []
    squeezed: list[Measured] = []
    ours: list[Measured] = []
    spread: list[Measured] = []
    learnt: list[Measured] = []
    name = ""
    for number in range(ROUNDS):
        plain.append(copied(work / "q64", end, work / "copy"))
        (work / "copy").unlink()
        made, name = compressed(work / "q64", end, work / "zst")
        shutil.rmtree(work / "zst")
        squeezed.append(made)
        for store, taken, sets in (("q64", ours, ()), ("many", spread, ()), ("many", learnt, (DICTIONARY,))):
            archive = work / f"archive-{store}-{number}"
            taken.append(once(work / store, f"file://{archive}", work / f"state-{store}", *sets))
            check_archive(f"file://{archive}", messages if store == "q64" else messages // 2)
            shutil.rmtree(archive)
    seconds = min(m.seconds for m in ours) - idle.seconds
    cpu = min(m.cpu_seconds for m in ours) - idle.cpu_seconds
    zstd_seconds, zstd_cpu = min(m.seconds for m in squeezed), min(m.cpu_seconds for m in squeezed)
    rate, each = messages / seconds, cpu / end * 1e9
    whole, size, over = (
        end / seconds / 1e6,
        f"{end / 1e9:.1f} GB",
        max(m.peak_bytes for m in ours) - idle.peak_bytes,
    )
    zstd_each = zstd_cpu / end * 1e9
    per_zstd, per_cp = end / zstd_seconds / 1e6, end / min(plain) / 1e6
    return [
        Row(f"backlog of {size}, 64 queues, to POSIX", f"{whole:.0f} MB/s", f"{per_zstd:.0f} MB/s ({name}, fsync)",
            f"{whole / per_zstd:.2f}", "≥ 0.6"),
        Row("the same beside cp with fsync", f"{whole:.0f} MB/s", f"{per_cp:.0f} MB/s", f"{whole / per_cp:.2f}", "-"),
        Row("the same in CPU time", f"{each:.2f} s/GB", f"{zstd_each:.2f} s/GB ({name})", f"{zstd_each / each:.2f}", "-"),
        Row("messages a second, 64 queues", f"{rate:,.0f}/s", "-", "-", "≥ 300,000/s"),
        Row("messages a second if two cores were all its own", f"{2 * messages / cpu:,.0f}/s", "-", "-", "-"),
        Row(f"peak memory over the idle process, {size}", f"{over / MIB:.0f} MiB", f"{idle.peak_bytes / MIB:.0f} MiB (idle)",
            "-", "≤ 400 MiB"),
        *_of_many(f"the same with {many:,} queues", messages // 2, last, spread, idle, (rate, each)),
        *_of_many(f"… and {DICTIONARY}", messages // 2, last, learnt, idle, (rate, each)),
    ]  # fmt: skip


def _of_many(
    what: str, messages: int, size: int, taken: list[Measured], idle: Measured, few: tuple[float, float]
) -> list[Row]:
    """A backlog of many queues beside one of 64, which came to ``few`` messages and CPU seconds a GB."""
    rate = messages / (min(m.seconds for m in taken) - idle.seconds)
    each = (min(m.cpu_seconds for m in taken) - idle.cpu_seconds) / size * 1e9
    return [
        Row(f"{what}, {size / 1e9:.1f} GB", f"{rate:,.0f}/s", f"{few[0]:,.0f}/s (64 queues)", f"{rate / few[0]:.2f}", "≥ 0.75"),
        Row(f"{what} in CPU time", f"{each:.2f} s/GB", f"{few[1]:.2f} s/GB (64 queues)", f"{few[1] / each:.2f}", "-"),
    ]  # fmt: skip


def check_archive(archive: str, messages: int, settings: Store | None = None, *, key_file: str = "") -> None:
    """A figure counts only if everything is there."""
    found = sum(queue.messages for queue in opened(archive, settings, key_file=key_file).state.queues())
    expect(found, messages, f"messages are in {archive}")


def to_s3(work: Path, messages: int) -> list[Row]:
    """To the real S3 server, uncompressed so that as many bytes travel, beside raw parallel PUTs of them."""
    end = generate(work / "s3", messages, 64)
    with versitygw(work / "server") as server:
        bucket, environment = server.bucket(), server.environment()
        generate(work / "tiny", 10, 1)
        idle = once(work / "tiny", server.url(bucket, "tiny"), work / "state-tiny", environment=environment)
        client = server.client()
        raw, ours = [], []
        for number in range(ROUNDS):
            raw.append(_raw_puts(client, bucket, f"raw-{number}", list(_log(work / "s3", end))))
            archive, state = server.url(bucket, f"archive-{number}"), work / "state-s3"
            made = once(work / "s3", archive, state, "dispatch.compression=none", environment=environment)
            check_archive(archive, messages, server.store())
            ours.append(made.seconds - idle.seconds)
    net, best = min(ours), min(raw)
    return [
        Row(
            f"{end / 1e9:.1f} GB uncompressed to versitygw", f"{end / net / 1e6:.0f} MB/s",
            f"{end / best / 1e6:.0f} MB/s (boto3, 4 threads, 8 MiB)", f"{best / net:.2f}", "≥ 0.7",
        )
    ]  # fmt: skip


def _raw_puts(client: Any, bucket: str, prefix: str, bodies: list[bytes]) -> float:
    """Seconds to put bodies that are in memory already, four at a time."""
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        puts = [
            pool.submit(client.put_object, Bucket=bucket, Key=f"{prefix}/{n}", Body=b)
            for n, b in enumerate(bodies)
        ]
        for put in puts:
            put.result()
    return time.monotonic() - started
