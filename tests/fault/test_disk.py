"""Full and read-only disks, and a hold that outgrows its budget while the store is down (S1, S2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.daemonproc import SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import KIB, FaultBroker
from tests.kit.fulldisk import MIB, SmallDisk, small_disk
from tests.kit.oracle import compare, opened
from tiered.archive.read.verify import Verifier

UNAVAILABLE = 4


def make(
    work: Path, disk: SmallDisk, archive: Path, *, state: Path | None = None, **settings: object
) -> Daemon:
    return Daemon(
        work,
        work / "store",
        f"file://{archive}",
        state=state,
        command=disk.command,
        **{**SMALL_FLUSHES, "state.cache_bytes": MIB, **settings},
    )


def resends(daemon: Daemon) -> float:
    return daemon.metric("tiered_commit_resends_total") or 0


@pytest.mark.parametrize("mount", [True, False], ids=["disk", "shim"])
@pytest.mark.parametrize("inline_bytes", [0, MIB])
def test_archive_disk_full_and_freed(tmp_path: Path, mount: bool, inline_bytes: int) -> None:
    """Not fatal: it waits, says so, keeps the hold, and goes on when there is space."""
    with small_disk(tmp_path / "disk", 4 * MIB, mount=mount) as disk:
        broker = FaultBroker.started(tmp_path / "store", 100)
        settings = {"dispatch.inline_bytes": inline_bytes, "watchdog.unavailable_ms": 300}
        daemon = make(tmp_path, disk, disk.path / "archive", **settings)
        with daemon.running():
            daemon.wait_archived(broker.physical_offset)
            disk.fill()
            proven = broker.physical_offset
            broker.write(1500)
            daemon.wait_until(lambda: resends(daemon) >= 2, "the full disk is felt")
            assert daemon.status()["proven_offset"] < broker.physical_offset
            assert daemon.ask("/healthz")[0] == 200
            daemon.wait_until(lambda: not daemon.ready(), "a write that fails for long is no ready daemon")
            problem = daemon.status()["problem"]
            assert problem.startswith("writes have been failing for")
            assert "No space left" in problem or "full" in problem, problem
            daemon.wait_until(lambda: daemon.metric("tiered_unavailable") == 1, "a metric says so")
            held = len(list((tmp_path / "daemon-hold").iterdir()))
            while broker.min_offset() <= proven:
                broker.expire()
            broker.write(300)
            daemon.wait_until(
                lambda: len(list((tmp_path / "daemon-hold").iterdir())) > held, "new files are held meanwhile"
            )
            disk.free()
            daemon.wait_archived(broker.physical_offset)
            daemon.wait_until(daemon.ready, "ready again")
            assert daemon.metric("tiered_unavailable") == 0
            assert daemon.stop() == 0, daemon.output()
        for line in ("writes are failing", "writes get through again"):
            assert daemon.output().count(line) == 1, daemon.output()
        archive = opened(daemon.archive)
        verdict = compare(archive, broker.oracle)
        assert verdict.good, verdict
        assert (verdict.in_gaps, verdict.readable) == (0, 1900)
        assert Verifier(archive).run(deep=True).sound
        broker.close()


@pytest.mark.parametrize("metadata", ["json", "rocksdb"])
def test_state_disk_full_and_freed(tmp_path: Path, metadata: str) -> None:
    """The cached fold cannot be written: the daemon waits, says why, and goes on by itself when there is space."""
    with small_disk(tmp_path / "disk", 6 * MIB) as disk:
        broker = FaultBroker.started(tmp_path / "store", 100)
        daemon = make(
            tmp_path, disk, tmp_path / "archive", state=disk.path / "state", **{"state.metadata": metadata}
        )
        with daemon.running():
            daemon.wait_archived(broker.physical_offset)
            disk.fill()
            broker.write(1500)
            if disk.mounted or metadata == "json":  # the engine writes past the shim
                daemon.wait_until(lambda: resends(daemon) >= 2, "the full disk is felt")
                assert daemon.said(str(disk.path)), daemon.output()
                assert daemon.said("No space left"), daemon.output()
            disk.free()
            daemon.wait_archived(broker.physical_offset)
            assert daemon.stop() == 0, daemon.output()
        assert "Traceback" not in daemon.output(), daemon.output()
        verdict = compare(daemon.archive, broker.oracle)
        assert verdict.good, verdict
        broker.close()


@pytest.mark.parametrize("metadata", ["json", "rocksdb"])
def test_state_disk_full_at_the_start(tmp_path: Path, metadata: str) -> None:
    """Once it is *try again*; the daemon waits, ready for nothing, and archives as soon as there is space."""
    with small_disk(tmp_path / "disk", 6 * MIB) as disk:
        broker = FaultBroker.started(tmp_path / "store", 100)
        settings = {"state.metadata": metadata}
        daemon = make(tmp_path, disk, tmp_path / "archive", state=disk.path / "state", **settings)
        assert daemon.once() == 0, daemon.output()
        broker.write(200)
        disk.fill()
        if disk.mounted and metadata == "rocksdb":  # it opens with a write, which the shim does not see
            assert daemon.once() == UNAVAILABLE, daemon.output()
            assert daemon.said("No space left"), daemon.output()
        with daemon.running(ready=False):
            words = ("trying again", "sending it again", "archiving")
            daemon.wait_until(lambda: any(map(daemon.said, words)), "it waits")
            assert daemon.alive
            disk.free()
            daemon.wait_until(lambda: daemon.said('"archiving"'), "it goes on by itself")
            assert daemon.stop() == 0, daemon.output()
        assert daemon.once() == 0, daemon.output()
        assert "Traceback" not in daemon.output(), daemon.output()
        verdict = compare(daemon.archive, broker.oracle)
        assert verdict.good, verdict
        assert verdict.readable == 300
        broker.close()


@pytest.mark.parametrize("what", ["archive", "state", "hold"])
def test_read_only_directory_is_named(tmp_path: Path, what: str) -> None:
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        store = (disk.path if what == "hold" else tmp_path) / "store"
        broker = FaultBroker.started(store, 100)
        places = {"archive": tmp_path / "archive", "state": tmp_path / "state", "hold": tmp_path / "hold"}
        places[what] = disk.path / what
        daemon = make(tmp_path, disk, places["archive"], state=places["state"])
        daemon.store = store
        daemon.settings["hold.directory"] = str(disk.path / "hold" if what == "hold" else tmp_path / "hold")
        broker.crash()
        disk.read_only()
        code = daemon.once()
        said = daemon.output()
        disk.read_only(False)
        assert code == {"archive": UNAVAILABLE, "state": 2, "hold": 3}[what], said
        assert "Traceback" not in said
        assert str(disk.path) in said
        assert "→" in said, "no hint"
        assert daemon.once() == 0, daemon.output()
        assert compare(daemon.archive, broker.oracle).good


def test_hold_over_budget_while_the_store_is_down_is_a_recorded_gap(tmp_path: Path) -> None:
    """The disk stays bounded, the loss is said when it happens, recorded, and shown to readers."""
    budget = 256 * KIB
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        broker = FaultBroker.started(tmp_path / "store", 100)
        daemon = make(tmp_path, disk, disk.path / "archive", **{"hold.max_bytes": budget})
        with daemon.running():
            daemon.wait_archived(broker.physical_offset)
            disk.fill()
            most = 0
            for _ in range(12):
                broker.write(300)
                if len(broker.bases()) > 3:
                    broker.expire(len(broker.bases()) - 3)
                broker.clock.wait(0.15)
                alone = [path.stat() for path in (tmp_path / "daemon-hold").iterdir()]
                most = max(most, sum(found.st_size for found in alone if found.st_nlink == 1))
            assert budget / 2 <= most <= budget + 2 * broker.options.file_bytes
            daemon.wait_until(
                lambda: (daemon.metric("tiered_hold_bytes") or 0) <= budget, "within the budget"
            )
            assert daemon.said("the hold is over its budget")
            disk.free()
            daemon.wait_archived(broker.physical_offset)
            assert (daemon.metric("tiered_gaps_total", kind="physical") or 0) >= 1
            assert (daemon.metric("tiered_gap_bytes_total") or 0) > 0
            assert daemon.stop() == 0, daemon.output()
        archive = opened(daemon.archive)
        verdict = compare(archive, broker.oracle)
        assert verdict.good, verdict
        assert 0 < verdict.in_gaps < verdict.messages
        assert verdict.in_gaps + verdict.readable == verdict.messages
        gaps = sum(gap.end - gap.start for gap in archive.state.gaps())
        assert gaps == verdict.in_gaps
        broker.close()
