"""Opening and stopping when the archive's place is empty or the store is away."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.kit.daemonproc import SMALL_FLUSHES, Daemon, wait_for
from tests.kit.faultbroker import FaultBroker
from tests.kit.ports import free_block

REFUSED = 3


def test_a_vanished_archive_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    """An unmounted disk leaves an empty directory: starting over there would release the holds of what only the old one has."""
    broker = FaultBroker.started(tmp_path / "store", 200)
    archive = tmp_path / "archive"
    daemon = Daemon(tmp_path, tmp_path / "store", f"file://{archive}", **SMALL_FLUSHES)
    assert daemon.once() == 0
    shutil.move(archive, tmp_path / "unmounted")
    archive.mkdir()
    broker.write(50)
    assert daemon.once() == REFUSED
    assert daemon.said("the archive that this daemon wrote is not there any more")
    assert not any(archive.rglob("archive.json"))
    shutil.rmtree(archive)
    shutil.move(tmp_path / "unmounted", archive)
    assert daemon.once() == 0
    broker.close()


def test_a_stop_is_heard_while_the_store_is_away(tmp_path: Path) -> None:
    broker = FaultBroker.started(tmp_path / "store", 100)
    port = free_block()
    daemon = Daemon(
        tmp_path,
        tmp_path / "store",
        f"s3://bucket/archive?endpoint=http://127.0.0.1:{port}&region=us-east-1",
        **{**SMALL_FLUSHES, "store.access_key_id": "a", "store.secret_access_key": "b", "store.attempts": 1},
    )
    (daemon.state / "metadata").mkdir(parents=True)  # as after an earlier life here: the store is waited for
    with daemon.running(ready=False):
        wait_for(lambda: daemon.port_file.exists() and daemon.said("trying again"), "a first failed try")
        assert daemon.ask("/healthz")[0] == 200
        assert daemon.ask("/readyz")[0] == 503
        lag = daemon.metric("tiered_lag_bytes")
        assert lag is None or lag != lag, "no number may look like no lag before anything is known"
        daemon.child.send(signal.SIGTERM)
        assert daemon.wait(10) == 0
    broker.close()
