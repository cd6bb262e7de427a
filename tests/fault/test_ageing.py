"""Kill the process at every point of collection, of sealing and of tables, run it again: all messages are readable, nothing is
left behind (S5, S8)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon, wait_for
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import compare, opened
from tests.kit.stopping import STOP_VARIABLE, STOPPING
from tiered.archive.keys import SegmentKey, parse
from tiered.archive.read.verify import Verifier
from tiered.clock import ManualClock
from tiered.crashpoint import AgeingPoint as P
from tiered.crashpoint import SealPoint, TablePoint
from tiered.table.catalog import open_catalog
from tiered.table.orders import EMBEDDED, KeptTables

COLLECTS = {
    **SMALL_FLUSHES, "dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536, "gc.enabled": True, "gc.grace_ms": 600_000,
    "gc.snapshot_retention_ms": 0,
}  # fmt: skip
FENCED = 7
POINTS = [p for p in P if P.BEFORE_RETIRE <= p <= P.AFTER_DELETED]
"""The others: ``tests/scenes/test_collection.py``, by a clock that can be moved, in a process that lives for days."""


def a_grace_later(archive: Path) -> None:
    """All commits are a day old, by the clock of the file system."""
    then = time.time() - 86_400
    for commit in archive.glob("*/*/commit/*/*"):
        os.utime(commit, (then, then))


@pytest.mark.parametrize("point", POINTS)
def test_kill_while_collecting_restart_compare(tmp_path: Path, point: P) -> None:
    archive = tmp_path / "archive"
    url = f"file://{archive}"
    broker = FaultBroker.started(tmp_path / "store", 900)
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **COLLECTS)
    assert daemon.once() == 0, daemon.output()
    codes = []
    for crash in (point, point, None):
        codes.append(daemon.maintain(crash=crash))
        assert codes[-1] in (0, CRASHED), daemon.output()
        assert compare(opened(url), broker.oracle).good
        a_grace_later(archive)
    assert CRASHED in codes
    broker.write(100)
    assert daemon.once() == 0, daemon.output()
    for _ in range(2):
        assert daemon.maintain() == 0, daemon.output()
        a_grace_later(archive)
    assert daemon.maintain() == 0, daemon.output()
    view = opened(url)
    verdict = compare(view, broker.oracle)
    assert verdict.good, verdict
    report = Verifier(view).run(deep=True)
    assert report.sound, report.damage
    kept = {item.path for item in view.state.objects() if item.path and item.references}
    root = next(archive.glob("*/*"))
    assert {f"data/{path.name}" for path in (root / "data").iterdir()} == kept
    assert list(view.state.retired()) == []
    broker.close()


BEFORE_MIDNIGHT_MS = 1_700_006_400_000 - 30_000


@pytest.mark.parametrize("point", list(SealPoint))
def test_kill_while_sealing_restart_compare(tmp_path: Path, point: SealPoint) -> None:
    archive = tmp_path / "archive"
    url = f"file://{archive}"
    broker = FaultBroker(tmp_path / "store")
    broker.clock = ManualClock(BEFORE_MIDNIGHT_MS)
    broker.open()
    for _ in range(4):  # the run of each queue reaches over midnight
        broker.write(120)
        broker.clock.advance(20)
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **COLLECTS)
    assert daemon.once() == 0, daemon.output()
    codes = []
    for crash in (point, point, None):
        codes.append(daemon.maintain(crash=crash, times=1 + len(codes)))
        assert codes[-1] in (0, CRASHED), daemon.output()
        assert compare(opened(url), broker.oracle).good
    assert CRASHED in codes
    for _ in range(2):
        a_grace_later(archive)
        assert daemon.maintain() == 0, daemon.output()
    view = opened(url)
    assert compare(view, broker.oracle).good
    report = Verifier(view).run(deep=True)
    assert report.sound, report.damage
    needed = {item.path for item in view.state.objects() if item.references}
    assert {path.split("/", 3)[2] for path in needed} == {"day=2023-11-14", "day=2023-11-15"}
    root = next(archive.glob("*/*"))
    there = {
        str(path.relative_to(root))
        for area in ("data", "segment")
        for path in (root / area).rglob("*-*-*-*-*")
    }
    assert there == needed, "nothing is left over"
    broker.close()


@pytest.mark.parametrize("point", list(TablePoint))
def test_kill_while_a_table_is_brought_up_to_date_run_again(tmp_path: Path, point: TablePoint) -> None:
    url = f"file://{tmp_path / 'archive'}"
    broker = FaultBroker(tmp_path / "store", topics=("Orders",))
    broker.clock = ManualClock(BEFORE_MIDNIGHT_MS)
    broker.open()
    broker.write(120)
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **COLLECTS)
    assert daemon.once() == 0, daemon.output()
    enabled = tiered("table", "enable", "iceberg", "--archive", url, "--state", daemon.state)
    assert enabled.code == 0, enabled.err
    assert daemon.maintain(crash=point) == CRASHED, daemon.output()
    broker.write(30)
    broker.close()
    assert daemon.once() == 0, daemon.output()
    assert daemon.maintain() == 0, daemon.output()
    catalog = open_catalog(KeptTables(EMBEDDED, {}, "rocketmq"), {}, str(daemon.state))
    table = catalog.load_table(("rocketmq", "Orders"))
    rows = table.scan(selected_fields=("queue_id", "queue_offset")).to_arrow().to_pylist()
    wanted = {(q, n) for (_, q), records in broker.oracle.queues().items() for n in range(len(records))}
    assert sorted((row["queue_id"], row["queue_offset"]) for row in rows) == sorted(wanted)


def test_a_daemon_seals_beside_archiving(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'archive'}"
    broker = FaultBroker(tmp_path / "store")
    broker.clock = ManualClock(BEFORE_MIDNIGHT_MS)
    broker.open()
    broker.write(300)
    daemon = Daemon(
        tmp_path, broker.options.store_dir, url, **SMALL_FLUSHES,
        **{"seal.interval_ms": 1000, "maintenance.merge_interval_ms": 3000},
    )  # fmt: skip
    daemon.start()

    def sealed() -> bool:
        levels = [item.level for item in opened(url).state.objects() if item.references]
        return bool(levels) and min(levels) == 2

    daemon.wait_until(sealed, "everything sealed")
    broker.clock.advance(1)
    broker.write(200)
    daemon.wait_until(
        lambda: compare(opened(url), broker.oracle).readable == 500 and sealed(), "the late ones sealed, too"
    )

    def task() -> dict[str, Any]:
        return dict(daemon.status()["maintenance"]["tasks"]["seal"])

    daemon.wait_until(lambda: task()["done"]["messages"] >= 500, "counted, when the turn is over")
    assert task()["done"]["messages"] == 500
    assert task()["problem"] is None
    assert daemon.metric("tiered_maintenance_done_total", task="seal", what="messages") == 500
    daemon.stop()
    assert compare(opened(url), broker.oracle).good
    broker.close()


def stopped(daemon: Daemon) -> bool:
    """Whether the process stands still because of a signal."""
    return Path(f"/proc/{daemon.child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("point", [SealPoint.BEFORE_SEALED, SealPoint.AFTER_REST])
def test_a_writer_that_wakes_in_the_middle_of_a_seal_after_a_take_over_changes_nothing(
    tmp_path: Path, point: SealPoint
) -> None:
    """Its file is not up yet, or up and not committed: the same day is sealed by the other one meanwhile."""
    archive = tmp_path / "archive"
    url = f"file://{archive}"
    broker = FaultBroker(tmp_path / "store")
    broker.clock = ManualClock(BEFORE_MIDNIGHT_MS)
    broker.open()
    broker.write(300)
    settings = {**COLLECTS, "seal.interval_ms": 1000}
    first = Daemon(
        tmp_path, broker.options.store_dir, url, name="first", command=STOPPING,
        environment={STOP_VARIABLE: str(int(point))}, **settings,
    )  # fmt: skip
    second = Daemon(tmp_path, broker.options.store_dir, url, name="second", **settings)
    first.start()
    wait_for(lambda: stopped(first), "it stops in the middle of a seal")
    broker.write(200)
    second.start("--take-over")

    def sealed() -> bool:
        view = opened(url)
        levels = {item.level for item in view.state.objects() if item.references}
        return levels == {2} and compare(view, broker.oracle).readable == 500

    second.wait_until(sealed, "everything sealed by the other one")
    first.resume()
    assert first.wait() == FENCED, first.output()
    assert second.stop() == 0
    view = opened(url)
    assert compare(view, broker.oracle).good
    report = Verifier(view).run(deep=True)
    assert report.sound, report.damage
    needed = [parse(item.path) for item in view.state.objects() if item.references]
    assert {made.epoch for made in needed if isinstance(made, SegmentKey)} == {2}
    there = len([path for path in archive.rglob("*.parquet") if path.is_file()])
    assert there == len(needed) + 1, "what the first one made is there, and nobody refers to it"
    for _ in range(3):
        assert second.maintain() == 0, second.output()
        a_grace_later(archive)
    assert second.maintain() == 0, second.output()
    assert len([path for path in archive.rglob("*.parquet") if path.is_file()]) == len(needed)
    assert compare(opened(url), broker.oracle).good
    broker.close()
