"""``tiered hold`` and ``tiered retain`` over an archive that has something to trim."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.kit.command import Done, archive_once, tiered
from tests.kit.pipeline import Crafted
from tiered.settings import ONE_DAY_MS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose commits came two days ago: each topic has an old message and a fresh one."""
    directory = tmp_path_factory.mktemp("retain")
    store, place = directory / "store", directory / "archive"
    broker = Crafted(store, file_bytes=1 << 16)
    now_ms = time.time_ns() // 1_000_000
    for age_ms in (3 * ONE_DAY_MS, 0):
        broker.time_ms = now_ms - age_ms
        for topic in ("Orders", "Trace"):
            broker.send(topic)
        assert archive_once(store, place, "hold.max_disk_percent=99").code == 0
    back = time.time() - 2 * 86_400
    for commit in place.glob("*/*/commit/*/*"):
        os.utime(commit, (back, back))
    return place


def asked(place: Path, *words: object, sets: tuple[str, ...] = ()) -> Done:
    values = [word for value in sets for word in ("--set", value)]
    return tiered(*words, "--archive", f"file://{place}", *values, "--json")


def test_the_verbs(place: Path) -> None:
    assert asked(place, "retain", "--dry-run").json == []
    told = tiered("retain", "--dry-run", "--archive", f"file://{place}")
    assert "what the broker says of its topics is not known here" in told.err
    policy = ("retain.topics=Orders=9d,No*=2d", "retain.keep_bytes=1", "retain.min_age_ms=1h")
    done = asked(place, "retain", "--dry-run", "--max-trim-percent", 100, sets=policy)
    assert done.code == 0, done.err
    (row,) = done.json
    assert (row["topic"], row["first_offset"], row["messages"], row["reason"]) == ("Trace", 1, 1, "size")
    aged = asked(place, "retain", "--dry-run", "--max-trim-percent", 100, sets=("retain.keep_ms=2d",))
    assert [(r["topic"], r["reason"]) for r in aged.json] == [("Orders", "age"), ("Trace", "age")]
    small = asked(place, "retain", "--dry-run", sets=(*policy, "retain.max_trim_percent=1"))
    assert (small.code, small.error["kind"]) == (3, "Refused")
    assert small.json == done.json, "shown all the same"
    held = asked(place, "hold", "add", "case", "--topic", "T*", "--from", "2020-01-01", "--reason", "why")
    assert [(row["name"], row["in_force"], row["to"]) for row in held.json] == [("case", True, None)]
    for name, pattern, fits in (("other", "Tr*", "1"), ("typo", "Tracs", "none; tiered topics")):
        told = tiered("hold", "add", name, "--topic", pattern, "--archive", f"file://{place}")
        assert f"archived topics that {pattern} fits now: {fits}" in told.err
        assert asked(place, "hold", "drop", name).code == 0
    assert asked(place, "retain", "--dry-run", sets=policy).json == []
    assert asked(place, "hold", "add", "case", "--topic", "x").code == 6
    times = ("--from", "2026-02-01", "--to", "2026-01-01")
    wrong = asked(place, "hold", "add", "other", "--topic", "x", *times)
    assert wrong.code == 2
    assert wrong.error["message"] == "--to is not after --from"
    assert wrong.error["fields"] == {"found": "2026-02-01 to 2026-01-01"}
    assert asked(place, "hold", "drop", "case").code == 0
    assert asked(place, "hold", "drop", "case").code == 5
    assert [row["in_force"] for row in asked(place, "hold", "list").json] == [False] * 3
    assert asked(place, "retain", "--dry-run", "--max-trim-percent", 100, sets=policy).json == done.json
    wrong = asked(place, "retain", "--dry-run", sets=("retain.keep_ms=1h",))
    assert (wrong.code, wrong.error["fields"]["key"]) == (2, "retain.keep_ms")


