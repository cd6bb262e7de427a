"""``tiered status``: what a month costs, what waits for deletion, and topics that the broker deleted."""

from __future__ import annotations

import json
import shutil
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.kit.command import archive_once, made_before, tiered
from tests.kit.pipeline import Crafted
from tiered.archive.checkpoint.partial import PartialStore, PartialView
from tiered.archive.state.scope import Scope
from tiered.clock import SystemClock
from tiered.daemon.brokertopics import NOTES_FILE
from tiered.daemon.portfile import WEB_PORT_FILE
from tiered.settings import ONE_DAY_MS


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, str]:
    """A broker's store without a topic that it had, and the archive."""
    broker, archive = Crafted(tmp_path / "store", file_bytes=1 << 16), tmp_path / "archive"
    for number in range(20):
        broker.send(("Gone", "Here")[number % 2], 0, b"%d" % number * 50)
    assert archive_once(broker.store, archive, "hold.max_disk_percent=99").code == 0
    config = Path(broker.store) / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"Here": {}}}))
    shutil.rmtree(Path(broker.store) / "consumequeue" / "Gone", ignore_errors=True)
    return Path(broker.store), f"file://{archive}"


def status(place: tuple[Path, str], *words: object) -> Any:
    done = tiered("status", "--archive", place[1], "--store", place[0], *words, "--json")
    assert done.code == 0, done.err
    return done.json


def test_deleted_topics_and_what_becomes_of_them(place: tuple[Path, str], tmp_path: Path) -> None:
    (gone,) = status(place)["deleted_topics"]
    assert (gone["topic"], gone["messages"], gone["seen_ms"]) == ("Gone", 10, None)
    assert gone["retention"] == "kept for ever: retain.deleted_topic_ms is 0"
    after = ("--set", "retain.deleted_topic_ms=2d")
    (gone,) = status(place, *after)["deleted_topics"]
    assert "after a daemon beside the broker has seen it" in gone["retention"]
    state = Path(f"{place[0]}.tiered")
    notes = {"archive_id": status(place)["archive_id"], "since_ms": {"Gone": 1_700_000_000_000}}
    (state / NOTES_FILE).write_text(json.dumps(notes))
    (gone,) = status(place, *after)["deleted_topics"]
    assert gone["seen_ms"] == 1_700_000_000_000
    assert gone["retention"].startswith("trimmed from 2023-11-16")
    (gone,) = status(place, *after, "--set", "retain.topics=Gone=forever")["deleted_topics"]
    assert gone["retention"] == "kept for ever by a rule of retain.topics"
    hold = ("hold", "add", "case-7", "--archive", place[1], "--topic", "G*", "--reason", "r")
    assert tiered(*hold).code == 0
    (gone,) = status(place, *after)["deleted_topics"]
    assert gone["retention"].endswith("what the legal hold case-7 covers stays")
    (place[0] / "config" / "topics.json").write_text("{")
    assert str(status(place)["deleted_topics"]).startswith("not known: ")
    without = tiered("status", "--archive", place[1], "--json").json
    assert "deleted_topics" not in without


SEEN = "trimmed 2 d after a daemon beside the broker has seen it"
LOST = (
    "1 of its queues stay, with messages at their end that the broker lost, and wrote nothing in place of, "
    "before it deleted the topic"
)


@pytest.mark.parametrize(
    ("kept", "again", "messages", "told"),
    [
        (
            1,
            False,
            1,
            f"{SEEN}; {LOST}",
        ),
        (1, True, 2, SEEN),
        (0, False, 0, f"closed parts of 1 of its queues: {SEEN}"),
    ],
    ids=["tail lost", "others in its place", "all lost"],
)
def test_a_deleted_topic_whose_tail_the_broker_lost_is_not_called_forgotten(
    tmp_path: Path, kept: int, again: bool, messages: int, told: str
) -> None:
    """``kept`` of two messages stay; ``again``: the broker wrote another one before it deleted the topic."""
    broker, archive = Crafted(tmp_path / "store", file_bytes=1 << 16), tmp_path / "archive"
    broker.send("Here")
    sent = [broker.send("Gone").physical_offset for _ in range(2)]
    assert archive_once(broker.store, archive, "hold.max_disk_percent=99").code == 0
    broker.crash(sent[kept])
    broker.send("Gone" if again else "Here", body=b"another")
    assert archive_once(broker.store, archive, "hold.max_disk_percent=99").code == 0
    config = Path(broker.store) / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"Here": {}}}))
    place = (Path(broker.store), f"file://{archive}")
    (gone,) = status(place, "--set", "retain.deleted_topic_ms=2d")["deleted_topics"]
    assert (gone["messages"], gone["retention"]) == (messages, told)


