"""A stored backlog to POSIX and to S3, beside ``cp``, ``zstd -1 -T2`` and raw parallel PUTs."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.run import Row, generate, idle_run, once
from tests.kit.s3server import versitygw

CHUNK = 8 << 20


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


def compressed(store: Path, end: int, target: Path) -> tuple[float, str]:
    """Seconds that ``zstd -1 -T2`` takes for the same bytes into a synced file, and which program it was."""
    if shutil.which("zstd"):
        started = time.monotonic()
        process = subprocess.Popen(
            ["zstd", "-1", "-T2", "-q", "-f", "-o", str(target)], stdin=subprocess.PIPE
        )
        assert process.stdin is not None
        for chunk in _log(store, end):
            process.stdin.write(chunk)
        process.stdin.close()
        process.wait()
        with target.open("rb") as made:
            os.fsync(made.fileno())
        return time.monotonic() - started, "zstd -1 -T2"
    import zstandard

    started = time.monotonic()
    with target.open("wb") as out:
        with zstandard.ZstdCompressor(level=1, threads=2).stream_writer(out, closefd=False) as writer:
            for chunk in _log(store, end):
                writer.write(chunk)
        os.fsync(out.fileno())
    return time.monotonic() - started, "zstandard level 1, 2 threads"


def backlog(work: Path, messages: int, many: int) -> list[Row]:
    """64 queues and ``many`` queues, with memory."""
    idle = idle_run(work)
    rows: list[Row] = []
    end = generate(work / "q64", messages, 64)
    plain = copied(work / "q64", end, work / "copy")
    (work / "copy").unlink()
    squeezed, name = compressed(work / "q64", end, work / "zst")
    (work / "zst").unlink()
    ours = once(work / "q64", f"file://{work / 'a64'}", work / "s64")
    net = ours.seconds - idle.seconds
    shutil.rmtree(work / "a64")
    rate, whole = messages / net, end / net / 1e6
    rows.append(
        Row(
            f"backlog of {end / 1e9:.1f} GB, 64 queues, to POSIX",
            f"{whole:.0f} MB/s",
            f"{end / squeezed / 1e6:.0f} MB/s ({name})",
            f"{squeezed / net:.2f}", "≥ 0.6",
        )
    )  # fmt: skip
    rows.append(
        Row(
            "the same beside cp with fsync",
            f"{whole:.0f} MB/s",
            f"{end / plain / 1e6:.0f} MB/s",
            f"{plain / net:.2f}",
            "-",
        )
    )
    rows.append(Row("messages a second, 64 queues", f"{rate:,.0f}/s", "-", "-", "≥ 300,000/s"))
    over = (ours.peak_bytes - idle.peak_bytes) / (1 << 20)
    rows.append(
        Row(
            "peak memory over the idle process",
            f"{over:.0f} MiB",
            f"{idle.peak_bytes >> 20} MiB",
            "-",
            "≤ 400 MiB",
        )
    )
    end = generate(work / "many", messages, many)
    spread = once(work / "many", f"file://{work / 'amany'}", work / "smany")
    shutil.rmtree(work / "amany")
    many_rate = messages / (spread.seconds - idle.seconds)
    rows.append(
        Row(
            f"the same with {many:,} queues",
            f"{many_rate:,.0f}/s",
            f"{rate:,.0f}/s",
            f"{many_rate / rate:.2f}",
            "≥ 0.7",
        )
    )
    return rows


def to_s3(work: Path, messages: int) -> list[Row]:
    """To the real S3 server, uncompressed so that as many bytes travel, beside raw parallel PUTs of them."""
    end = generate(work / "s3", messages, 64)
    idle = idle_run(work)
    with versitygw(work / "server") as server:
        bucket, environment = server.bucket(), server.environment()
        client = server.client()
        bodies = list(_log(work / "s3", end))
        started = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda p: client.put_object(Bucket=bucket, Key=f"raw/{p[0]}", Body=p[1]),
                    enumerate(bodies),
                )
            )
        raw = time.monotonic() - started
        del bodies
        ours = once(
            work / "s3",
            server.url(bucket, "archive"),
            work / "ss3",
            "dispatch.compression=none",
            environment=environment,
        )
    net = ours.seconds - idle.seconds
    return [
        Row(
            f"{end / 1e9:.1f} GB uncompressed to versitygw", f"{end / net / 1e6:.0f} MB/s",
            f"{end / raw / 1e6:.0f} MB/s (boto3, 4 threads, 8 MiB)", f"{raw / net:.2f}", "≥ 0.7",
        )
    ]  # fmt: skip
