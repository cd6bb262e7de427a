"""``--as-of``: an archive as it was after a commit, or at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted
from tiered.text.human import second

THEN_S = 1_700_000_000


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a daemon; every commit is an hour younger than the one before it, by the file system's clock."""
    place = tmp_path_factory.mktemp("as-of")
    broker, made = Crafted(place / "store"), place / "archive"
    for body in (b"one", b"two"):
        broker.send("Orders", 0, body)
        assert archive_once(broker.store, made, "hold.max_disk_percent=99").code == 0
    for number, commit in enumerate(sorted(made.glob("*/*/commit/*/*"))):
        os.utime(commit, (THEN_S + 3600 * number,) * 2)
    return made


def offsets(archive: Path, as_of: object) -> list[int]:
    words = ("read", "--archive", f"file://{archive}", "--topic", "Orders", "--queue", 0, "--json")
    done = tiered(*words, "--as-of", as_of)
    assert done.code == 0, done.err
    return [row["queue_offset"] for row in done.rows]


def commits(archive: Path) -> int:
    return len(list(archive.glob("*/*/commit/*/*")))


def test_by_commit_and_by_time_are_one(archive: Path) -> None:
    last = commits(archive) - 1
    seen = []
    for seq in range(last + 1):
        if seq < 2:
            continue  # no message yet: reading a queue that is not there is an error
        by_commit = offsets(archive, seq)
        assert by_commit == offsets(archive, second((THEN_S + 3600 * seq) * 1000))
        assert by_commit == offsets(archive, second((THEN_S + 3600 * seq + 3599) * 1000))
        seen.append(by_commit)
    assert seen[0] == [0]
    assert seen[-1] == [0, 1]


def test_before_the_first_commit_the_oldest_time_is_named(archive: Path) -> None:
    done = tiered("status", "--archive", f"file://{archive}", "--as-of", second((THEN_S - 1) * 1000))
    assert done.code == 5
    assert f"{second(THEN_S * 1000)} is the oldest" in done.err
    done = tiered("status", "--archive", f"file://{archive}", "--as-of", 99)
    assert done.code == 5
    assert f"commits 0 to {commits(archive) - 1}" in done.err


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "1969-01-01T00:00:00+00:00"])
def test_what_is_neither_is_refused(archive: Path, text: str) -> None:
    done = tiered("status", "--archive", f"file://{archive}", f"--as-of={text}")
    assert done.code == 2
    assert "neither a commit's number nor a time" in done.err
