"""Which tests run on one worker of pytest-xdist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import SHARING, scope

E2E = Path(__file__).resolve().parents[1] / "e2e"


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
