"""Opening and stopping when the archive's place is empty or the store is away."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from pathlib import Path

from tests.kit.daemonproc import SMALL_FLUSHES, START_SECONDS, Daemon, wait_for
from tests.kit.faultbroker import FaultBroker
from tests.kit.ports import free_block

REFUSED = 3
TRY_AGAIN = 4


def test_a_vanished_archive_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    """An unmounted disk leaves an empty directory: starting over there would release the holds of what only the old one has."""
    broker = FaultBroker.started(tmp_path / "store", 200)
    archive = tmp_path / "archive"
    daemon = Daemon(tmp_path, tmp_path / "store", f"file://{archive}", **SMALL_FLUSHES)
    assert daemon.once() == 0
    shutil.move(archive, tmp_path / "unmounted")
    archive.mkdir()
    broker.write(50)
    assert daemon.once() == TRY_AGAIN
    assert daemon.said("the archive that this daemon wrote is gone")
    with daemon.running(ready=False):  # as an init system starts it before the disk
        wait_for(lambda: daemon.port_file.exists() and daemon.said("trying again"), "a first failed try")
        assert daemon.ask("/readyz")[0] == 503
        assert not any(archive.rglob("archive.json"))
        shutil.rmtree(archive)
        shutil.move(tmp_path / "unmounted", archive)
        wait_for(lambda: daemon.ask("/readyz")[0] == 200, "the disk to be seen")
        daemon.child.send(signal.SIGTERM)
        assert daemon.wait(10) == 0
    foreign = tmp_path / "foreign"
    other = Daemon(foreign, tmp_path / "store", f"file://{foreign / 'archive'}", **SMALL_FLUSHES)
    assert other.once() == 0
    shutil.rmtree(archive)
    shutil.move(foreign / "archive", archive)
    assert daemon.once() == REFUSED
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


def test_a_stop_is_heard_while_a_request_does_not_come_back(tmp_path: Path) -> None:
    """The store takes the connection and says nothing for an hour; nothing is archived yet that could be lost."""
    broker = FaultBroker.started(tmp_path / "store", 100)
    with socket.create_server(("127.0.0.1", 0)) as hole:
        hole.settimeout(START_SECONDS)
        port = hole.getsockname()[1]
        daemon = Daemon(
            tmp_path,
            tmp_path / "store",
            f"s3://bucket/archive?endpoint=http://127.0.0.1:{port}&region=us-east-1",
            **{"store.access_key_id": "a", "store.secret_access_key": "b", "store.read_timeout_ms": 600_000},
        )
        with daemon.running(ready=False):
            asked, _ = hole.accept()
            with asked:
                began = time.monotonic()
                assert daemon.stop(60) == 0, daemon.output()
                assert time.monotonic() - began < 30
            assert daemon.said("stopped before archiving began")
            assert "Traceback" not in daemon.output()
            assert not daemon.port_file.exists()
    broker.close()
