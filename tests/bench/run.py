"""Running one thing and measuring it from outside: wall time, CPU, peak memory of a child process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tiered.clock import Clock, SystemClock
from tiered.source.generator.store import GeneratorOptions, StoreGenerator, topic_names

TIERED = (sys.executable, "-m", "tiered.cli.main")
LOOK_SECONDS = 0.02
ROUNDS_AT_MOST = 2
QUIET = ("--set", "web.port=-1", "--set", "log.level=warning")


Figure = TypeVar("Figure")


class NoFigure(Exception):
    """A round in which not every message came: whatever the clock said of it means nothing."""


def expect(found: int, wanted: int, what: str = "messages were read") -> None:
    """``NoFigure`` unless everything came."""
    if found != wanted:
        raise NoFigure(f"{found} {what} and not {wanted}: no figure")


def whole(round_: Callable[[int], Figure]) -> Figure:
    """What the first round gave in which everything came; ``SystemExit`` when the last that is tried is not whole either."""
    for number in range(ROUNDS_AT_MOST):
        try:
            return round_(number)
        except NoFigure as error:
            print(f"round {number + 1}: {error}", file=sys.stderr)
    raise SystemExit(f"{ROUNDS_AT_MOST} rounds were not whole")


@dataclass(frozen=True, slots=True)
class Measured:
    """One child process: wall and CPU seconds, peak resident bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. ``ratio`` is ours over the baseline, as the target speaks of it."""

    what: str
    ours: str
    baseline: str
    ratio: str
    target: str


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command to its end; SystemExit when it fails.

    The peak is read from the process while it runs: what the kernel tells afterwards counts the parent's memory from before the
    child's own program began.
    """
    started = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL)
    peak = 0
    while True:
        peak = max(peak, _peak_bytes(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(LOOK_SECONDS)
    seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, peak)


def _peak_bytes(pid: int) -> int:
    """The most resident memory the process has had (``VmHWM``); 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def generate(
    store: Path,
    messages: int,
    queues: int,
    *,
    body_bytes: int = 1024,
    topics: int = 1,
    clock: Clock | None = None,
) -> int:
    """A stored backlog of compressible messages; its bytes of records."""
    options = GeneratorOptions(
        store_dir=store,
        messages=messages,
        topics=topic_names(topics, "Bench"),
        queues=queues,
        body_bytes=body_bytes,
        file_bytes=1 << 30,
        queue_file_units=max(64, messages // (queues * topics) + 64),
    )
    with StoreGenerator(options, clock or SystemClock()) as generator:
        generator.append(messages)
        return generator.physical_offset


def once(
    store: Path, archive: str, state: Path, *sets: str, environment: Mapping[str, str] | None = None
) -> Measured:
    """``tiered run --once`` from an empty state."""
    shutil.rmtree(state, ignore_errors=True)
    flags = [part for pair in sets for part in ("--set", pair)]
    command = (
        *TIERED,
        "run",
        "--once",
        "--store",
        str(store),
        "--archive",
        archive,
        "--state",
        str(state),
        *QUIET,
        *flags,
    )
    return measure(command, environment)


def idle_run(work: Path) -> Measured:
    """The same process with nothing to do: what start-up alone costs in time and memory."""
    generate(work / "tiny", 10, 1)
    return once(work / "tiny", f"file://{work / 'tiny-archive'}", work / "tiny-state")
