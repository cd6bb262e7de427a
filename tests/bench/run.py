"""Rows of the tables, rounds that count, and the runs that most benchmarks measure."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.kit.measured import Measured, measure
from tiered.clock import Clock, SystemClock
from tiered.source.generator.store import GeneratorOptions, StoreGenerator, topic_names

TIERED = (sys.executable, "-m", "tiered.cli.main")
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
class Row:
    """A line of the table. ``ratio`` is ours over the baseline, as the target speaks of it."""

    what: str
    ours: str
    baseline: str
    ratio: str
    target: str


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
