"""``tiered scrub``: a walk now, what a daemon noted, exit codes; a daemon scrubs by itself and says what it found."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from copy import copy
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.command import tiered
from tests.kit.daemonproc import Daemon
from tests.scenes.test_maintain import Place
from tiered.archive.care.notes import NOTES_FILE, DamagedKey, Notebook

EAGER = {"scrub.list_interval_ms": 1000, "scrub.read_interval_ms": 1000}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("scrub"))
    assert place.run("--once").code == 0
    return place


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Path:
    """A copy of the archive."""
    copied = tmp_path / "archive"
    shutil.copytree(made.archive.removeprefix("file://"), copied)
    return copied


def merged(archive: Path) -> Path:
    """A merged object: the largest there is."""
    return max((archive / KEYS.root / "data").iterdir(), key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


def test_a_walk_now(place: Path) -> None:
    url = f"file://{place}"
    foretold = tiered("scrub", "--archive", url, "--once", "--deep", "--dry-run", "--json")
    assert foretold.code == 0, foretold.err
    found = tiered("scrub", "--archive", url, "--once", "--deep", "--json")
    assert (found.code, found.json["verdict"], found.json["damage"]) == (0, "sound", [])
    assert found.json["read_bytes"] >= foretold.json["bytes_to_read"] > 0
    flip(merged(place))
    assert tiered("scrub", "--archive", url, "--once").code == 0, "the listing is as it was"
    found = tiered("scrub", "--archive", url, "--once", "--deep", "--json")
    assert (found.code, found.json["verdict"]) == (1, "DAMAGED")
    assert [row["key"] for row in found.json["damage"]] == [str(merged(place).relative_to(place))]
    assert "fails its checksum" in found.json["damage"][0]["what"]
    said = tiered("scrub", "--archive", url, "--once", "--deep")
    assert said.code == 1
    assert merged(place).name in said.out.decode()
    merged(place).unlink()
    assert tiered("scrub", "--archive", url, "--once").code == 1


def test_a_daemon_scrubs_by_itself_and_what_it_found_outlives_it(
    made: Place, place: Path, tmp_path: Path
) -> None:
    url, state = f"file://{place}", tmp_path / "state"
    shutil.copytree(made.state, state)
    damaged = merged(place)
    flip(damaged)
    daemon = Daemon(tmp_path, made.store, url, state=state, **EAGER).start()
    try:
        told, problem = daemon.status(), None
        deadline = time.monotonic() + 60
        while (
            time.monotonic() < deadline and not problem
        ):  # which is said when the turn is over, behind the damage
            time.sleep(0.2)
            told = daemon.status()
            problem = told["maintenance"]["tasks"].get("scrub", {}).get("problem")
        assert told["scrub"]["damaged_keys"] == 1
        assert told["scrub"]["damage"][0]["key"] == str(damaged.relative_to(place))
        assert "tiered scrub lists all" in (problem or "")
        assert told["ready"], "archiving goes on"
    finally:
        daemon.stop()
    kept = tiered("scrub", "--archive", url, "--state", state, "--json")
    assert (kept.code, kept.json["damaged_keys"]) == (1, 1)
    status = tiered("status", "--archive", url, "--state", state, "--json")
    assert status.json["scrub"]["damaged_keys"] == 1


def test_what_a_daemon_found_damaged_is_not_named_for_deletion_by_a_verb(
    made: Place, place: Path, tmp_path: Path
) -> None:
    """No commit names it, and it may be all that is left of a lost one."""
    url, state = f"file://{place}", tmp_path / "state"
    shutil.copytree(made.state, state)
    names = [f"0000000001-00000000-0000-4000-8000-00000000000{n}" for n in (1, 2)]
    for name in names:
        (place / KEYS.root / "data" / name).write_bytes(b"of a lost commit, or of a writer that died")
    archive_id = bytes.fromhex(json.loads((place / KEYS.root / "archive.json").read_bytes())["archive_id"])
    book = Notebook(state, archive_id)
    book.notes = book.notes.damaged(DamagedKey(f"data/{names[0]}", "an object is damaged", "", None, 1, 1))
    book.keep()
    words = ("gc", "--archive", url, "--state", state, "--json")
    found = tiered(*words, "--dry-run")
    assert (found.code, found.json["orphans"]) == (0, 1), found.err
    done = tiered(*words)
    assert (done.code, done.json["gc"]["named_keys"]) == (0, 1 + found.json["unreferenced_objects"]), done.err
    assert tiered(*words, "--dry-run").json["orphans"] == 0


def test_nothing_noted_is_said(place: Path, tmp_path: Path) -> None:
    url = f"file://{place}"
    found = tiered("scrub", "--archive", url, "--state", tmp_path)
    assert found.code == 2
    assert "--once" in found.err
    (tmp_path / NOTES_FILE).write_text("nonsense")
    assert tiered("scrub", "--archive", url, "--state", tmp_path).code == 2
    assert tiered("scrub", "--archive", url, "--deep").code == 2


def test_a_repair_from_a_copy(made: Place, place: Path, tmp_path: Path) -> None:
    url, state = f"file://{place}", tmp_path / "state"
    shutil.copytree(made.state, state)
    words = ("scrub", "--archive", url, "--state", state, "--once", "--deep", "--repair", "--json")
    words = (*words, "--copy", made.archive)
    sound = tiered(*words)
    assert (sound.code, sound.json["verdict"]) == (0, "sound")
    flip(merged(place))
    plan = tiered(*words, "--dry-run")
    assert [row["how"] for row in plan.json] == ["written anew"]
    assert plan.code == 1
    repaired(made, url, words)
    assert tiered("scrub", "--archive", url, "--once").code == 0


def repaired(made: Place, url: str, words: Sequence[object]) -> None:
    """The verb mends, and what it leaves is sound and reads as the archive that nothing happened to."""
    done = tiered(*words)
    assert done.code == 0, done.err
    assert done.json["mend"]["mended_runs"] > 0
    assert tiered("verify", "--archive", url, "--deep").code == 0
    other = copy(made)
    other.archive = url
    assert other.read() == made.read()


@pytest.mark.parametrize("copied", [False, True])
def test_a_repair_from_objects_that_are_not_collected_yet(
    made: Place, place: Path, tmp_path: Path, copied: bool
) -> None:
    """Without copy and commitlog; and with a copy that lacks the object."""
    url, state = f"file://{place}", tmp_path / "state"
    shutil.copytree(made.state, state)
    merged(place).unlink()
    words = ["scrub", "--archive", url, "--state", state, "--once", "--repair", "--json"]
    if copied:
        shutil.copytree(place, tmp_path / "copy")
        words += ["--copy", f"file://{tmp_path / 'copy'}"]
    repaired(made, url, words)


def test_a_repair_from_the_brokers_commitlog(made: Place, place: Path, tmp_path: Path) -> None:
    url, state = f"file://{place}", tmp_path / "state"
    shutil.copytree(made.state, state)
    flip(merged(place))
    words = (
        "scrub",
        "--archive",
        url,
        "--state",
        state,
        "--once",
        "--deep",
        "--repair",
        "--store",
        made.store,
    )
    repaired(made, url, (*words, "--json"))
