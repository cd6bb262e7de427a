"""A live store: latency, objects written, requests while idle, restart with many queues."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from tests.bench.run import TIERED, Row, expect, generate
from tests.kit.daemonproc import Daemon
from tests.kit.oracle import opened
from tests.kit.s3server import versitygw
from tiered.archive.state.view import ArchiveState
from tiered.metadata.memory import MemoryStore

GROUP_COMMIT = {"dispatch.group_commit_interval_ms": 1000, "source.poll_interval_ms": 20}


def _command(store: Path, messages: int, queues: int) -> list[str]:
    return [
        *TIERED, "gen", "--store", str(store), "--messages", str(messages), "--queues", str(queues), "--file-bytes", "64MiB",
    ]  # fmt: skip


def seed_store(store: Path, messages: int, queues: int) -> None:
    """A store to start on, written by the program that goes on with it."""
    subprocess.run(_command(store, messages, queues), check=True, stdout=subprocess.DEVNULL)


def generator(store: Path, rate: int, seconds: float, queues: int) -> subprocess.Popen[bytes]:
    command = [*_command(store, int(rate * seconds), queues), "--rate", str(rate)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def latency(work: Path, seconds: float) -> list[Row]:
    """Append → readable, 2,000 messages/s: an independent reader folds the bucket and reads each new run's store times."""
    store = work / "live"
    seed_store(store, 10, 8)
    daemon = Daemon(work, store, f"file://{work / 'larch'}", name="latency", **GROUP_COMMIT)
    waits: list[np.ndarray] = []
    with daemon.running():
        archive = opened(f"file://{work / 'larch'}")
        writer = generator(store, 2000, seconds, 8)
        fold, seen, more = MemoryStore(), -1, True
        while more:
            more = writer.poll() is None or daemon.status()["lag"]["bytes"] != 0
            head = archive.log.fold(fold)
            now_ms = time.time() * 1000
            state = ArchiveState(fold)
            for run in state.runs_all():
                if run.id.commit_seq > seen:
                    item = state.object(run.object)
                    assert item is not None
                    columns = archive.objects.columns(item, ("store_timestamp",), run.first_row, run.rows)
                    waits.append(now_ms - columns["store_timestamp"])
            seen = head.seq if head is not None else -1
            time.sleep(0.02)
        daemon.stop()
    expect(sum(map(len, waits)), 10 + int(2000 * seconds), "messages were seen in the archive")
    all_ms = np.concatenate(waits[1:])
    p50, p99 = np.percentile(all_ms, (50, 99)) / 1000
    return [
        Row(
            "append → readable, 2,000/s, p50",
            f"{p50:.2f} s",
            "20.0 s (RocketMQ's own tier, 5.5.0)",
            "-",
            "≤ 1.0 s",
        ),
        Row(
            "append → readable, 2,000/s, p99",
            f"{p99:.2f} s",
            "37.2 s (RocketMQ's own tier, 5.5.0)",
            "-",
            "≤ 3 s",
        ),
    ]


def objects(work: Path, seconds: float) -> list[Row]:
    """Objects written per second at the same rate, 10 and 10,000 queues."""
    counts: list[float] = []
    for queues in (10, 10_000):
        store, root = work / f"o{queues}", work / f"oa{queues}"
        seed_store(store, queues, queues)
        daemon = Daemon(work, store, f"file://{root}", name=f"objects{queues}", **GROUP_COMMIT)
        with daemon.running():
            daemon.wait_until(lambda d=daemon: d.status()["lag"]["bytes"] == 0, "the first messages archived")  # type: ignore[misc]
            before = sum(1 for p in root.rglob("*") if p.is_file())
            started = time.monotonic()
            writer = generator(store, 2000, seconds, queues)
            writer.wait()
            elapsed = time.monotonic() - started
            counts.append((sum(1 for p in root.rglob("*") if p.is_file()) - before) / elapsed)
            daemon.stop()
        shutil.rmtree(store)
    few, many = counts
    return [
        Row(
            "objects a second, 2,000/s: 10,000 queues beside 10",
            f"{many:.2f}/s",
            f"{few:.2f}/s",
            f"{many / few:.2f}",
            "0.9 to 1.1",
        )
    ]


def idle(work: Path, seconds: float) -> list[Row]:
    """Requests to the S3 server while nothing is written."""
    store = work / "idle"
    generate(store, 1000, 4)
    with versitygw(work / "idle-server") as server:
        url, environment = server.url(server.bucket(), "archive"), server.environment()
        daemon = Daemon(work, store, url, name="idle", environment=environment, **GROUP_COMMIT)
        with daemon.running():
            daemon.wait_until(lambda: daemon.status()["lag"]["bytes"] == 0, "everything archived")
            time.sleep(1.5)
            before = _requests(daemon)
            time.sleep(seconds)
            made = _requests(daemon) - before
            daemon.stop()
    return [Row(f"requests in {seconds:.0f} s of idleness", f"{made:.0f}", "-", "-", "0")]


def _requests(daemon: Daemon) -> float:
    lines = daemon.ask("/metrics")[1].decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("tiered_requests_total{"))


def restart(work: Path, queues: int) -> list[Row]:
    """kill -9 and start again with many queues: metadata present, and deleted (rebuilt from the bucket)."""
    store = work / "restart"
    generate(store, queues, 1000, topics=queues // 1000, body_bytes=64)
    rows: list[Row] = []
    for kind in ("rocksdb", "json"):
        settings = {**GROUP_COMMIT, "state.metadata": kind}
        daemon = Daemon(work, store, f"file://{work / f'archive-{kind}'}", name=f"restart-{kind}", **settings)
        with daemon.running():
            daemon.wait_until(lambda d=daemon: d.status()["lag"]["bytes"] == 0, "everything archived", 120.0)  # type: ignore[misc]
        for what, target in (("present", "≤ 2 s" if kind == "rocksdb" else "-"), ("deleted", "-")):
            if what == "deleted":
                _remove(daemon.state / "metadata")
            started = time.monotonic()
            with daemon.running():
                took = time.monotonic() - started
            place = f"{kind} metadata {what}"
            rows.append(
                Row(f"restart after kill -9, {queues:,} queues, {place}", f"{took:.2f} s", "-", "-", target)
            )
    return rows


def _remove(path: Path) -> None:
    """A file or a directory."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
