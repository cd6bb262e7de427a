"""``tiered placement`` over an archive: forecast, table, and that whoever walks over the archive leaves tables alone."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.command import Done, archive_once, tiered
from tests.kit.fetchscene import scene
from tests.kit.memberships import card
from tests.kit.merging import merge_all, spread
from tests.kit.pipeline import Crafted
from tests.kit.scrubbing import Scrubbing, paths
from tests.scenes.test_snapshots_beside import verified
from tiered.archive.keys import PLACEMENT_PREFIX
from tiered.clock import SystemClock
from tiered.membership.base import Card, MemberState
from tiered.membership.bucket import BucketMembership
from tiered.model import MessageQueue
from tiered.placement.history import HOUR_MS
from tiered.placement.table import PlacementTable, publish_table, queue_digest
from tiered.provider.posix import PosixProvider

NODES = "node-1,node-2,node-3"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of three hours of six queues, the first of which is the busiest."""
    directory = tmp_path_factory.mktemp("placement")
    store, place = directory / "store", directory / "archive"
    broker = Crafted(store, file_bytes=1 << 18)
    now_ms = time.time_ns() // 1_000_000
    for hours in (3, 2, 1):
        broker.time_ms = now_ms - now_ms % HOUR_MS - hours * HOUR_MS
        for queue_id in range(6):
            for _ in range(12 - 2 * queue_id):
                broker.time_ms += 1000
                broker.send("Orders", queue_id=queue_id, body=b"x" * 500)
        assert archive_once(store, place, "hold.max_disk_percent=99").code == 0
    return place


def asked(place: Path, *words: object) -> Done:
    return tiered("placement", "--archive", f"file://{place}", *words, "--json")


def test_busy_queues_are_placed_and_published_and_stay(place: Path) -> None:
    shown = asked(place, "--nodes", NODES)
    assert shown.code == 0, shown.err
    rows = {row["queue_id"]: row for row in shown.json}
    assert set(rows) == set(range(6))
    assert {row["node"] for row in rows.values()} == set(NODES.split(","))
    assert rows[0]["predicted_bytes"] > 3 * rows[5]["predicted_bytes"] > 0
    assert not list(place.rglob("placement/*")), "shown alone"
    for number in range(2):
        done = tiered("placement", "--archive", f"file://{place}", "--nodes", NODES, "--publish")
        assert done.code == 0, done.err
        assert f"table {number} is published" in done.err
        assert "the forecast's error of late: " in done.err
    done = asked(place, "--nodes", NODES)
    again = {row["queue_id"]: row["node"] for row in done.json}
    assert again == {queue_id: row["node"] for queue_id, row in rows.items()}
    assert not any(row["moved"] for row in done.json)
    without = asked(place, "--nodes", "node-1,node-2")
    assert {row["node"] for row in without.json} == {"node-1", "node-2"}


def announced(place: Path, *cards: Card) -> None:
    provider = PosixProvider(str(place), SystemClock())
    membership = BucketMembership(provider, KEYS, SystemClock(), 1.0)
    for one in cards:
        membership.announce(one)


def test_nodes_are_those_that_have_announced_themselves(place: Path, tmp_path: Path) -> None:
    """Capacities and reads are theirs; who drains or is silent gets nothing, and is named."""
    there = tmp_path / "archive"
    shutil.copytree(place, there)
    quiet = queue_digest(MessageQueue("Orders", 5))
    announced(
        there,
        card("large", capacity=2, lease_ms=600_000, reads=((quiet, 40_000), (7, 9))),
        card("small", lease_ms=600_000, state=MemberState.JOINING, reads=((quiet, 10_000),)),
        card("leaving", lease_ms=600_000, state=MemberState.DRAINING),
        card("dead", lease_ms=600_000, capacity=1000),
    )
    (silent,) = there.rglob("lease/dead/*")
    os.utime(silent, (time.time() - 3600,) * 2)
    shown = asked(there)
    assert shown.code == 0, shown.err
    rows = {row["queue_id"]: row for row in shown.json}
    assert {row["node"] for row in rows.values()} == {"large", "small"}
    assert [rows[queue]["read_bytes"] for queue in range(6)] == [None] * 5 + [50_000]
    assert (shown.json[0]["queue_id"], rows[5]["node"]) == (5, "large"), "the busiest, by its readers"
    said = tiered("placement", "--archive", f"file://{there}").err
    assert "2 nodes of capacity 3 together; 1 queues are read" in said
    assert "dead gets no queue: it is silent" in said
    assert "leaving gets no queue: it drains" in said
    listed = asked(there, "--nodes", "x,y=3")
    assert {row["node"] for row in listed.json} == {"x", "y"}
    named = asked(there, "--set", "gateway.read_nodes=a:1,b:2")
    assert {row["node"] for row in named.json} == {"a:1", "b:2"}


def test_what_makes_no_sense_is_refused(place: Path) -> None:
    wrong = ("a,,b", "a=0", "a=x", "=2", "a=1000001", "")
    for words in ((), *(("--nodes", one) for one in wrong)):
        done = asked(place, *words)
        assert (done.code, done.error["kind"]) == (2, "Invalid"), done.err


def test_whoever_walks_over_the_archive_leaves_tables_alone(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        spread(made, 3)
        merge_all(made.daemon)
        before = verified(made.provider)
        publish_table(made.provider, KEYS, PlacementTable(("a",), {1: "a"}, {1: 5}, 0), -1)
        assert verified(made.provider) == before
        sweeping = Sweeping.of(made)
        sweeping.count(sweeping.gc)
        sweeping.after_grace()
        assert len([path for path in paths(made.provider) if path.startswith(PLACEMENT_PREFIX)]) == 1
        looking = Scrubbing.of(made)
        looking.rest()
        assert looking.damaged() == {}
        assert looking.notes.listing.notes.get("foreign", 0) == 0