def test_what_lies_in_the_bucket_is_told(place: Path) -> None:
    done = asked(place, "gc", "--dry-run")
    assert done.code == 0, done.err
    wanted = (
        "unreferenced_objects",
        "orphans",
        "waiting_for_grace",
        "deletable",
        "foreign_keys",
        "listed_objects",
        "unneeded_checkpoint_objects",
        "removable_commits",
        "abandoned_uploads",
    )
    assert done.json == dict.fromkeys(wanted, 0), "small messages travel in commits"
    nobodys_file(place)
    assert asked(place, "gc", "--dry-run").json == {**done.json, "foreign_keys": 1, "listed_objects": 1}
    told = asked(place, "status").json
    (level,) = told["levels"]
    assert (level["level"], level["objects"]) == (0, 2)
    assert told["stored_bytes"] == level["bytes"] > 0
    assert (told["unreferenced_objects"], told["unreferenced_bytes"], told["named_for_deletion"]) == (0, 0, 0)


def nobodys_file(place: Path) -> Path:
    """A file that is no object, in the directory of data objects, which is given."""
    (archive,) = place.glob("*/*")
    data = archive / "data"
    data.mkdir(exist_ok=True)
    (data / "readme.txt").write_text("nobody's")
    return data


def test_a_run_trims_exactly_what_the_dry_run_said_and_deletes_after_the_grace(place: Path) -> None:
    url, state = f"file://{place}", ("--state", place.parent / "store.tiered")
    policy = ("retain.keep_ms=2d", "retain.min_age_ms=1h", "hold.max_disk_percent=99")
    refused = asked(place, "retain", *state, sets=policy)
    assert (refused.code, refused.error["kind"]) == (3, "Refused")
    foretold = asked(place, "maintain", "--dry-run", *state, sets=policy)
    assert foretold.code == 1, "it says that the run would be refused"
    assert "more of the archive than it may" in foretold.json["retain"]["troubles"][0]
    before = {q["topic"]: q["min_offset"] for q in tiered("queues", "--archive", url, "--json").json}
    assert set(before.values()) == {0}, "nothing was trimmed"
    (percent,) = (w for w in str(refused.error["hint"]).split() if w.rstrip("`").isdigit())
    words = ("--max-trim-percent", percent.rstrip("`"))
    planned = asked(place, "retain", "--dry-run", *words, sets=policy)
    assert planned.code == 0, planned.err
    done = asked(place, "retain", *state, *words, sets=policy)
    assert done.code == 0, done.err
    assert done.json["retain"]["trimmed_queues"] == len(planned.json) == 2
    after = {q["topic"]: q["min_offset"] for q in tiered("queues", "--archive", url, "--json").json}
    assert after == {row["topic"]: row["first_offset"] for row in planned.json} == dict.fromkeys(before, 1)
    assert asked(place, "retain", "--dry-run", sets=policy).json == []
    for topic in after:
        rows = tiered("read", "--archive", url, "--topic", topic, "--queue", 0, "--json").rows
        assert [row["queue_offset"] for row in rows] == [1]
        early = tiered("read", "--archive", url, "--topic", topic, "--queue", 0, "--offset", 0)
        assert f"not archived: offsets 0 to 0 of {topic}/0 (trimmed)" in early.err, "rows are not all"
    data = nobodys_file(place)
    orphan = data / "0000000001-00000000-0000-4000-8000-000000000001"
    orphan.write_bytes(b"of a writer that died")
    named = asked(place, "gc", *state)
    assert (named.code, named.json["gc"]["named_keys"]) == (0, 1), named.err
    assert orphan.exists()
    assert asked(place, "gc", "--dry-run").json["waiting_for_grace"] == 1
    back = time.time() - 2 * 86_400
    for commit in place.glob("*/*/commit/*/*"):
        os.utime(commit, (back, back))
    assert asked(place, "gc", "--dry-run").json["deletable"] == 1
    swept = asked(place, "gc", *state)
    assert (swept.code, swept.json["gc"]["deleted_keys"]) == (0, 1), swept.err
    assert not orphan.exists()
    assert (data / "readme.txt").exists()
    assert asked(place, "status").json["named_for_deletion"] == 0
    assert tiered("verify", "--archive", url, "--deep").code == 0
