"""Signals to a gateway's process, whose event loop has ways of its own with them: levels change live, ends are orderly."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.daemonproc import TIERED
from tests.kit.ports import free_block
from tests.kit.process import Child
from tiered.daemon.portfile import GATEWAY_WEB_PORT_FILE

SETTINGS = """
[log]
format = "json"
[gateway]
namesrv_upstream = "127.0.0.1:{dead}"
namesrv_listen = "127.0.0.1:{port}"
broker_listen_ports = "{first}-{last}"
state_directory = "{state}"
web_listen = "127.0.0.1:0"
"""


class Process:
    """A gateway without anything behind it, its settings in a file."""

    def __init__(self, work: Path) -> None:
        port = free_block()
        self.file, self.log = work / "tiered.toml", work / "gateway.log"
        self._settings = SETTINGS.format(
            dead=port + 1, port=port, first=port + 3, last=port + 6, state=work / "state"
        )
        self.write("")
        command = (*TIERED, "gateway", "--config", str(self.file), "--archive", f"file://{work}/none")
        self.child = Child("gateway", command, self.log)
        self.child.wait_until((work / "state" / GATEWAY_WEB_PORT_FILE).exists, 60, "its port")

    def write(self, more: str) -> None:
        """The file, with more in it."""
        self.file.write_text(self._settings + more)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def said(self, words: str) -> list[dict[str, Any]]:
        """Lines whose message has ``words`` in it."""
        return [line for line in self.lines() if words in str(line)]

    def hang_up(self, words: str, times: int) -> dict[str, Any]:
        """SIGHUP, and the line that says what came of it."""
        self.child.send(signal.SIGHUP)
        self.child.wait_until(lambda: len(self.said(words)) == times, 20, words)
        return self.said(words)[-1]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Process]:
    """One that runs."""
    process = Process(tmp_path)
    yield process
    process.child.kill()


def test_a_hangup_takes_over_storage_levels(gateway: Process) -> None:
    gateway.write('[fetch]\nstorage_level = "FORCE"\ntopic_storage_levels = ["Orders*=DISABLE"]\n')
    line = gateway.hang_up("storage levels", 1)
    assert (line["default"], line["topics"]) == ("FORCE", ["Orders*=DISABLE"])
    assert not gateway.said("wait for a restart")

    gateway.write('[fetch]\nstorage_level = "NOT_IN_MEM"\nthreads = 3\n')
    line = gateway.hang_up("storage levels", 2)
    assert (line["default"], line["topics"]) == ("NOT_IN_MEM", [])
    gateway.child.wait_until(lambda: bool(gateway.said("wait for a restart")), 20, "the other key")
    assert gateway.said("wait for a restart")[0]["keys"] == ["fetch.threads"]


def test_a_hangup_takes_over_read_nodes(gateway: Process) -> None:
    for times, nodes in enumerate((["127.0.0.1:1", "127.0.0.1:2"], ["127.0.0.1:2"], []), 1):
        gateway.write(f"read_nodes = {json.dumps(nodes)}\n")
        assert gateway.hang_up("read nodes", times)["nodes"] == nodes
    gateway.write('read_nodes = ["nowhere"]\n')
    assert "gateway.read_nodes" in str(gateway.hang_up("are not taken over", 1))
    assert not gateway.said("wait for a restart")


def test_what_makes_no_sense_is_said_and_not_taken_over(gateway: Process) -> None:
    gateway.write('[fetch]\nstorage_level = "SOMETIMES"\n')
    line = gateway.hang_up("are not taken over", 1)
    assert "SOMETIMES" in str(line)
    assert "fetch.storage_level" in str(line)
    assert gateway.child.running
    gateway.write('[fetch]\nstorage_level = "DISABLE"\n')
    assert gateway.hang_up("storage levels", 1)["default"] == "DISABLE"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_ends_it_in_order(gateway: Process, number: signal.Signals) -> None:
    gateway.hang_up("storage levels", 1)
    gateway.child.send(number)
    assert gateway.child.wait(20) == 0
    assert gateway.said("the gateway has stopped")
