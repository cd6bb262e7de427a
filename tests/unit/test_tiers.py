"""A tier without its counterpart is reported by name, never silently skipped, and may not be absent in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import cache
from tests.kit.install import InstallError, install, main

ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/integration/test_kit_broker.py"


def run_pytest(empty_cache: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on tests that need a broker, with a cache in which nothing is installed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CI", "TIERED_", "PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", TESTS, *arguments],
        cwd=ROOT,
        env={**clean, "TIERED_TEST_CACHE": str(empty_cache), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("-n", "1", "--dist", "loadgroup")])
def test_an_absent_tier_is_named_and_the_run_is_green(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("NOT RUN")]
    assert line.startswith(
        "NOT RUN: tier 'broker' (3 tests): rocketmq-5.5.0, rocketmq-4.9.7 not installed in "
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
    assert "3 errors" in done.stdout


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
