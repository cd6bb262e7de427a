"""A million messages in 64 queues or in many quiet ones, ten to each: CPU a message, bytes stored, dictionaries off and on."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.bench.backlog import DICTIONARY, check_archive
from tests.bench.run import TIERED, Row, idle_run, once
from tests.kit.measured import Measured, measure

BODY_BYTES = 64
TOPICS = 100
ROUNDS = 2


def _store(store: Path, messages: int, topics: int, queues: int) -> int:
    """A store whose messages go to its queues in turn; bytes of its records."""
    made = measure([
        *TIERED, "gen", "--store", str(store), "--messages", str(messages), "--topics", str(topics),
        "--queues", str(queues // topics), "--body-bytes", str(BODY_BYTES), "--file-bytes", "256MiB", "--no-consume-queues",
    ])  # fmt: skip
    assert made.seconds > 0
    files = sorted((store / "commitlog").iterdir())
    last = files[-1].read_bytes().rstrip(b"\0")
    return int(files[-1].name) + len(last)


def _archived(work: Path, store: Path, messages: int, *sets: str) -> tuple[Measured, int]:
    """The store archived as a whole into a directory; what that took, and the bytes of all files there."""
    archive = work / "archive"
    taken = once(store, f"file://{archive}", work / "state", *sets)
    check_archive(f"file://{archive}", messages)
    stored = sum(path.stat().st_size for path in archive.rglob("*") if path.is_file())
    shutil.rmtree(archive)
    return taken, stored


def quiet_queues(work: Path, messages: int) -> list[Row]:
    """Rows of 64 queues and of as many as have ten messages each, in turn."""
    idle = idle_run(work).cpu_seconds
    many = messages // 10
    few_raw = _store(work / "few", messages, 1, 64)
    many_raw = _store(work / "many", messages, TOPICS, many)
    few: list[tuple[Measured, int]] = []
    plain: list[tuple[Measured, int]] = []
    small: list[tuple[Measured, int]] = []
    for _ in range(ROUNDS):
        few.append(_archived(work, work / "few", messages))
        plain.append(_archived(work, work / "many", messages))
        small.append(_archived(work, work / "many", messages, DICTIONARY))
    base = min(taken.cpu_seconds for taken, _ in few) - idle
    rows = [
        Row(f"{messages:,} messages, 64 queues: CPU a message; stored of raw", f"{base / messages * 1e6:.1f} µs",
            f"{few_raw / 1e6:.0f} MB raw", f"{few[0][1] / few_raw:.2f}", "-"),
    ]  # fmt: skip
    for name, runs in (("no dictionary", plain), (DICTIONARY, small)):
        cpu = min(taken.cpu_seconds for taken, _ in runs) - idle
        peak = max(taken.peak_bytes for taken, _ in runs) / 1e6
        stored = max(size for _, size in runs)
        rows += [
            Row(f"{many:,} queues, ten messages each, {name}: CPU a message", f"{cpu / messages * 1e6:.1f} µs, {peak:.0f} MB",
                f"{base / messages * 1e6:.1f} µs (64 queues)", f"{cpu / base:.2f}", "≤ 4"),
            Row(f"{many:,} queues, ten messages each, {name}: stored", f"{stored / 1e6:.0f} MB", f"{many_raw / 1e6:.0f} MB raw",
                f"{stored / many_raw:.2f}", "≤ 0.45"),
        ]  # fmt: skip
    return rows