def test_behind_a_checkpoint_deleted_topics_are_counted_with_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fold of what lies behind it reads all commits there: there are as many folds with ten such topics as with one."""
    one, ten = (saved_with_deleted(tmp_path / str(number), number) for number in (1, 10))
    real, folds = PartialStore._anew, list[Scope]()

    def anew(self: PartialStore, scope: Scope, *more: Any) -> PartialView:
        folds.append(scope)
        return real(self, scope, *more)

    monkeypatch.setattr(PartialStore, "_anew", anew)
    after = ("--set", "retain.deleted_topic_ms=2d")
    seen = []
    for place, number in ((one, 1), (ten, 10)):
        found = status(place, *after)["deleted_topics"]
        assert [gone["retention"] for gone in found] == [f"{SEEN}; {LOST}"] * number
        seen.append(len(folds))
        folds.clear()
    assert seen[0] == seen[1] > 0


def saved_with_deleted(place: Path, topics: int) -> tuple[Path, str]:
    """Deleted topics whose tails the broker lost, and a checkpoint that is behind."""
    broker, archive = Crafted(place / "store", file_bytes=1 << 16), place / "archive"
    archived = partial(archive_once, broker.store, archive, "hold.max_disk_percent=99")
    for number in range(topics):
        broker.send(f"Gone{number}")
    lost = broker.send("Gone0").physical_offset
    for number in range(1, topics):
        broker.send(f"Gone{number}")
    assert archived("archive.checkpoint_commits=1").code == 0
    broker.crash(lost)
    for _ in range(topics + 1):
        broker.send("Here", body=b"another")
    assert archived().code == 0
    config = Path(broker.store) / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {"Here": {}}}))
    return Path(broker.store), f"file://{archive}"


def test_what_is_forgotten_and_when(place: tuple[Path, str]) -> None:
    none = {"queues": 0, "generation": 0, "empty_queues": 0, "waiting_queues": 0, "next_ms": None}
    assert status(place)["forgotten"] == none


def test_a_month_by_a_table_of_prices(
    place: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (listed,) = status(place)["cost_of_a_month"]
    assert listed["store"] == "s3-standard"
    assert listed["total"] is None, "an archive of a minute says nothing of its pace"
    table = tmp_path / "prices.toml"
    table.write_text(
        'currency = "EUR"\n[store.mine]\nstorage_gb_month = 1000\nput_per_1000 = 2\nget_per_1000 = 0\n'
        "[store.large]\nstorage_gb_month = 1000\nput_per_1000 = 2\nget_per_1000 = 0\nminimum_object_bytes = 1000000\n"
    )
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms + 10 * ONE_DAY_MS)
    found = status(place, "--prices", table)
    mine, large = found["cost_of_a_month"]
    assert mine["currency"] == "EUR"
    assert mine["storage"] == pytest.approx(found["stored_bytes"] / 2**30 * 1000, abs=1e-4)
    count = sum(level["objects"] for level in found["levels"])
    assert large["storage"] == pytest.approx(count * 1e6 / 2**30 * 1000, abs=1e-4)
    puts = mine["writing"] / 2 * 1000
    assert puts / (365 / 12) * 10 >= found["seq"] + 0.9, "a request for each commit"
    assert mine["total"] == pytest.approx(mine["storage"] + mine["writing"], abs=1e-3)
    assert tiered("status", "--archive", place[1], "--prices", tmp_path / "none.toml").code == 5


def test_whether_anything_is_collected(place: tuple[Path, str]) -> None:
    assert status(place)["collection"] == "on"
    assert status(place, "--set", "gc.enabled=no")["collection"].startswith(
        "off: gc.enabled is false; 0 B that "
    )
    made_before(Path(place[1].removeprefix("file://")))
    assert status(place)["collection"].startswith(
        'off: gc.enabled is "new", and this archive was made before'
    )
    assert status(place, "--set", "gc.enabled=true")["collection"] == "on"
    notes = tiered("gc", "--dry-run", "--archive", place[1]).err
    assert "a daemon deletes nothing: gc.enabled is" in notes


def test_what_waits_for_deletion(place: tuple[Path, str]) -> None:
    assert status(place)["wait_for_deletion"] == {"keys": 0, "objects": 0, "bytes": 0}
    small = ("--set", "gc.enabled=true", "--set", "archive.takeover_wait_ms=0", "--take-over")
    words = ("maintain", "--once", "--archive", place[1], "--store", place[0], *small)
    for _ in range(2):
        assert tiered(*words).code == 0, tiered(*words).err
    found = status(place)
    assert found["wait_for_deletion"]["keys"] == found["named_for_deletion"]


def test_the_daemons_word_is_shown_while_the_store_is_away(place: tuple[Path, str]) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"ready": False, "problem": "the store does not answer"}).encode())

        def log_message(self, *words: object) -> None:
            """Nothing."""

    archive = Path(place[1].removeprefix("file://"))
    archive.rename(archive.with_name("away"))
    words = ("status", "--archive", place[1], "--store", place[0], "--json")
    alone = tiered(*words)
    assert (alone.code, alone.out) != (0, "")
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.handle_request).start()
        (Path(f"{place[0]}.tiered") / WEB_PORT_FILE).write_text(f"{server.server_port}")
        beside = tiered(*words)
    assert beside.code == alone.code
    assert beside.json["daemon"]["problem"] == "the store does not answer"
    assert beside.json["problem"]
