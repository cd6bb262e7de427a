"""The short run of the protocol model (``tests/model``): every scenario must end as the rules say.

The searches know nothing of the program: they are not made again while the model is what it was (``make model`` does all).
Each scenario is its own process, because the model interns commits for ever. A scenario that must hold has to be a
complete search; one that must fail has to show its own violation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.depends_only_on("tests/model"),
    pytest.mark.no_cover,
]  # of the program nothing runs here

MODEL = Path(__file__).parents[1] / "model" / "archive_model.py"

HOLDS = (
    "core-small",
    "solo",
    "rewind",
    "rewind-crash",
    "rewind-roll",
    "rewind-twice",
    "rewind-old-files",
    "rewind-foreign",
    "rewind-takeover",
    "rewind-gc",
    "written-rw",
    "age-merge",
    "age-two",
    "age-reader",
    "age-inline",
    "age-freed",
    "age-sleeper",
    "age-flush",
    "age-shelf",
    "age-shelf-crash",
    "age-shelf-late",
    "half-age-lent",
    "half-age-hand",
    "gone",
    "gone-crash",
    "gone-two",
    "sink-once",
    "sink-again",
    "sink-crash",
    "sink-two",
    "sink-both",
    "unkept",
    "said",
)
FAILS = {
    "mut-counted": "I1/I2/I4",
    "said-deaf": "W1",
    "said-epoch": "W2",
    "said-kept": "W2",
    "unkept-unseen": "L3",
    "unkept-hole": "L3",
    "unkept-late": "I1",
    "mut-fence": "I4",
    "mut-retire": "I3",
    "mut-floor": "I2",
    "mut-404": "I6",
    "hole-restart": "I7",
    "mut-rw-skip": "R2",
    "mut-rw-sizes": "R2",
    "mut-rw-backward": "R2",
    "mut-rw-to-mark": "R1",
    "mut-rw-cut-only": "R2",
    "mut-rw-unknown": "R7",
    "mut-rw-unknown-old": "R7",
    "mut-rw-empty-mark": "R2",
    "mut-rw-empty-foreign": "R8",
    "mut-rw-look-last": "R2",
    "mut-rw-held": "R2",
    "mut-rw-keep-links": "R2",
    "mut-rw-no-recheck": "R6",
    "mut-rw-mixed-twice": "R1",
    "mut-rw-old-copy": "R4",
    "mut-rw-give-up": "I7",
    "mut-rw-early": "R2",
    "mut-rw-unref": "R3",
    "mut-rw-forget": "R1",
    "hole-rw-no-mark": "R7",
    "hole-rw-minimum": "R7",
    "limit-rw-foreign": "R8",
    "limit-rw-deleted": "R2",
    "mut-age-stale": "A6",
    "mut-age-settle": "A2",
    "mut-age-put": "A1",
    "mut-age-grace": "A3",
    "mut-age-listing": "A1",
    "mut-age-uncounted": "A1",
    "mut-age-orphans": "A6",
    "mut-age-deleted": "A5",
    "mut-age-inline": "A1",
    "hole-age-inline": "A3",
    "mut-age-identity": "A3",
    "mut-age-404": "A3",
    "hole-age-sleep": "A3",
    "mut-age-own": "A4",
    "mut-age-second": "A4",
    "mut-age-shared": "A4",
    "mut-age-hand": "A4",
    "mut-age-below": "A6",
    "mut-age-below-lax": "A4",
    "mut-age-again": "A3",
    "mut-age-lent": "A4",
    "hole-age-lent": "A4",
    "mut-gone-number": "G1",
    "mut-gone-held": "G3",
    "mut-gone-look": "A6",
    "mut-gone-look-lax": "G2",
    "mut-gone-highest": "G1",
    "mut-gone-closed": "G2",
    "mut-gone-carried": "G4",
    "mut-gone-fence": "A6",
    "mut-gone-fence-lax": "G2",
    "mut-sink-flush": "K1",
    "mut-sink-back": "A6",
    "mut-sink-account": "K1",
    "mut-sink-tell": "K4",
    "mut-sink-reopen": "K1",
    "mut-sink-heard": "K2",
    "mut-sink-own": "K2",
    "mut-sink-map": "A6",
    "mut-sink-least": "K3",
    "mut-sink-given": "K3",
    "mut-sink-look": "K3",
    "mut-sink-fence": "A6",
    "mut-sink-shut": "K2",
}


def model(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the model's command."""
    return subprocess.run(
        [sys.executable, str(MODEL), *arguments], capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.parametrize("name", HOLDS)
def test_holds_in_a_complete_search(name: str) -> None:
    done = model(name, "--json")
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["violations"] == []
    assert result["complete"] is True
    assert result["as_expected"] is True
    assert result["states"] > 1_000  # a model that cannot move holds everything
    assert done.returncode == 0


@pytest.mark.parametrize(("name", "violation"), FAILS.items())
def test_a_broken_rule_is_caught(name: str, violation: str) -> None:
    done = model(name, "--json")
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert result["expected"] == violation
    assert violation in {v.split()[0] for v in result["violations"]}
    assert done.returncode == 0


def test_these_are_the_short_run() -> None:
    listed = {line.split()[0] for line in model("--list").stdout.splitlines() if line.endswith("(short)")}
    assert listed == {*HOLDS, *FAILS}


def test_an_unfinished_search_is_a_surprise() -> None:
    done = model("core-small", "--seconds=0.01", "--json")
    assert json.loads(done.stdout)["as_expected"] is False
    assert done.returncode == 1


def test_a_trace_ends_in_its_violation() -> None:
    lines = model("mut-rw-sizes", "-t").stdout.splitlines()
    assert lines[-2].split("***")[1].startswith(" R2 ")
    assert sum("broker: crashes" in line for line in lines) == 1


def test_an_unknown_name_is_refused() -> None:
    done = model("no-such-scenario")
    assert done.returncode == 2
    assert "no-such-scenario" in done.stderr


def test_a_writer_that_shows_that_it_lives_is_never_taken_for_gone() -> None:
    done = subprocess.run(
        [sys.executable, str(MODEL), "--pingpong"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.count("two daemons")) == (0, 8), done.stdout
