"""What failed, kept where the end of a long output can still show it: a plugin of pytest, and how it is read.

``pytest -p tests.kit.failures --failures-to FILE`` appends a line of JSON for each test that failed, with the end of its
traceback. ``twice.py`` has it done where ``rings.py`` asks for it (``FAILURES_TO``), and notes what it ran again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FAILURES_TO = "TIERED_FAILURES_TO"
"""Names the file, in the environment of a ring."""
TEST_LINES = 60
ALL_LINES = 300
LINE_LENGTH = 300
"""Assertions about whole archives print lines that nobody reads to their end."""


@dataclass(frozen=True, slots=True)
class Failures:
    """``texts``: the end of the last traceback of each test that failed. ``passed_alone``: those of them that then passed."""

    texts: dict[str, str]
    passed_alone: frozenset[str]

    @property
    def failed(self) -> list[str]:
        """Names of those that failed twice, or were not run again."""
        return [name for name in self.texts if name not in self.passed_alone]


NONE = Failures({}, frozenset())


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file; without it nothing is written."""
    parser.addoption("--failures-to", type=Path, default=None, metavar="FILE", help="append what failed")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write what failed: in the process that prints, so not in xdist's workers."""
    path: Path | None = config.getoption("failures_to")
    reports = [r for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, [])]
    if path is not None:
        append(path, [{"name": r.nodeid, "text": last_lines(r.longreprtext, TEST_LINES)} for r in reports])


def append(path: Path, rows: Iterable[object]) -> None:
    """Add lines to the file."""
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def ran_again(path: Path, names: Collection[str], passed: Collection[str]) -> None:
    """Note which tests were run again, alone, and which of these passed."""
    append(path, [{"again": sorted(names), "passed": sorted(passed)}])


def read(path: Path) -> Failures:
    """What one ring wrote; nothing where no test of it failed."""
    texts: dict[str, str] = {}
    passed: set[str] = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        if "name" in row:
            texts[row["name"]] = row["text"]
        else:
            passed.update(row["passed"])
    return Failures(texts, frozenset(passed))


def last_lines(text: str, count: int) -> str:
    """The last ``count`` lines, each cut where nobody reads on."""
    lines = text.splitlines()
    left = [f"… {len(lines) - count + 1} lines before"] if len(lines) > count else []
    kept = lines[-(count - len(left)) :]
    return "\n".join([*left, *map(shortened, kept)])


def shortened(line: str) -> str:
    """A line cut where nobody reads on."""
    return line if len(line) <= LINE_LENGTH else line[:LINE_LENGTH] + "…"


def told(rings: Sequence[Failures]) -> str:
    """The last words of a run: tracebacks' ends, those of tests that failed twice last, then names; "" if nothing failed.

    Whoever keeps only the end of an output reads what fails the run.
    """
    failed = [(name, ring.texts[name]) for ring in rings for name in ring.failed]
    once = [(name, ring.texts.get(name, "")) for ring in rings for name in sorted(ring.passed_alone)]
    parts: list[list[str]] = []
    room = ALL_LINES
    for name, text in (*failed, *once):
        part = ["", f"___ {name}", *text.splitlines()]
        room -= len(part)
        if room < 0:
            parts.append(["", "… the rest stands in the rings' own output"])
            break
        parts.append(part)
    lines = [line for part in reversed(parts) for line in part]
    for title, names in (("FAILED BESIDE OTHERS, PASSED ALONE:", once), ("FAILED:", failed)):
        if names:
            lines += ["", title, *(f"  {name}" for name, _ in names)]
    return "\n".join(lines)
