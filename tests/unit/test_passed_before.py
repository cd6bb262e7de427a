"""A test that depends on a few files alone is taken out only while all of them are as they were when it passed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.passedbefore import content_digest

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[2]
TEST = """
import pathlib, pytest
@pytest.mark.depends_only_on({place!r})
def test_it():
    assert "good" in pathlib.Path({place!r}, "facts.py").read_text()
def test_another():
    pass
"""
Run = Callable[..., str]


@pytest.fixture
def place(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the test depends on: a directory beside its module, with a cache of its own."""
    monkeypatch.setenv("TIERED_TEST_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.delenv("TIERED_NO_STAMPS", raising=False)
    made = pytester.mkdir("place")
    pytester.makepyfile(test_module=TEST.format(place=str(made)))
    return made


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """A run of pytest on the module, in this process; what it says."""

    def call(*words: str) -> str:
        content_digest.cache_clear()
        return str(pytester.runpytest_inprocess("-p", "tests.kit.passedbefore", *words).stdout)

    return call


def test_a_pass_is_remembered_and_named_until_a_file_changes(
    place: Path, run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, module = place / "facts.py", pytester.path / "test_module.py"
    facts.write_text("bad\n")
    assert "1 failed, 1 passed" in run()
    assert "1 failed, 1 passed" in run(), "a failure leaves no stamp"
    facts.write_text("good\n")
    assert "2 passed" in run()
    cached = run()
    assert "1 passed, 1 deselected" in cached
    assert "CACHED: 1 tests, the same content passed before" in cached
    assert "test_module.py: test_it" in cached
    with monkeypatch.context() as patch:
        patch.setenv("TIERED_NO_STAMPS", "1")
        assert "2 passed" in run()
    module.write_text(module.read_text() + "\n")
    assert "2 passed" in run(), "the test itself is another"
    facts.with_name("more.py").write_text("")
    assert "2 passed" in run(), "a file more"


def test_workers_take_out_what_the_controlling_process_knew(place: Path, run: Run) -> None:
    (place / "facts.py").write_text("good\n")
    assert "2 passed" in run("-n", "1")
    cached = run("-n", "1")
    assert "1 passed" in cached
    assert "test_module.py: test_it" in cached
