"""Every verb that reads, as a stranger meets it: topics of any name, parts of the archive damaged or gone.

What is wrong is said in JSON where JSON was asked for, with an exit code that ``tiered --help`` lists.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.command import Done, archive_once, tiered
from tests.kit.pipeline import Crafted
from tiered.cli.verbs import EXIT_CODES
from tiered.errors import EXIT_UNEXPECTED

HOSTILE = ("N" * 127, "a%b%2Fc", "Ünï✓", "..", "x/../y", "%RETRY%g", "-flag", "\u202eevil", "a\nb", "a b")
OF_A_TOPIC = (
    ("queues",), ("read", "--queue", 0), ("read", "--queue", 0, "--compacted"), ("query", "--key", "k"),
    ("query", "--unique-key", "u"), ("query", "--queue", 0, "--time", 1),
)  # fmt: skip
OF_ALL = (
    ("status",), ("topics",), ("queues",), ("query", "--msg-id", "7F00000100002A9F0000000000000000"),
    ("verify",), ("verify", "--deep"), ("scrub", "--once", "--deep"), ("maintain", "--dry-run"), ("retain", "--dry-run"),
    ("gc", "--dry-run"), ("hold", "list"), ("table", "list"), ("key", "list"), ("doctor",), ("repair",),
)  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("strangers")
    broker = Crafted(directory / "store", file_bytes=1 << 16)
    for name in HOSTILE:
        broker.send(name, 0, b"body", properties={"KEYS": "k", "UNIQ_KEY": "u"})
    assert archive_once(broker.store, directory / "archive", "hold.max_disk_percent=99").code == 0
    return directory / "archive"


def objects(found: Done) -> list[object]:
    """What was answered: one JSON document, or one a line."""
    text = found.text if found.text.strip() else found.err
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def test_topics_of_any_name_are_found_by_every_verb_that_takes_one(archive: Path) -> None:
    place = ("--archive", f"file://{archive}")
    listed = tiered("topics", *place, "--json")
    assert {row["topic"] for row in listed.json} == set(HOSTILE)
    assert "\u202e" not in tiered("topics", *place).text, "nor does one turn the line around"
    for verb, *words in OF_A_TOPIC:
        for name in HOSTILE:
            found = tiered(verb, *place, f"--topic={name}", *words, "--json")
            assert found.code == 0, (verb, name, found.err)
            assert objects(found)
        for absent, code in (("", 5), ("..\udc80", 2)):
            found = tiered(verb, *place, f"--topic={absent}", *words, "--json")
            assert (found.code, json.loads(found.err)["error"]["exit_code"]) == (code, code), (verb, absent)
    found = tiered("query", *place, "--topic", "..", "--key", "\udcff", "--json")
    assert found.code == 2
    assert "--key is not text" in found.err


def flipped(of: str) -> Callable[[Path], None]:
    def flip(root: Path) -> None:
        [*_, path] = sorted(path for path in root.rglob("*") if path.is_file() and f"{of}" in str(path))
        data = bytearray(path.read_bytes())
        data[-20] ^= 0xFF
        path.unlink()
        path.write_bytes(data)

    return flip


def emptied(root: Path) -> None:
    [*_, path] = sorted(path for path in root.rglob("*") if path.is_file() and "commit" in str(path))
    path.unlink()
    path.write_bytes(b"")


def gone(root: Path) -> None:
    shutil.rmtree(root)


def a_file(root: Path) -> None:
    shutil.rmtree(root)
    root.write_text("x")


@pytest.mark.parametrize(
    "damage", [flipped("archive.json"), flipped("commit"), emptied, gone, a_file],
    ids=["identity", "commit", "empty commit", "nothing there", "a file"],
)  # fmt: skip
def test_whatever_is_damaged_every_verb_says_so_in_json(
    archive: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    root = tmp_path / "archive"
    shutil.copytree(archive, root)
    damage(root)
    state = ("--set", f"state.directory={tmp_path / 'state'}")
    quiet = 0
    for verb, *words in (*OF_ALL, *((verb, "--topic", "a b", *words) for verb, *words in OF_A_TOPIC)):
        found = tiered(verb, "--archive", f"file://{root}", *words, *state, "--json")
        assert found.code in set(EXIT_CODES) - {EXIT_UNEXPECTED}, (verb, words, found.err)
        assert objects(found), (verb, words)
        quiet += found.code == 0
    assert quiet <= 2, "lists of holds and tables need no commit"
