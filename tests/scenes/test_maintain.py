"""``tiered maintain``: what there is to do, done once; who it makes way for; the same messages before and after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import Stage, aged_directory, saved
from tests.kit.collecting import Sweeping
from tests.kit.command import Done, archive_once, tiered
from tests.kit.fetchscene import scene
from tests.kit.merging import AtOnceTurn, spread
from tests.kit.pipeline import PREPARED
from tests.kit.sealing import across_midnights
from tiered.archive.log import maintenance
from tiered.archive.log.localfiles import check_fence
from tiered.archive.log.maintenance import Outlook, Stopped, Turn
from tiered.clock import SystemClock
from tiered.daemon.lock import StateLock
from tiered.daemon.maintain import MOST_ROUNDS, TaskReport, maintain
from tiered.daemon.saving import Saving
from tiered.errors import Refused, Unavailable
from tiered.settings import Archive, Gc, Settings

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
        assert "works on this state directory" in refused.error["message"]
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


def test_what_is_called_complete_leaves_the_next_run_nothing(tmp_path: Path) -> None:
    with scene(tmp_path / "made") as made:
        across_midnights(made, (0, 2, 4))
        url = saved(made, tmp_path / "archive")
    options = ("--archive", url, "--state", tmp_path / "state", *QUIET, "--set", "archive.takeover_wait_ms=0")
    done = tiered("maintain", "--once", *options, "--json")
    assert done.code == 0, done.err
    assert all(task["complete"] for task in done.json.values()), done.json
    assert done.json["seal"]["written_files"] == 6
    plan = tiered("maintain", "--dry-run", *options, "--json").json
    assert {name: task["jobs"] for name, task in plan.items()} == dict.fromkeys(plan, 0)


# ---- rounds, of tasks that find and do what they are told


@dataclass
class Scripted:
    """``waits``: what a look finds; ``work`` is a turn, and the last of its round."""

    waits: list[str]
    work: Callable[[list[str]], object] = lambda waits: None
    name: str = "scripted"
    trouble: str | None = None

    def due(self, now: float) -> bool:
        return True

    def plan(self) -> Outlook:
        rows = tuple({"what": w} for w in self.waits)
        return Outlook(len(rows), f"{len(rows)} wait", rows=rows, trouble=self.trouble)

    def run_once(self, turn: Turn) -> maintenance.Done:
        self.work(self.waits)
        return maintenance.Done(more=False)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[TaskReport]]:
    url, _ = aged_directory(tmp_path, Stage.FRESH)
    made = Settings()
    archive = replace(made.archive, url=url, takeover_wait_ms=0)
    settings = replace(made, archive=archive, state=replace(made.state, directory=str(tmp_path / "state")))

    def run(*tasks: Scripted) -> list[TaskReport]:
        return maintain(
            settings, SystemClock(), threading.Event(), take_over=True, make_tasks=lambda *given: tasks
        )

    return run


def told(report: TaskReport) -> tuple[int, bool, str | None, list[str]]:
    return report.turns, report.complete, report.left, report.troubles


def test_rounds_go_on_until_a_look_finds_nothing(run: Callable[..., list[TaskReport]]) -> None:
    (report,) = run(Scripted(["a", "b", "c"], lambda waits: waits.pop()))
    assert told(report) == (3, True, None, [])


def test_what_a_task_makes_for_one_before_it_is_done_too(run: Callable[..., list[TaskReport]]) -> None:
    first = Scripted(["0"], list.clear, "first")

    def work(waits: list[str]) -> None:
        found = waits.pop()
        if not waits:
            first.waits.append(found)

    last = Scripted(["a", "b"], work, "last")
    assert [told(report) for report in run(first, last)] == [(2, True, None, []), (2, True, None, [])]


def test_what_a_round_did_not_change_is_left_and_told(run: Callable[..., list[TaskReport]]) -> None:
    stuck, done = run(Scripted(["a"]), Scripted(["b"], list.clear, "other"))
    assert told(stuck) == (1, False, "1 wait", [])
    assert told(done) == (1, True, None, [])


@pytest.mark.parametrize("turns", [0, 1])
def test_what_a_look_cannot_find_out_is_told_though_nothing_is_to_be_done(
    run: Callable[..., list[TaskReport]], turns: int
) -> None:
    blind, seeing = run(
        Scripted([], trouble="the broker is away"), Scripted(["a"] * turns, list.clear, "other")
    )
    assert told(blind) == (turns, True, None, ["the broker is away"])
    assert told(seeing) == (turns, True, None, [])


def test_work_without_an_end_is_bounded_and_told(run: Callable[..., list[TaskReport]]) -> None:
    (report,) = run(Scripted(["a"], lambda waits: waits.append("more")))
    assert (report.turns, report.complete) == (MOST_ROUNDS, False)
    assert report.troubles == [
        f"after {MOST_ROUNDS} rounds there is more to do, for another run: {1 + MOST_ROUNDS} wait"
    ]


def test_a_last_look_that_fails_is_an_error_and_one_that_nobody_took_is_no_end(
    run: Callable[..., list[TaskReport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Scripted) -> Outlook:
        raise Unavailable("away")

    blind = Scripted(["a"], lambda waits: monkeypatch.setattr(Scripted, "plan", away))
    (report,) = run(blind)
    assert (report.complete, str(report.error)) == (False, "away")
    monkeypatch.undo()

    def stop(waits: list[str]) -> None:
        if waits.pop() == "b":
            raise Stopped

    reports = run(Scripted(["a"], list.clear, "first"), Scripted(["a", "b", "c"], stop, "last"))
    assert [told(report)[:2] for report in reports] == [(1, False), (1, False)]


def test_the_floor_moves_where_no_daemon_stays(tmp_path: Path) -> None:
    """Cron archives and maintains: no process ever made two checkpoints of its own."""
    place = Place(tmp_path)
    sets = ("gc.enabled=true", "gc.snapshot_retention_ms=0", "archive.checkpoint_commits=4")
    for _ in range(2):
        assert tiered("gen", "--store", place.store, "--messages", 100, "--topics", 2).code == 0
        assert archive_once(place.store, place.archive, "hold.max_disk_percent=99", *SMALL, *sets).code == 0
    read, words = place.read(), [word for value in sets for word in ("--set", value)]
    foretold = place.run("--dry-run", "--json", *words).json["floor"]
    assert (foretold["jobs"], foretold["commits"] >= 4) == (1, True)
    done = place.run("--once", "--json", *words)
    assert done.code == 0, done.err
    assert done.json["floor"] == {"turns": 1, "complete": True, "moved_floors": 1, "troubles": []}
    again = place.run("--dry-run", "--json", *words).json
    assert again["floor"]["jobs"] == 0, "what a run wrote itself is no reason for another"
    assert place.read() == read
    assert tiered("verify", "--archive", place.archive, "--deep").code == 0


def test_the_floor_stays_where_the_store_breaks_a_promise(tmp_path: Path) -> None:
    settings = Settings(archive=Archive(checkpoint_commits=2), gc=Gc(enabled="true", snapshot_retention_ms=0))
    with scene(tmp_path) as made:
        spread(made, 6)
        sweeping = Sweeping.of(made)
        sweeping.save()
        before = made.state.head()

        def save() -> bool:
            return bool(sweeping.save())

        def saving(*weak: str) -> Saving:
            return Saving(made.daemon.log, made.clock, settings, sweeping.own_keys, weak, save)

        weak = saving("listings lag")
        for ask in (weak.plan, lambda: weak.run_once(AtOnceTurn(made.daemon))):
            with pytest.raises(Refused, match="does not keep what the archive relies on"):
                ask()
        assert made.state.head() == before
        assert saving().run_once(AtOnceTurn(made.daemon)).figures == {"moved_floors": 1}
