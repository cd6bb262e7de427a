"""``python -m tests.kit.twice ARGUMENTS``: pytest, and what failed once more, alone.

Tests with brokers, daemons and clients share two cores with one another, and clients give up after seconds. A test that
fails beside others and passes alone has met the machine, or a race that deserves a look: it is named at the end, and does not
fail the ring. A test that fails twice does. Whatever else went wrong (collection, coverage below its floor, nothing to run)
stays as it was. Where coverage is measured into a JSON report, its end is printed (``leastcovered.py``); what failed is
kept for the end of all rings (``failures.py``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kit import failures, leastcovered

TESTS_FAILED = 1
"""Pytest's exit code."""
ALONE = ("-n", "0", "-rfE", "--last-failed", "--last-failed-no-failures", "none")
MOST = 12
"""With more failures than this something is broken: nothing is run again."""
JSON_REPORT = "--cov-report=json:"
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def pytest(arguments: Sequence[str]) -> int:
    """Its exit code."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failed() -> list[str]:
    """Tests that failed in the last run."""
    try:
        return sorted(json.loads(LAST_FAILED.read_text()))
    except FileNotFoundError:
        return []


def is_covered(arguments: Sequence[str]) -> bool:
    """Whether the first run's coverage, if it was measured, is above its floor."""
    if "--cov" not in arguments:
        return True
    return (
        subprocess.run([sys.executable, "-m", "coverage", "report", "--format=total"], check=False).returncode
        == 0
    )


def show_coverage(arguments: Sequence[str]) -> None:
    """Print the end of the coverage report, where there is one."""
    for path in (Path(word.removeprefix(JSON_REPORT)) for word in arguments if word.startswith(JSON_REPORT)):
        if path.exists():
            print("\n" + leastcovered.table(path), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Pytest's exit code: of the first run, or 0 if all that failed passed alone."""
    kept = os.environ.pop(failures.FAILURES_TO, "")  # tests that run pytest have failures of their own
    if kept:
        arguments = ["-p", "tests.kit.failures", "--failures-to", kept, *arguments]
    LAST_FAILED.unlink(missing_ok=True)
    code = pytest(arguments)
    show_coverage(arguments)
    names = failed()
    if code != TESTS_FAILED or not 0 < len(names) <= MOST:
        return code
    print(f"\nonce more, alone: {len(names)} that failed", flush=True)
    # Not --no-cov: with it pytest-cov fails each test that is marked no_cover.
    again = pytest([*(word for word in arguments if not word.startswith("--cov")), *ALONE])
    passed = sorted(set(names) - set(failed())) if again in (0, TESTS_FAILED) else []
    if kept:
        failures.ran_again(Path(kept), names, passed)
    if passed:
        print("\nFAILED BESIDE OTHERS, PASSED ALONE:", *passed, sep="\n  ", flush=True)
    return code if again or not is_covered(arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
