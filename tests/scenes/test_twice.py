"""What fails is run once more, alone, and named; what fails twice, or otherwise, stays failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONCE = """
from pathlib import Path

def test_sound():
    pass

def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(directory: Path, source: str, *words: str) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "tests.kit.twice", "-q", "test_it.py", *words]
    # Where this runs under coverage, its variables would have the child measure the program instead.
    around = {
        name: value for name, value in os.environ.items() if not name.startswith(("COV_CORE", "COVERAGE"))
    }
    return subprocess.run(
        command,
        cwd=directory,
        env={**around, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_passes_alone_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, ONCE)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("FAILED BESIDE OTHERS, PASSED ALONE:\n  test_it.py::test_once\n")
    assert "1 passed" in done.stdout, "the others are not run again"


def test_what_passes_alone_is_named_beside_what_does_not(tmp_path: Path) -> None:
    done = run(tmp_path, ONCE + "\ndef test_never():\n    assert False\n")
    assert done.returncode == 1, done.stdout
    assert done.stdout.endswith("FAILED BESIDE OTHERS, PASSED ALONE:\n  test_it.py::test_once\n")


def test_one_that_coverage_leaves_alone_is_run_again_as_any(tmp_path: Path) -> None:
    source = "import pytest\n" + ONCE.replace("def test_once", "@pytest.mark.no_cover\ndef test_once")
    done = run(tmp_path, source, "--cov", "--cov-report=json:out/coverage.json")
    assert done.returncode == 0, done.stdout
    assert "FAILED BESIDE OTHERS, PASSED ALONE:\n  test_it.py::test_once\n" in done.stdout


def test_the_end_of_a_report_of_coverage_is_printed(tmp_path: Path) -> None:
    source = "def test_it():\n    pass\n"
    done = run(tmp_path, source, "--cov", "--cov-report=json:out/coverage.json")
    assert done.returncode == 0, done.stdout
    assert "\ncoverage 100.0 %; the least of 1 files" in done.stdout
    assert "  test_it.py" in done.stdout


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (ONCE.replace("assert not first", "assert False"), 1),
        ("import nothing_of_this_name", 2),
        ("", 5),
        ("import pytest\n@pytest.mark.parametrize('n', range(13))\ndef test_it(n):\n    assert False", 1),
    ],
    ids=["twice", "collection", "no tests", "too many"],
)
def test_what_stays_failed(tmp_path: Path, source: str, code: int) -> None:
    done = run(tmp_path, source)
    assert (done.returncode, "PASSED ALONE" in done.stdout) == (code, False)
    assert ("once more" in done.stdout) == ("test_once" in source)
