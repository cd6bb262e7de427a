"""How jobs are started, by ``spark-submit`` and by ``tiered spark``; what a wrong command line is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.pysparks import quick_jvm
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive
from tiered.cli import main as command_line
from tiered_jobs.main import JOBS, main

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SMALL = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")
"""A session as small as 500 messages."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("jobs")
    assert tiered("gen", "--store", directory / "store", "--messages", 500, "--topics", 2).code == 0
    return archive(directory / "store", directory)


def test_every_job_is_there_and_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in JOBS:
        assert f"  {name} " in listed
        assert main([name, "--help"]) == 0
        assert "--dry-run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["prfile"], "did you mean profile?"),
        (["profile"], "--archive"),
        (["profile", "--archive", "file:///x", "--topcs", "A"], "--topcs"),
        (["profile", "--archive", "file:///x", "--from", "yesterday"], "startingTimestamp"),
        (["profile", "--archive", "file:///x", "--conf", "spark.x"], "KEY=VALUE"),
        (["profile", "--archive", "file:///x", "--html", "--dry-run"], "--html requires a value"),
        (["pipeline", "--table", "--dry-run", "--archive", "file:///x"], "--table requires a value"),
    ],
)
def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_an_archive_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--archive", "file:///nowhere/at/all", "--dry-run"]) == 5
    assert "no archive is here" in capsys.readouterr().err


@pytest.mark.parametrize("at", [None, 0, 1, 2, 4])
def test_debug_is_understood_anywhere(capsys: pytest.CaptureFixture[str], at: int | None) -> None:
    words = ["spark", "profile", "--archive", "file:///nowhere/at/all"]
    if at is not None:
        words.insert(at, "--debug")
        assert main(words[1:] if at else ["--debug", *words[2:]]) == 5
        assert "Traceback" in capsys.readouterr().err
    assert command_line.main(words) == 5
    assert ("Traceback" in capsys.readouterr().err) == (at is not None)


def test_a_dry_run_makes_no_session(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main(["profile", "--archive", url, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["queues"], told["runs_pruned"]) == (8, 0)


def _environment() -> dict[str, str]:
    """Of a program that starts a JVM."""
    python = sys.executable
    own = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_SUBMIT_OPTS": quick_jvm()}
    return {**os.environ, **own}


@pytest.mark.parametrize("command", ["spark-submit", "tiered"])
def test_as_a_program(url: str, command: str) -> None:
    binaries = Path(sys.executable).parent
    start = {
        "spark-submit": [
            binaries / "spark-submit",
            "--master",
            "local[2]",
            ROOT / "spark" / "jobs" / "submit.py",
        ],
        "tiered": [binaries / "tiered", "spark"],
    }[command]
    done = subprocess.run(
        [*map(str, start), "profile", "--archive", url, "--quick", "--json", *SMALL],
        check=False, capture_output=True, text=True, timeout=500,
        env=_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["totals"]["messages"] == 500
    assert ("counting headers" in done.stderr) == (command == "tiered")


def test_a_search_makes_its_own_session(url: str) -> None:
    """It names columns before it reads anything, which Spark allows only once there is a session."""
    asked = ("--archive", url, "--unique-key", "nowhere", "--master", "local[2]", *SMALL)
    found = tiered("spark", "trace", *asked, environment=_environment())
    assert found.code == 5, found.err
    assert "no archived message has this unique key" in found.err
