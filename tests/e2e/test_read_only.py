"""A read-only archive, state or hold directory: one paragraph that names it, and nothing is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted
from tests.kit.readonly import read_only

pytestmark = pytest.mark.readonly

EXPECTED = {
    "archive": ("give the daemon's user write access", "permission to create"),
    "state": ("state.directory", "a directory this user can write to"),
    "hold": ("hold.directory", "a hard link in the hold"),
}


@pytest.mark.parametrize("what", sorted(EXPECTED))
@pytest.mark.parametrize("flags", [("--once",), ()], ids=["once", "daemon"])
def test_a_read_only_directory_is_named(tmp_path: Path, what: str, flags: tuple[str, ...]) -> None:
    broker = Crafted(tmp_path / "store", file_bytes=1 << 16)
    for number in range(60):
        broker.send(body=b"number %d" % number)
    places = {name: tmp_path / name for name in EXPECTED}
    for place in places.values():
        place.mkdir()
    command = (
        sys.executable, "-m", "tiered.cli.main", "run", *flags, "--store", str(broker.store),
        "--archive", f"file://{places['archive']}", "--state", str(places["state"]),
        "--set", f"hold.directory={places['hold']}", "--set", "web.port=-1", "--set", "log.level=error",
    )  # fmt: skip
    with read_only(places[what]) as prefix:
        done = subprocess.run((*prefix, *command), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == {"archive": 4, "state": 2, "hold": 3}[what], done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    error, remedy = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert remedy.startswith("  → ")
    for words in (places[what], "expected=", "found=", *EXPECTED[what]):
        assert str(words) in done.stderr
    assert list(places[what].iterdir()) == []
    url = f"file://{places['archive']}"
    sets = (f"state.directory={places['state']}", f"hold.directory={places['hold']}")
    assert archive_once(broker.store, url, *sets).code == 0, "it goes on once the directory can be written"
    assert tiered("verify", "--deep", "--archive", url, "--json").json["messages"] == 60
