"""Where queues go: fullest node over the mean, hour by hour, under hashing, by the hour before, and by forecast.

``python -m tests.bench.placement`` prints the table of README.md; figures are simulated, and the same on every machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.bench.run import Row
from tests.kit.placementsim import NODES, Balance, backlogs, nodes_of, rows, run


def placement(work: Path, hours: int | None = None) -> list[Row]:
    """Placement by forecast beside hashing. ``hours``: of each kind of days; ``None``: all."""
    return [
        Row(
            f"{what}: fullest node over the mean (95th percentile)",
            f"{ways['forecast'].mean:.2f} ({ways['forecast'].high:.2f})",
            f"{ways['hash'].mean:.2f} ({ways['hash'].high:.2f})",
            f"{ways['forecast'].mean / ways['hash'].mean:.2f}",
            "< 1",
        )
        for what, ways in rows(work, hours)
    ]


def _cell(found: Balance) -> str:
    return f"{found.mean:.2f} ({found.high:.2f})"


def _reads() -> list[tuple[str, ...]]:
    """Readers far behind: by hashing, by what each queue was read the hour before, by what is written alone, and with what
    nodes tell."""
    lines: list[tuple[str, ...]] = [
        ("readers far behind", "hashing", "hour before", "what is written alone", "with what nodes tell",
         "moved an hour: hour before", "nodes tell"),
        ("---",) * 7,
    ]  # fmt: skip
    for seed in (5, 6):
        written, read = backlogs(400, seed)
        ways = {
            way: run(written, nodes_of(NODES), way, read=read)
            for way in ("hash", "now", "untold", "forecast")
        }
        moved = (f"{100 * ways[way].moved:.1f}%" for way in ("now", "forecast"))
        lines.append((f"seed {seed}", *(_cell(found) for found in ways.values()), *moved))
    return lines


def main() -> int:
    """Print the tables; 0."""
    heads = (
        "days",
        "no way can be below",
        "hashing",
        "hour before",
        "forecast",
        "moved an hour: hour before",
        "forecast",
    )
    lines = [heads, ("---",) * len(heads)]
    with tempfile.TemporaryDirectory(prefix="tiered-bench-placement-") as work:
        for what, ways in rows(Path(work)):
            foreseen = ways["forecast"]
            lines.append(
                (
                    what, f"{foreseen.floor:.2f}", *(_cell(ways[way]) for way in ("hash", "now", "forecast")),
                    f"{100 * ways['now'].moved:.1f}%", f"{100 * foreseen.moved:.1f}%",
                )
            )  # fmt: skip
    for table in (lines, _reads()):
        print("\n".join("| " + " | ".join(line) + " |" for line in table), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
