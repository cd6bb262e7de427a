"""The benchmark command: names are checked, and one tiny benchmark runs to a table row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import cases, parse
from tests.bench.run import generate, once


def test_names_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["backlog", "--quick"]).names == ["backlog"]
    assert parse([]).names == []
    with pytest.raises(SystemExit):
        parse(["backlogs"])
    told = capsys.readouterr().err
    listed = (
        "there are backlog, cold-read, filtered-read, first-message, gateway-cold, gateway-hop, idle, latency"
    )
    assert listed in " ".join(told.split())
    assert all(name in told for name in cases(True))
    assert list(cases(True)) == list(cases(False))


def test_a_measured_run_archives_and_counts(tmp_path: Path) -> None:
    end = generate(tmp_path / "store", 500, 4)
    assert end > 500 * 1024
    measured = once(tmp_path / "store", f"file://{tmp_path / 'archive'}", tmp_path / "state")
    assert measured.seconds > 0
    assert measured.peak_bytes > 10 << 20
    assert any((tmp_path / "archive").rglob("archive.json"))
