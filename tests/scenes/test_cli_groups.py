"""``tiered groups``: how far each group is, beside what is archived."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted
from tiered.daemon.groupbook import GroupKeeper, groups_directory, groups_stamp
from tiered.metadata.open import open_redo
from tiered.source.grouplists import GroupConfig, GroupOffset


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, str]:
    """A broker's store with its archive; of its log the oldest files were deleted since."""
    made, archive = Crafted(tmp_path / "store", file_bytes=1 << 12), tmp_path / "archive"
    for number in range(60):
        made.send("Orders", 0, b"%d" % number * 50)
    assert archive_once(made.store, archive, "hold.max_disk_percent=99").code == 0
    log = sorted((Path(made.store) / "commitlog").iterdir())
    for path in log[: len(log) // 2]:
        path.unlink()
    return Path(made.store), f"file://{archive}"


def test_offsets_beside_what_is_archived(place: tuple[Path, str]) -> None:
    done = tiered("groups", "--archive", place[1], "--store", place[0])
    assert done.code != 0
    assert "not kept here" in done.err
    archive_id = bytes.fromhex(tiered("status", "--archive", place[1], "--json").json["archive_id"])
    store = open_redo(
        "rocksdb", groups_directory(f"{place[0]}.tiered"), 1 << 20, stamp=groups_stamp(archive_id)
    )
    told = [
        GroupOffset("late", "Orders", 0, 1),
        GroupOffset("near", "Orders", 0, 58),
        GroupOffset("done", "Orders", 0, 60),
    ]
    GroupKeeper(store).update(
        iter([*told, GroupOffset("other", "Gone", 3, 4), GroupConfig("new", b'{"retryMaxTimes":16}')]), 7
    )
    done = tiered("groups", "--archive", place[1], "--store", place[0], "--json")
    assert done.code == 0, done.err
    rows = {row["group"]: row for row in done.json}
    assert {name: (row["behind"], row["where"]) for name, row in rows.items()} == {
        "late": (59, "archive"), "near": (2, "broker"), "done": (0, "at the end"), "other": (None, "not archived"),
        "new": (None, None),
    }  # fmt: skip
    assert rows["late"]["archived_max"] == 60
    assert [*rows] == ["done", "late", "near", "new", "other"]
    page = tiered(
        "groups", "--archive", place[1], "--store", place[0], "--prefix", "n", "--limit", 1, "--json-lines"
    )
    assert [json.loads(line)["group"] for line in page.out.splitlines()] == ["near"]
    store.close()
    apart = tiered(
        "groups", "--archive", place[1], "--state", f"{place[0]}.tiered", "--after", "done", "--json"
    )
    assert (apart.json[0]["group"], apart.json[0]["where"]) == ("late", None)
    page = tiered("groups", "--archive", place[1], "--store", place[0], "--limit", 2)
    assert "--after late" in page.err + page.text
