"""``tiered maintain``: what there is to do, done once; who it makes way for; the same messages before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import Stage, aged_directory
from tests.kit.command import Done, archive_once, tiered
from tests.kit.pipeline import PREPARED
from tiered.archive.log.localfiles import check_fence
from tiered.daemon.lock import StateLock

SMALL = ("dispatch.group_commit_bytes=65536", "dispatch.block_bytes=65536")
QUIET = [word for value in ("web.port=-1", "log.level=error", *SMALL) for word in ("--set", value)]


class Place:
    """A generated store and its archive."""

    def __init__(self, directory: Path) -> None:
        self.store, self.archive = directory / "store", f"file://{directory}/archive"
        self.state = Path(f"{self.store}.tiered")
        assert tiered("gen", "--store", self.store, "--messages", 600, "--topics", 2).code == 0
        made = archive_once(self.store, self.archive, "hold.max_disk_percent=99", *SMALL)
        assert made.code == 0, made.err

    def run(self, *words: object) -> Done:
        return tiered("maintain", "--store", self.store, "--archive", self.archive, *QUIET, *words)

    def status(self) -> dict[str, int]:
        found: dict[str, int] = tiered("status", "--archive", self.archive, "--json").json
        return found

    def read(self) -> list[bytes]:
        """Every queue, as the broker wrote it."""
        queues = tiered("queues", "--archive", self.archive, "--json").json
        return [
            tiered(
                "read",
                "--archive",
                self.archive,
                "--topic",
                q["topic"],
                "--queue",
                q["queue_id"],
                "--format",
                "raw",
            ).out
            for q in queues
        ]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("maintain"))


def test_a_dry_run_says_what_a_run_then_does_and_messages_stay_what_they_are(fresh: Place) -> None:
    before, read = fresh.status(), fresh.read()
    plan = fresh.run("--dry-run", "--json")
    assert plan.code == 0, plan.err
    assert fresh.status() == before, "nothing is written"
    done = fresh.run("--once", "--json")
    assert done.code == 0, done.err
    merged, planned = done.json["merge"], plan.json["merge"]
    assert merged["complete"]
    assert (merged["turns"], merged["merged_runs"]) == (planned["jobs"], planned["runs"])
    after = fresh.status()
    assert after["runs"] == merged["made_runs"] < before["runs"]
    assert after["messages"] == before["messages"]
    assert after["seq"] == before["seq"] + 1 + merged["turns"], "an epoch, and a commit for each job"
    assert fresh.read() == read
    assert tiered("verify", "--archive", fresh.archive, "--deep").code == 0
    head = fresh.status()["seq"]
    again = fresh.run("--once", "--json")
    assert again.json["merge"]["turns"] == 0
    assert fresh.status()["seq"] == head, "nothing to do is no commit"


def test_it_makes_way_for_the_daemon_of_its_state_directory(fresh: Place) -> None:
    with StateLock(fresh.state):
        refused = fresh.run("--once", "--json")
        assert refused.code == 3
        assert "does this by itself" in refused.error["message"]
        assert fresh.run("--dry-run").code == 0


def test_the_daemon_goes_on_behind_it(fresh: Place) -> None:
    assert tiered("gen", "--store", fresh.store, "--messages", 50, "--topics", 2).code == 0
    assert archive_once(fresh.store, fresh.archive, "hold.max_disk_percent=99").code == 0
    assert fresh.status()["messages"] == 650
    check_fence(fresh.state, take_over=False)
    assert fresh.run("--once").code == 0
    assert tiered("verify", "--archive", fresh.archive, "--deep").code == 0


def test_what_is_missing_is_named(fresh: Place, tmp_path: Path) -> None:
    neither = fresh.run()
    assert neither.code == 2
    assert "--once" in neither.err
    nowhere = tiered(
        "maintain", "--once", "--archive", f"file://{tmp_path}/archive", "--state", tmp_path / "state", *QUIET
    )
    assert nowhere.code == 5
    assert "no archive here" in nowhere.err
    assert not (tmp_path / "archive").exists()
    stateless = tiered("maintain", "--once", "--archive", fresh.archive, *QUIET)
    assert stateless.code == 2
    assert "state.directory" in stateless.err


def test_people_get_tables(fresh: Place) -> None:
    shown = fresh.run("--dry-run")
    assert "no small runs" in shown.text
    assert "merge" in fresh.run("--once").text


def test_a_task_that_cannot_be_done_keeps_no_other_from_its_work(fresh: Place) -> None:
    topics = fresh.store / "config" / "topics.json"
    topics.parent.mkdir()
    topics.write_text('{"topicConfigTable":{"Orders"')
    try:
        assert tiered("gen", "--store", fresh.store, "--messages", 50, "--topics", 2).code == 0
        assert archive_once(fresh.store, fresh.archive, "hold.max_disk_percent=99").code == 0
        retain = ("--set", "retain.keep_ms=9d", "--json")
        foretold = fresh.run("--dry-run", *retain)
        assert foretold.code == 4, foretold.err
        assert "list of topics" in foretold.json["retain"]["error"]
        assert foretold.json["merge"]["jobs"] > 0
        done = fresh.run("--once", *retain)
        assert done.code == 4, done.err
        assert (done.json["merge"]["complete"], done.json["retain"]["complete"]) == (True, False)
        assert "list of topics" in done.json["retain"]["error"]
        assert fresh.run("--dry-run", "--json").json["merge"]["jobs"] == 0
        again = fresh.run("--once", *retain)
        assert again.code == 4, "nothing else to do, and the error is told all the same"
    finally:
        topics.unlink()
        topics.parent.rmdir()
    assert fresh.run("--once", *retain).code == 0


def test_days_that_are_over_are_sealed(tmp_path: Path) -> None:
    url, sent = aged_directory(tmp_path, Stage.MERGED)
    options = ("--archive", url, "--state", tmp_path / "state", *QUIET, "--set", "archive.takeover_wait_ms=0")

    def status() -> dict[str, Any]:
        found: dict[str, Any] = tiered("status", "--archive", url, "--json").json
        return found

    def records() -> list[bytes]:
        queues = {(m.topic, m.queue_id) for m, _ in sent if not m.sys_flag & PREPARED}
        words = ("read", "--archive", url, "--format", "raw")
        return [tiered(*words, "--topic", topic, "--queue", number).out for topic, number in sorted(queues)]

    before, read = status(), records()
    assert sum(map(len, read)) == sum(len(raw) for m, raw in sent if not m.sys_flag & PREPARED)
    assert before["wait_for_sealing"]["messages"] == len(sent)
    off = tiered("maintain", "--dry-run", *options, "--set", "seal.enabled=false", "--json").json["seal"]
    assert off == {"jobs": 0, "rows": []}
    plan = tiered("maintain", "--dry-run", *options, "--json")
    assert {row["day"] for row in plan.json["seal"]["rows"]} == {"2023-11-14", "2023-11-15"}
    done = tiered("maintain", "--once", *options, "--json")
    assert done.code == 0, done.err
    assert (done.json["seal"]["complete"], done.json["seal"]["messages"]) == (True, len(sent))
    after = status()
    assert after["wait_for_sealing"]["messages"] == 0
    assert (
        {level["level"]: level["objects"] for level in after["levels"]}[2]
        == done.json["seal"]["written_files"]
        == 6
    )
    assert after["messages"] == before["messages"]
    assert records() == read
    assert tiered("verify", "--archive", url, "--deep").code == 0
    files = sorted(
        str(path.relative_to(tmp_path / "archive")) for path in tmp_path.glob("archive/**/*.parquet")
    )
    assert [name.split("/")[2:5] for name in files][2] == ["segment", "topic=Orders", "day=2023-11-14"]
