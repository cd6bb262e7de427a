"""``python -m tests.mutants [--sample N] [--seed S] [--only TEXT]``: all mutants, or some; exit 1 if one survives."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import Mutant, table

ROOT = Path(__file__).parents[2]
PARTS = ("tiered", "tests", "spark", "config", "deploy", "pyproject.toml", "README.md", "Makefile")
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""A test that runs alone needs no plugins but its time limit: the others take a second to import."""
TEST_SECONDS = 300
"""A mutant that makes its test hang is caught, too: by this limit at the latest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a mutant fared: ``caught``, ``survived``, or ``invalid`` when its test fails regardless."""

    mutant: Mutant
    verdict: str
    seconds: float
    output: str


def copy_tree(to: Path) -> Path:
    """A copy of what tests need, to be changed at will."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, to / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, to / part)
    return to


def run_tests(tree: Path, test: str) -> tuple[int, str]:
    """Exit code of pytest on ``test`` in a tree, and what it printed."""
    paths = [str(tree / part) for part in ("", "spark", "spark/jobs")]
    environment = {**os.environ, **BARE, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout=120"]
    command = [sys.executable, "-m", "pytest", *options, *test.split()]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "the test did not end"
    return done.returncode, done.stdout + done.stderr


def try_mutant(tree: Path, mutant: Mutant, sound: set[str] | None = None) -> Outcome:
    """Apply it, run its test, take it back. ``sound``: tests seen to pass without a change, which are not run so again."""
    path = tree / mutant.file
    text = path.read_text()
    began = time.monotonic()
    if text.count(mutant.before) != 1:
        return Outcome(mutant, "invalid", 0.0, f"stands {text.count(mutant.before)} times in the file")
    if sound is None or mutant.test not in sound:
        code, output = run_tests(tree, mutant.test)
        if code:
            return Outcome(mutant, "invalid", time.monotonic() - began, f"without the change: {output}")
        if sound is not None:
            sound.add(mutant.test)
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        code, output = run_tests(tree, mutant.test)
    finally:
        path.write_text(text)
    verdict = {0: "survived", 1: "caught"}.get(code, "invalid")
    return Outcome(mutant, verdict, time.monotonic() - began, output)


def run(mutants: Sequence[Mutant], workers: int) -> list[Outcome]:
    """Try each, several at once, each worker in a tree of its own."""
    outcomes: list[Outcome] = []
    sound: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        trees: SimpleQueue[Path] = SimpleQueue()
        for i in range(workers):
            trees.put(copy_tree(Path(scratch, str(i))))

        def work(mutant: Mutant) -> Outcome:
            tree = trees.get()
            try:
                return try_mutant(tree, mutant, sound)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(workers) as pool:
            for outcome in pool.map(work, mutants):
                print(f"{outcome.verdict:8} {outcome.seconds:6.1f} s  {outcome.mutant.name}", flush=True)
                if outcome.verdict != "caught":
                    print(outcome.output[-2000:], f"\n  test: {outcome.mutant.test}", flush=True)
                outcomes.append(outcome)
    return outcomes


def main(words: Sequence[str] | None = None) -> int:
    """Run, print a line each and a count; 0 if all were caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="so many, drawn by --seed; default: all")
    parser.add_argument("--seed", default="0", help="what the sample is drawn by")
    parser.add_argument("--only", default="", help="those whose file or test contains this")
    parser.add_argument("--workers", type=int, default=2, help="tests at once")
    asked = parser.parse_args(words)
    mutants = [m for m in table() if asked.only in m.file or asked.only in m.test]
    if asked.sample:
        mutants = random.Random(asked.seed).sample(mutants, min(asked.sample, len(mutants)))
        print(f"{len(mutants)} of {len(table())} mutants, seed {asked.seed}")
    outcomes = run(mutants, asked.workers)
    caught = sum(o.verdict == "caught" for o in outcomes)
    print(f"{caught} of {len(outcomes)} mutants caught")
    return 0 if outcomes and caught == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
