"""Archive lag of a daemon that merges, seals and scrubs beside archiving, beside the same daemon without any of it.

When a commit stood in the bucket is asked of the file system, afterwards: nobody looks at the archive while it is measured.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.bench.live import GROUP_COMMIT
from tests.bench.run import NoFigure, Row, expect
from tests.kit.daemonproc import Daemon
from tests.kit.oracle import opened
from tiered.clock import ManualClock, SystemClock
from tiered.codec.format.edits import EditKind
from tiered.codec.types import Bools, Ints
from tiered.source.generator.store import GeneratorOptions, StoreGenerator, topic_names

RATE, QUEUES, OLD_TOPICS = 2000, 64, 4
PACE_SECONDS, LOOK_SECONDS = 0.02, 0.1
DAYS_AGO_MS = 2 * 86_400_000
OLD_FLUSH = {"dispatch.group_commit_count": 4000}
"""A few seconds of this rate, so that there is something to merge."""
EVERY_MS = 3000
AGEING = {
    "maintenance.merge_interval_ms": EVERY_MS,
    "seal.interval_ms": EVERY_MS,
    "scrub.list_interval_ms": EVERY_MS,
}
"""Soon after the start and again and again; how fast each works is as the program has it."""
EDGE_MS = 2000
"""What is left out at both ends of the load: a broker that starts or stops is not what is measured."""
TIMES_AS_LONG = 4
"""How much longer than asked for the load goes on at most, until maintenance has done a little of everything."""

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages appended at once: where the log ended behind them, and when, at the latest, they had their store time."""

    end: int
    now_ms: int
    messages: int


@dataclass(frozen=True, slots=True)
class Look:
    """One look at ``/status``. ``task``: what maintenance was at, or ``""``."""

    now_ms: int
    lag_seconds: float
    task: str


@dataclass(frozen=True, slots=True)
class Phase:
    """What one daemon archived under load. ``done``: of each task, what it did meanwhile."""

    batches: Sequence[Batch]
    looks: Sequence[Look]
    done: Mapping[str, Mapping[str, int]]

    @property
    def lags(self) -> Seconds:
        """By the daemon's own word, each look but those at the ends."""
        steady = self._steady(np.array([look.now_ms for look in self.looks], np.int64))
        return np.array([look.lag_seconds for look in self.looks])[steady]

    def _steady(self, times_ms: Ints) -> Bools:
        """Which lie neither at the beginning nor at the end."""
        first, last = self.looks[0].now_ms + EDGE_MS, self.looks[-1].now_ms - EDGE_MS
        found: Bools = (times_ms >= first) & (times_ms <= last)
        return found

    def waits(self, commits: Ints, task: str | None = None) -> Seconds:
        """From append to the commit, of each message but those at the ends; ``task``: only of those appended while maintenance
        was at it."""
        ends, times_ms, messages = (
            np.array(column, np.int64)
            for column in zip(*((b.end, b.now_ms, b.messages) for b in self.batches), strict=True)
        )
        at = np.searchsorted(commits[:, 0], ends)
        expect(int(messages[at < len(commits)].sum()), int(messages.sum()), "messages are in the archive")
        kept = self._steady(times_ms)
        if task is not None:
            seen = np.searchsorted([look.now_ms for look in self.looks], times_ms, side="right") - 1
            kept &= np.array([i >= 0 and self.looks[i].task == task for i in seen.tolist()], np.bool_)
        return np.repeat((commits[at, 1] - times_ms)[kept] / 1000, messages[kept])

    def seconds(self, task: str) -> float:
        """How long maintenance was at it."""
        return sum(b.now_ms - a.now_ms for a, b in pairwise(self.looks) if a.task == task) / 1000


def lag_ageing(work: Path, messages: int, seconds: float) -> list[Row]:
    """Without, with, and without again, so that the machine's moods fall on both; on an archive of two days ago."""
    options = _two_days_ago(work, messages)
    before = _phase(work, options, seconds, ages=False)
    ageing = _phase(work, options, seconds, ages=True)
    did = said(ageing.done)
    after = _phase(work, options, seconds, ages=False)
    commits = commits_of(work / "archive")
    without = [phase.waits(commits) for phase in (before, after)]
    sealing = ageing.waits(commits, "seal")
    what = f"append → in the bucket, {RATE:,}/s"
    took = {task: ageing.seconds(task) for task in ("merge", "seal", "scrub")}
    spent = ", ".join(f"{task} {took[task]:.0f} s" for task in took)
    return [
        lag_row(f"{what}, beside maintenance, p50", ageing.waits(commits), without, 50, "-"),
        lag_row("the same, p99", ageing.waits(commits), without, 99, "≤ 1.5"),
        lag_row(f"of {len(sealing):,} messages appended while it sealed, p99", sealing, without, 99, "≤ 1.5"),
        lag_row("lag by /status, p50", ageing.lags, [before.lags, after.lags], 50, "-"),
        lag_row("lag by /status, p99", ageing.lags, [before.lags, after.lags], 99, "≤ 1.5"),
        Row("what maintenance did meanwhile", did, f"nothing, {2 * seconds:.0f} s", "-", "a little of each"),
        Row(f"… in {ageing.looks[-1].now_ms - ageing.looks[0].now_ms:,} ms", spent, "-", "-", "-"),
    ]


