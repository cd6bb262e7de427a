"""``tiered kv snapshot``: exported, listed, imported into an empty store, deleted, and what is refused."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.command import Done, tiered
from tests.kit.kvscene import NAMESPACE, KeyValueScene


@pytest.fixture
def scene(tmp_path: Path) -> KeyValueScene:
    made = KeyValueScene(tmp_path)
    made.puts(20)
    made.archive()
    with ExitStack() as stack:
        made.follow(made.view(stack))
    return made


def snapshot(scene: KeyValueScene, *words: object) -> Done:
    sets = (
        "--archive",
        f"file://{scene.directory}/archive",
        "--set",
        f"kv.state_directory={scene.directory}/kv",
    )
    return tiered("kv", "snapshot", *words, *sets, "--json")


def rows(done: Done) -> list[dict[str, object]]:
    assert done.code == 0, done.err
    found: list[dict[str, object]] = done.json
    return found


def test_exported_imported_and_gone_on_with(scene: KeyValueScene) -> None:
    [made] = rows(snapshot(scene, "export"))
    assert made["entries"] == sum(map(len, scene.values.values()))
    assert rows(snapshot(scene, "list")) == [made]
    scene.lose_store()
    assert rows(snapshot(scene, "import", str(made["id"])[:8])) == [made]
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.check(view)
        scene.puts(3, 20)
        scene.follow(view)
        scene.check(view)


def test_what_is_refused(scene: KeyValueScene) -> None:
    assert snapshot(scene, "import").code == 5
    [made] = rows(snapshot(scene, "export"))
    full = snapshot(scene, "import")
    assert (full.code, "empty store" in full.err) == (3, True)
    assert snapshot(scene, "import", "ffff").code == 5
    assert snapshot(scene, "export", "--namespace", "never").code == 3
    assert snapshot(scene, "export", "--namespace", "n%").code == 2
    with ExitStack() as stack:
        scene.lock(stack)
        held = snapshot(scene, "export")
        assert (held.code, str(scene.directory) in held.err) == (3, True)
    assert rows(snapshot(scene, "list")) == [made]


def test_one_namespace_is_not_taken_for_all(scene: KeyValueScene) -> None:
    [made] = rows(snapshot(scene, "export", "--namespace", NAMESPACE))
    assert (made["namespace"], made["entries"]) == (NAMESPACE, len(scene.values[NAMESPACE]))
    scene.lose_store()
    assert snapshot(scene, "import").code == 5
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.check(view)


def test_the_newest_stay(scene: KeyValueScene) -> None:
    made = [rows(snapshot(scene, "export"))[0]["id"] for _ in range(3)]
    assert [row["id"] for row in rows(snapshot(scene, "delete", "--keep", 1))] == made[:2]
    assert [row["id"] for row in rows(snapshot(scene, "list"))] == made[2:]
