"""A tier without its counterpart is reported by name, never silently skipped, and may not be absent in CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import TIERS, put_first, pytest_itemcollected
from tests.kit import cache
from tests.kit.install import InstallError, install, main
from tests.mutants.__main__ import BARE

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/integration/test_kit_broker.py"
COUNT = (ROOT / TESTS).read_text().count("\ndef test_")


def run_pytest(
    empty_cache: Path, *arguments: str, tests: str = TESTS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest on tests that need a broker (or ``tests``), with a cache in which nothing is installed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CI", "TIERED_", "PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_timeout", tests, *arguments],
        cwd=ROOT,
        env={**clean, **BARE, "TIERED_TEST_CACHE": str(empty_cache), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("-p", "xdist", "-n", "1", "--dist", "loadgroup")])
def test_an_absent_tier_is_named_and_the_run_is_green(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("NOT RUN")]
    assert line.startswith(
        f"NOT RUN: tier 'broker' ({COUNT} tests): rocketmq-5.5.0, rocketmq-4.9.7 not installed in "
    )
    assert line.endswith("→ make test-install")
    assert "skipped" not in done.stdout


def test_tests_taken_out_by_hand_are_not_reported(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "-m", "not broker")
    assert "NOT RUN" not in done.stdout
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("required", ["CI", "TIERED_REQUIRE_ALL"])
def test_where_all_is_required_a_failed_installation_fails_each_test(tmp_path: Path, required: str) -> None:
    done = run_pytest(tmp_path, **{required: "1", "PATH": "/nowhere"})
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "tier 'broker' is required here and could not be installed: the command 'mvn'" in done.stdout
    assert f"{COUNT} errors" in done.stdout


def test_a_tier_that_the_machine_refuses_is_named_too(tmp_path: Path) -> None:
    """Without ``unshare`` root can make nothing read-only; anybody else still can, with mode bits."""
    tests = "tests/e2e/test_read_only.py"
    done = run_pytest(tmp_path, "-k", "state-once or once-state", tests=tests, PATH="/nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    named = [line for line in done.stdout.splitlines() if line.startswith("NOT RUN")]
    if os.geteuid() == 0:
        assert named == [
            "NOT RUN: tier 'readonly' (1 tests): user namespaces are refused here, and root may write to everything"
        ]
        required = run_pytest(tmp_path, "-k", "once-state", tests=tests, PATH="/nowhere", CI="1")
        assert required.returncode == pytest.ExitCode.TESTS_FAILED
        assert "tier 'readonly' is required here and cannot be had: user namespaces" in required.stdout
    else:
        assert named == []


def test_the_installer_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIERED_TEST_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["versitygw"]) == 1
    assert "the command 'go' is not on PATH; install Go" in capsys.readouterr().err
    assert not cache.installed("versitygw")
    with pytest.raises(InstallError, match="unknown counterpart 'minio'; known: rocketmq-"):
        install("minio")


def test_what_is_installed_is_left_alone_and_what_is_half_installed_counts_as_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIERED_TEST_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    binary = cache.versitygw_binary()
    binary.parent.mkdir(parents=True)
    binary.touch()
    assert not cache.installed("versitygw")
    mark = cache.marker("versitygw")
    mark.write_text('{"version": "v0"}')
    assert not cache.installed("versitygw")
    mark.write_text(cache.expected_marker(cache.COUNTERPARTS["versitygw"]))
    assert main(["versitygw"]) == 0
    assert "versitygw: already in" in capsys.readouterr().out


def test_the_readme_names_every_module_of_the_kit_and_every_tier() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    kit = {path.name for path in (ROOT / "tests" / "kit").glob("*.py")} - {"__init__.py"}
    assert {name for name in kit if f"`{name}`" not in text} == set()
    assert all(f"| `{tier}` |" in text for tier in TIERS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_coverage_rests_in_properties_and_histories_after_the_first(pytester: pytest.Pytester) -> None:
    history = "@pytest.mark.history\n@pytest.mark.parametrize('seed', range(3))\ndef test_life(seed): pass"
    drawn = "@given(none())\ndef test_property(_): pass"
    source = ["import pytest", "from hypothesis import given", "from hypothesis.strategies import none"]
    marked = {}
    for item in pytester.getitems("\n".join([*source, "def test_plain(): pass", drawn, history])):
        pytest_itemcollected(item)
        marked[item.name] = item.get_closest_marker("no_cover") is not None
    resting = {"test_property", "test_life[1]", "test_life[2]"}
    assert {name for name, rests in marked.items() if rests} == resting
    assert marked.keys() - resting == {"test_plain", "test_life[0]"}


def test_modules_named_first_come_first() -> None:
    items: list[Any] = [SimpleNamespace(path=Path(f"tests/unit/test_{name}.py")) for name in "abcabd"]
    put_first(items, ["c", "b", "x"])
    assert [item.path.stem[-1] for item in items] == list("cbbaad")
    put_first(items, [""])
    assert [item.path.stem[-1] for item in items] == list("cbbaad")


def test_the_makefile_puts_modules_first_that_are_there() -> None:
    text = (ROOT / "Makefile").read_text()
    variables = dict(re.findall(r"^(\w+) := (.*)$", text, re.MULTILINE))
    named = [
        name
        for words in re.findall(r"--first (\S+)", text)
        for name in re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], words).split(",")
    ]
    assert len(named) >= 8
    assert [name for name in named if not list(ROOT.glob(f"tests/*/test_{name}.py"))] == []