def said(done: Mapping[str, Mapping[str, int]]) -> str:
    """What maintenance did, in words; ``NoFigure`` if it did not do a little of everything."""
    merged, sealed, scrubbed = (Counter(done.get(task, {})) for task in ("merge", "seal", "scrub"))
    words = (
        f"merged {merged['merged_runs']:,} runs, {merged['record_bytes'] / 1e6:.0f} MB of records; "
        f"sealed {sealed['written_files']} files, {sealed['record_bytes'] / 1e6:.0f} MB; "
        f"scrubbed {scrubbed['bytes'] / 1e6:.0f} MB"
    )
    if not _worked(done):
        raise NoFigure(f"maintenance did not do a little of everything ({words}): not measured")
    return words


def _worked(done: Mapping[str, Mapping[str, int]]) -> bool:
    wanted = ("merge", "merged_runs"), ("seal", "written_files"), ("scrub", "bytes")
    return all(done.get(task, {}).get(what, 0) > 0 for task, what in wanted)


def lag_row(
    what: str,
    ours: Seconds,
    without: Sequence[Seconds],
    percent: int,
    target: str,
    *,
    beside: str = "without",
) -> Row:
    """``without``: before and after, which count together; ``beside``: what they are."""
    if not len(ours):
        raise NoFigure(f"{what}: nothing was seen")
    mine, theirs = (float(np.percentile(some, percent)) for some in (ours, np.concatenate(without)))
    each = ", ".join(f"{np.percentile(some, percent):.2f}" for some in without)
    return Row(what, f"{mine:.2f} s", f"{theirs:.2f} s {beside} ({each})", f"{mine / theirs:.2f}", target)


def _two_days_ago(work: Path, messages: int) -> GeneratorOptions:
    """A day that is over, archived in small flushes; how its broker goes on writing today."""
    today = GeneratorOptions(
        store_dir=work / "store", topics=("Bench",), queues=QUEUES, file_bytes=64 << 20,
        queue_file_units=max(64, messages // QUEUES + 64),
    )  # fmt: skip
    old = replace(
        today,
        topics=topic_names(OLD_TOPICS, "Old"),
        queues=QUEUES // OLD_TOPICS,
        vary_bodies=True,
        messages=messages,
    )
    with StoreGenerator(old, ManualClock(SystemClock().now_ms() - DAYS_AGO_MS)) as generator:
        generator.append(messages)
    code = _daemon(work, today, {**OLD_FLUSH, "maintenance.enabled": False}).once(seconds=300)
    if code:
        raise SystemExit(f"the old day was not archived: tiered run --once ended with {code}")
    return today


def _daemon(work: Path, options: GeneratorOptions, settings: Mapping[str, object]) -> Daemon:
    url = f"file://{work / 'archive'}"
    return Daemon(work, options.store_dir, url, name="ageing", **{**GROUP_COMMIT, **settings})


def _phase(work: Path, options: GeneratorOptions, seconds: float, *, ages: bool) -> Phase:
    """Load and looks for so long, or for longer, where maintenance has not come to everything."""
    daemon = _daemon(work, options, AGEING if ages else {"maintenance.enabled": False})
    looks: list[Look] = []
    with daemon.running():
        daemon.wait_until(lambda: caught_up(daemon.status()), "what is there archived")
        with writing(options) as batches:
            began = time.monotonic()
            while True:
                status = daemon.status()
                looks.append(look_of(status))
                done: dict[str, dict[str, int]] = {n: t["done"] for n, t in _tasks(status).items()}
                so_far = time.monotonic() - began
                enough = not ages or _worked(done) or so_far >= TIMES_AS_LONG * seconds
                if so_far >= seconds and enough:
                    break
                time.sleep(LOOK_SECONDS)
        daemon.wait_until(lambda: caught_up(daemon.status()), "everything archived")
        daemon.stop()
    return Phase(batches, looks, done)


def caught_up(status: Mapping[str, Any]) -> bool:
    """Whether everything is archived."""
    return bool(status) and status["lag"]["bytes"] == 0


def _tasks(status: Mapping[str, Any]) -> Mapping[str, Any]:
    tasks: Mapping[str, Any] = status.get("maintenance", {}).get("tasks", {})
    return tasks


def look_of(status: Mapping[str, Any]) -> Look:
    """The first task that is due is the one whose turn it is."""
    if not status:
        raise NoFigure("the daemon did not answer: no figure")
    task = next((name for name, found in _tasks(status).items() if found["due"]), "")
    return Look(SystemClock().now_ms(), float(status["lag"]["seconds"]), task)


@contextmanager
def writing(options: GeneratorOptions) -> Iterator[list[Batch]]:
    """A broker that writes at the rate until the block ends; what it appended so far."""
    batches: list[Batch] = []
    stop, clock = threading.Event(), SystemClock()

    def write() -> None:
        done = 0
        with StoreGenerator(options, clock) as generator:
            began = clock.monotonic()
            while not clock.wait(PACE_SECONDS, stop):
                count = int((clock.monotonic() - began) * RATE) - done
                if count > 0:
                    now_ms = clock.now_ms()
                    batches.append(Batch(generator.append(count), now_ms, count))
                    done += count

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        try:
            yield batches
        finally:
            stop.set()
            written.result()


def commits_of(root: Path) -> Ints:
    """Of each commit that archived something: the physical offset that it reached, and when it stood in the bucket (ms)."""
    log = opened(f"file://{root}").log
    found: list[tuple[int, int]] = []
    seq = 0
    while (read := log.read(seq)) is not None:
        reached = [
            int(edit.ints("physical_offset").max())
            for edit in read.commit.edits
            if edit.kind is EditKind.PROGRESS
        ]
        if reached:
            found.append((max(reached), (root / log.keys.commit(seq)).stat().st_ctime_ns // 1_000_000))
        seq += 1
    commits = np.array(found, np.int64).reshape(-1, 2)
    assert (np.diff(commits, axis=0) >= 0).all(), "this broker lost nothing, and time went on"
    return commits
