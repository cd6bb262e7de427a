"""Legal holds in the bucket, commits' ages by the store's clock, and the verbs that show what retention would do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest

from tests.kit.assemble import KEYS, memory
from tests.kit.command import Done, archive_once, tiered
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.pipeline import Crafted
from tiered.archive.rewrite.holds import FOR_EVER_MS, add_hold, drop_hold, holds_in_force, read_holds
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.rewrite.retention import look
from tiered.archive.rewrite.storetime import aged_commit
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, Invalid, NotFound, Refused
from tiered.provider.base import Fetched
from tiered.provider.wrap import Wrapped
from tiered.settings import Retain

DAY_MS = 86_400_000
ARCHIVE = b"archive-archive-"
HOLD = LegalHold("case-7", "Orders*", 1000, 2000)


def test_a_hold_is_in_force_from_the_moment_it_is_put_until_it_is_dropped() -> None:
    provider, chance = memory(), Random(1)
    made = add_hold(provider, KEYS, ARCHIVE, HOLD, "asked for by legal", 77, chance.randbytes)
    open_end = LegalHold("case-8", "Ärger?", 0, FOR_EVER_MS)
    add_hold(provider, KEYS, ARCHIVE, open_end, "", 78, chance.randbytes)
    assert holds_in_force(provider, KEYS, ARCHIVE) == [HOLD, open_end]
    assert read_holds(provider, KEYS, ARCHIVE)[0] == made
    drop_hold(provider, KEYS, ARCHIVE, "case-7")
    assert holds_in_force(provider, KEYS, ARCHIVE) == [open_end]
    assert [(s.hold.name, s.dropped, s.reason) for s in read_holds(provider, KEYS, ARCHIVE)] == [
        ("case-7", True, "asked for by legal"), ("case-8", False, ""),
    ]  # fmt: skip
    add_hold(provider, KEYS, ARCHIVE, HOLD, "again", 79, chance.randbytes)
    assert holds_in_force(provider, KEYS, ARCHIVE) == [open_end, HOLD]


def test_wrong_holds_are_refused() -> None:
    provider, chance = memory(), Random(1)
    add_hold(provider, KEYS, ARCHIVE, HOLD, "", 1, chance.randbytes)
    with pytest.raises(Conflict, match="of this name"):
        add_hold(provider, KEYS, ARCHIVE, HOLD, "", 2, chance.randbytes)
    for wrong in (LegalHold("", "a", 0, 1), LegalHold("a", " ", 0, 1), LegalHold("a", "b", 5, 5)):
        with pytest.raises(Invalid, match="ends after it begins"):
            add_hold(provider, KEYS, ARCHIVE, wrong, "", 2, chance.randbytes)
    with pytest.raises(NotFound, match="no hold of this name") as found:
        drop_hold(provider, KEYS, ARCHIVE, "case-9")
    assert found.value.fields["expected"] == "case-7"


@pytest.mark.parametrize("damage", ["flip", "cut", "foreign", "moved", "stray", "lost"])
def test_what_cannot_be_read_holds_everything(damage: str) -> None:
    provider, chance = memory(), Random(1)
    add_hold(provider, KEYS, ARCHIVE, HOLD, "", 1, chance.randbytes)
    (stored,) = provider.inner.list("")
    data = bytes(provider.get(stored.key).data)
    if damage == "flip":
        provider.put(stored.key, [data.replace(b"1000", b"1001")], create_only=False)
    elif damage == "cut":
        provider.put(stored.key, [data[:-3]], create_only=False)
    elif damage == "moved":
        provider.put(stored.key[:-1] + "x".translate({120: "0123"[stored.key[-1] == "0"]}), [data])
    elif damage == "stray":
        provider.put(KEYS.key("hold/readme.txt"), [b"hello"])
    elif damage == "lost":
        drop_hold(provider, KEYS, ARCHIVE, "case-7")
        provider.delete(stored.key)
    with pytest.raises(Corrupt, match="nothing is trimmed"):
        holds_in_force(provider, KEYS, b"another-archive-" if damage == "foreign" else ARCHIVE)


def archive(s: Scene, flushes: int) -> None:
    """One commit after the other, ten seconds apart by every clock."""
    for _ in range(flushes):
        s.broker.time_ms = s.clock.now_ms()
        s.send(2)
        s.clock.advance(10)


def test_age_is_the_stores_and_a_missing_commit_counts_as_too_young(tmp_path: Path) -> None:
    with scene(tmp_path) as s:
        archive(s, 12)
        reader = s.daemon.log.reader
        head = s.state.head()
        assert head is not None
        now_ms = s.clock.now_ms()
        times = [s.provider.head(KEYS.commit(seq)).last_modified_ms for seq in range(head.seq + 1)]
        for age_ms in (0, 10_000, 35_000, 65_000, 10**9):
            expected = max((n for n, t in enumerate(times) if now_ms - t >= age_ms), default=-1)
            assert aged_commit(reader, head, age_ms) == expected
        aged = aged_commit(reader, head, 35_000)
        s.provider.delete(KEYS.commit(aged))
        assert aged_commit(reader, head, 35_000) == aged - 1
        s.provider.delete(KEYS.commit(aged - 2))
        assert aged_commit(reader, head, 35_000) <= aged - 1


class Timeless(Wrapped):
    """A store that tells no times of its objects."""

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        found = self.inner.get(key, start, length)
        return Fetched(found.data, found.object_length, found.date_ms, None)


def test_a_look_takes_holds_and_clocks_first(tmp_path: Path) -> None:
    with scene(tmp_path) as s:
        archive(s, 6)
        reader, state = s.daemon.log.reader, s.state
        assert look(reader, state, Retain(), s.clock) is None
        hour = 3_600_000
        settings = Retain(keep_ms=hour, min_age_ms=hour)
        run = look(reader, state, settings, s.clock)
        assert run is not None
        assert run.plan.trims == ()
        s.clock.advance(hour / 1000 - 35)
        run = look(reader, state, settings, s.clock)
        assert run is not None
        (trim,) = run.plan.trims
        old = [r for r in state.runs(ORDERS, 1) if r.max_store_time < s.clock.now_ms() - hour]
        assert 0 < trim.messages == sum(r.rows for r in old) < 12
        add_hold(
            s.provider,
            KEYS,
            reader.identity.archive_id,
            LegalHold("x", "Ord*", 0, FOR_EVER_MS),
            "",
            1,
            Random(2).randbytes,
        )
        held = look(reader, state, settings, s.clock)
        assert held is not None
        assert held.plan.trims == ()
        late = ManualClock(s.clock.now_ms() + 301_000)
        with pytest.raises(Refused, match="too far apart"):
            look(reader, state, settings, late)
        reader.provider = Timeless(s.provider)
        with pytest.raises(Refused, match="when its objects were written"):
            look(reader, state, settings, s.clock)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose commits came two days ago: each topic has an old message and a fresh one."""
    directory = tmp_path_factory.mktemp("retain")
    store, place = directory / "store", directory / "archive"
    broker = Crafted(store, file_bytes=1 << 16)
    now_ms = time.time_ns() // 1_000_000
    for age_ms in (3 * DAY_MS, 0):
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
    assert asked(place, "retain", "--dry-run", sets=policy).json == []
    assert asked(place, "hold", "add", "case", "--topic", "x").code == 6
    assert asked(place, "hold", "drop", "case").code == 0
    assert asked(place, "hold", "drop", "case").code == 5
    assert [row["in_force"] for row in asked(place, "hold", "list").json] == [False]
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
    (data,) = place.glob("*/*")
    (data / "data").mkdir(exist_ok=True)
    (data / "data" / "readme.txt").write_text("nobody's")
    assert asked(place, "gc", "--dry-run").json == {**done.json, "foreign_keys": 1, "listed_objects": 1}
    told = asked(place, "status").json
    (level,) = told["levels"]
    assert (level["level"], level["objects"]) == (0, 2)
    assert told["stored_bytes"] == level["bytes"] > 0
    assert (told["unreferenced_objects"], told["unreferenced_bytes"], told["named_for_deletion"]) == (0, 0, 0)


def test_a_run_trims_exactly_what_the_dry_run_said_and_deletes_after_the_grace(place: Path) -> None:
    url, state = f"file://{place}", ("--state", place.parent / "store.tiered")
    policy = ("retain.keep_ms=2d", "retain.min_age_ms=1h", "hold.max_disk_percent=99")
    refused = asked(place, "retain", *state, sets=policy)
    assert (refused.code, refused.error["kind"]) == (3, "Refused")
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
    (data,) = place.glob("*/*/data")
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
