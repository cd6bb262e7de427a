"""Which tests run on one worker of pytest-xdist, and which are scenes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import SHARING, scope

TESTS = Path(__file__).resolve().parents[1]
E2E = TESTS / "e2e"
AGEING = re.compile(
    r"^ *from tests\.kit\.(aged|merging|sealing|collecting)\b|\barchive[_]once\b", re.MULTILINE
)
"""What lets an archive age, and what makes one by the command."""


def test_modules_of_a_row_are_one_scope() -> None:
    scopes = [{scope(f"tests/e2e/test_gateway_{name}.py::test_a[b/c]") for name in row} for row in SHARING]
    assert [len(one) for one in scopes] == [1] * len(SHARING)
    assert len(set.union(*scopes)) == len(SHARING)
    assert scope("tests/e2e/test_gateway_hop.py::test_a") == "tests/e2e/test_gateway_hop.py"
    assert scope("tests/fault/test_rewind.py::test_a") == "tests/fault/test_rewind.py::test_a"


def test_every_module_that_reads_a_scene_of_the_session_is_in_a_row() -> None:
    """One that is in none would make a scene of its own on whichever worker it comes to."""
    reading = set()
    for path in E2E.glob("test_*.py"):
        text = path.read_text()
        if re.search(r"\bcold(_49)?: ColdScene|getfixturevalue", text) and "cold_scene(" not in text:
            reading.add(path.stem.removeprefix("test_gateway_"))
    named = [name for row in SHARING for name in row]
    assert sorted(named) == sorted(reading)


def test_no_unit_lets_an_archive_age_or_makes_one_by_the_command() -> None:
    """Such a test is a scene, and takes as long (``tests/README.md``)."""
    assert [path.name for path in (TESTS / "unit").glob("test_*.py") if AGEING.search(path.read_text())] == []
    assert sum(AGEING.search(path.read_text()) is not None for path in (TESTS / "scenes").glob("*.py")) > 40
