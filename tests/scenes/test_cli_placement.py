"""``tiered placement`` over an archive: forecast, table, and that whoever walks over the archive leaves tables alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.command import Done, archive_once, tiered
from tests.kit.fetchscene import scene
from tests.kit.merging import merge_all, spread
from tests.kit.pipeline import Crafted
from tests.kit.scrubbing import Scrubbing, paths
from tests.scenes.test_snapshots_beside import verified
from tiered.archive.keys import PLACEMENT_PREFIX
from tiered.placement.history import HOUR_MS
from tiered.placement.table import PlacementTable, publish_table

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
    shown = asked(place, "--nodes", NODES, "--model", "baseline")
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
        assert "predicted by the baseline" in done.err, "a model is not believed after three hours"
    done = asked(place, "--nodes", NODES)
    again = {row["queue_id"]: row["node"] for row in done.json}
    assert again == {queue_id: row["node"] for queue_id, row in rows.items()}
    assert not any(row["moved"] for row in done.json)
    without = asked(place, "--nodes", "node-1,node-2", "--model", "baseline")
    assert {row["node"] for row in without.json} == {"node-1", "node-2"}


def test_what_makes_no_sense_is_refused(place: Path) -> None:
    for words in ((), ("--nodes", "a,,b"), ("--nodes", "a", "--model", "oracle")):
        done = asked(place, *words)
        assert (done.code, done.error["kind"]) == (2, "Invalid"), done.err


def test_whoever_walks_over_the_archive_leaves_tables_alone(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        spread(made, 3)
        merge_all(made.daemon)
        before = verified(made.provider)
        publish_table(made.provider, KEYS, PlacementTable(("a",), {1: "a"}, {1: 5}, "model", 0), -1)
        assert verified(made.provider) == before
        sweeping = Sweeping.of(made)
        sweeping.count(sweeping.gc)
        sweeping.after_grace()
        assert len([path for path in paths(made.provider) if path.startswith(PLACEMENT_PREFIX)]) == 1
        looking = Scrubbing.of(made)
        looking.rest()
        assert looking.damaged() == {}
        assert looking.notes.listing.notes.get("foreign", 0) == 0
