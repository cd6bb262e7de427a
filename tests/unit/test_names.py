"""One meaning a name: no two public classes of the program have the same one, nor two modules of tests; and no module is too
long to know its place."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLASS = re.compile(r"^class ([^\W_]\w*)", re.MULTILINE)
SOURCES = ("tiered", "spark/tiered_spark", "spark/jobs/tiered_jobs")

MEANT = {
    "Flags",  # each job of Spark declares its own, at the same place
    "Piece",  # of a merge and of a scan: a part of a run
}


def test_no_two_public_classes_have_one_name() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            for name in CLASS.findall(path.read_text()):
                homes[name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 500, "the sources were found"
    assert {name: paths for name, paths in homes.items() if len(paths) > 1 and name not in MEANT} == {}


def test_no_module_has_more_than_600_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_bytes().count(b"\n")
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
    }
    assert len(lengths) > 300, "the sources were found"
    assert {path: lines for path, lines in lengths.items() if lines > 600} == {}


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Pytest imports them by their bare names: rings that are collected in one run would lose one of the two."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        homes[path.name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 400, "the tests were found"
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
