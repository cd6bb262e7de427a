"""What a verb costs before it does anything: CPU of whole processes, on an archive of a few messages."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.run import TIERED, Row, generate, once
from tests.kit.measured import measure
from tiered.source.generator.store import topic_names


def start_up(work: Path, rounds: int) -> list[Row]:
    """The help, and verbs that read an archive in a directory; each the median of ``rounds`` processes."""
    generate(work / "few", 100, 4)
    archive = ("--archive", f"file://{work / 'few-archive'}")
    once(work / "few", archive[1], work / "state")
    queue = ("--topic", topic_names(1, "Bench")[0], "--queue", "0")
    bare = _cpu_seconds((sys.executable, "-c", "import numpy, typer"), rounds)
    return [
        Row(
            f"start-up, {' '.join(words[:1])}: CPU", f"{took:.2f} s", f"{bare:.2f} s, import numpy and typer",
            f"{took / bare:.2f}", target,
        )
        for words, target in (
            (("--help",), "≤ 0.4 s"),
            (("status", *archive), "≤ 0.8 s"),
            (("topics", *archive), "≤ 0.8 s"),
            (("read", *archive, *queue, "--count", "1"), "≤ 0.8 s"),
        )
        for took in (_cpu_seconds((*TIERED[:2], "tiered.cli.entry", *words), rounds),)
    ]  # fmt: skip


def _cpu_seconds(command: Sequence[str], rounds: int) -> float:
    return statistics.median(measure(command).cpu_seconds for _ in range(rounds))
