"""``tiered gen`` writes a store that the codec reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiered.cli import main as cli
from tiered.codec.record.frame import scan


def records(store: Path) -> int:
    count = 0
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        count += len(scan(data, base=int(path.name), max_record_bytes=1 << 24))
    return count


def test_a_store_is_written_and_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    args = [
        "gen",
        "--store",
        str(store),
        "--messages",
        "300",
        "--topics",
        "3",
        "--queues",
        "2",
        "--body-bytes",
        "1KiB",
    ]
    args += ["--file-bytes", "128KiB", "--seed", "5", "--json"]
    assert cli.main(args) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["messages"], told["queues"], told["start_offset"]) == (300, 6, 0)
    assert records(store) == 300
    assert len(list((store / "commitlog").iterdir())) > 1, "files roll"
    assert len(list((store / "consumequeue").glob("*/*"))) == 6
    assert cli.main(args) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["start_offset"] == told["end_offset"]
    assert records(store) == 600


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_store_is_refused(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variable that was not set must not become the present directory."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["gen", "--store", empty, "--messages", "1"]) == 2
    assert "--store is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for args, named in (
        (["--store", str(tmp_path), "--body-bytes", "4Q"], "--body-bytes"),
        (
            ["--store", str(tmp_path), "--body-bytes", "1MiB", "--file-bytes", "64KiB", "--messages", "1"],
            "larger",
        ),
    ):
        assert cli.main(["gen", *args]) == 2
        captured = capsys.readouterr()
        assert named in captured.err
        assert captured.out == ""
    assert cli.main(["gen", "--store", str(blocked)]) != 0
    assert "Traceback" not in capsys.readouterr().err
