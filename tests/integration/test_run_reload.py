"""SIGHUP to a running daemon: it goes on archiving, and retention follows the file as it is now."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import Daemon, wait_for


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    assert tiered("gen", "--store", tmp_path / "store", "--messages", 200).code == 0
    file = tmp_path / "tiered.toml"
    file.write_text("")
    environment = {"TIERED_CONFIG": str(file)}
    made = Daemon(tmp_path, tmp_path / "store", f"file://{tmp_path}/archive", environment=environment)
    yield made
    made.kill()


def test_retention_is_taken_over_and_nothing_else(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    file = tmp_path / "tiered.toml"
    file.write_text('[retain]\nkeep_ms = "9d"\n[maintenance]\nmerge_interval_ms = 5000\n')
    daemon.child.send(signal.SIGHUP)
    wait_for(lambda: daemon.said("retention follows the settings as they are now"), "the new settings")
    assert "retain.keep_ms" in daemon.log.read_text()
    wait_for(lambda: daemon.said("wait for a restart"), "what waits")
    file.write_text('[retain]\nkeep_ms = "1h"\n')
    daemon.child.send(signal.SIGHUP)
    wait_for(lambda: daemon.said("are not taken over"), "the refusal")
    assert "retain.min_age_ms" in daemon.log.read_text()
    assert daemon.ready()
    assert daemon.stop() == 0
