"""The end of a run says what failed, however much was printed before, and however little of that is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import failures, leastcovered, rings
from tests.kit.failures import Failures
from tests.kit.rings import LAST_LINES

ROOT = Path(__file__).parents[2]
TESTS = """
from pathlib import Path

def test_sound():
    pass

def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "beside others"

def test_always():
    assert "this" == "that", "however often"
"""
MAKEFILE = """
tests:
\t@{python} -m tests.kit.twice -q test_it.py; code=$$?; seq 1000; exit $$code
good:
\t@echo good
bare:
\t@seq 1000; exit 1
style:
\t@echo E999; exit 1
"""


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_it.py").write_text(TESTS)
    (directory / "Makefile").write_text(MAKEFILE.format(python=sys.executable))
    return subprocess.run(
        [sys.executable, "-m", "tests.kit.rings", *words],
        cwd=directory,
        # all its plugins, whatever this pytest was started without
        env={**{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_failed_is_said_last_with_the_end_of_its_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "--rings", "good", "tests", "good")
    assert done.returncode == 1
    end = done.stdout.partition("FAILED (2)")[2].splitlines()
    assert [line for line in end if line.startswith("___ ")] == [
        "___ test_it.py::test_once",
        "___ test_it.py::test_always",
    ]
    assert any("however often" in line for line in end)
    assert any("beside others" in line for line in end)
    assert end[-6:] == [
        "",
        "FAILED BESIDE OTHERS, PASSED ALONE:",
        "  test_it.py::test_once",
        "",
        "FAILED:",
        "  test_it.py::test_always",
    ]
    assert len(end) < 60


def test_what_failed_without_a_test_is_said_by_its_last_lines(tmp_path: Path) -> None:
    done = run(tmp_path, "--rings", "good", "bare", "--beside", "style", "good")
    assert done.returncode == 1
    end = done.stdout.splitlines()
    at = end.index("___ the end of bare")
    assert end[at + 1].isdigit()
    assert "1000" in end[at : at + LAST_LINES + 1]
    assert "E999" in end[end.index("___ the end of style good") :]
    assert len(end) - at < 2 * LAST_LINES


def test_a_ring_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    done = run(tmp_path, "--rings", "bare", "good")
    assert done.returncode == 1
    assert "\ngood\n" in done.stdout


def test_where_nothing_failed_the_times_come_last(tmp_path: Path) -> None:
    done = run(tmp_path, "--rings", "good")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("all")


def test_the_end_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {f"test_{n}": failures.last_lines("x" * 999 + "\n" + "line\n" * 99, 60) for n in range(30)}
    assert {len(text.splitlines()) for text in texts.values()} == {failures.TEST_LINES}
    said = failures.told([Failures(texts, frozenset({"test_29"}))]).splitlines()
    assert len(said) <= failures.ALL_LINES + len(texts) + 6
    assert said[-1] == "  test_28"
    assert said.index("___ test_1") < said.index("___ test_0"), "what is cut stands first"
    assert sum(line.startswith("  test_") for line in said) == len(texts), "names are never left out"
    assert len(failures.last_lines("x" * 999, 60)) == failures.LINE_LENGTH + 1
    assert rings.last_words([]) == ""


def test_files_with_the_least_coverage_are_told_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "coverage.json"
    found = {f"file{n}.py": {"summary": {"percent_covered": n, "num_statements": 9}} for n in range(99)}
    found["empty.py"] = {"summary": {"percent_covered": 0, "num_statements": 0}}
    path.write_text(json.dumps({"files": found, "totals": {"percent_covered": 93.42}}))
    head, *rest = leastcovered.table(path).splitlines()
    assert head.startswith("coverage 93.4 %; the least of 99 files")
    assert str(path) in head
    assert [line.split()[-1] for line in rest] == [f"file{n}.py" for n in range(leastcovered.WORST)]


def test_the_ring_that_measures_has_a_report_that_its_end_is_made_of() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ncoverage:")[2].partition("\n\n")[0]
    assert " --cov-report=json:" in recipe
    assert "--cov-report=term" not in recipe
