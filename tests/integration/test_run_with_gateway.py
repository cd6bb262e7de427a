"""``tiered run`` with a gateway: one command, two processes, neither of which the other can bring down."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import Daemon, wait_for
from tests.kit.ports import free_block


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    assert tiered("gen", "--store", tmp_path / "store", "--messages", 200).code == 0
    port = free_block()
    made = Daemon(
        tmp_path,
        tmp_path / "store",
        f"file://{tmp_path}/archive",
        **{
            "gateway.namesrv_upstream": f"127.0.0.1:{port}",  # nobody listens there
            "gateway.namesrv_listen": f"127.0.0.1:{port + 1}",
            "gateway.web_listen": "127.0.0.1:0",
        },
    )
    yield made
    made.kill()
    if (pid := gateway_pid(made)) is not None:
        os.kill(pid, signal.SIGKILL)


def gateway_pid(daemon: Daemon) -> int | None:
    """The process that holds the gateway's lock now, if it lives."""
    try:
        pid = int((daemon.state / "gateway" / "lock").read_text().split()[0])
        os.kill(pid, 0)
    except (OSError, IndexError, ValueError):
        return None
    return pid


def wait_pid(daemon: Daemon, *, other_than: int | None = None) -> int:
    wait_for(lambda: gateway_pid(daemon) not in (None, other_than), "a gateway")
    pid = gateway_pid(daemon)
    assert pid is not None
    return pid


def test_started_again_when_it_dies_and_stopped_with_the_daemon(daemon: Daemon) -> None:
    daemon.start()
    first = wait_pid(daemon)
    os.kill(first, signal.SIGKILL)
    second = wait_pid(daemon, other_than=first)
    assert daemon.ready()
    assert daemon.said("the gateway ended; archiving goes on")
    assert daemon.stop() == 0
    assert gateway_pid(daemon) is None, second


def test_a_daemon_that_is_killed_leaves_it_and_the_next_leaves_it_alone(daemon: Daemon) -> None:
    daemon.start()
    first = wait_pid(daemon)
    daemon.kill()
    assert gateway_pid(daemon) == first
    daemon.start()
    wait_for(lambda: daemon.said("most likely another gateway"), "the refusal")
    assert gateway_pid(daemon) == first
    assert daemon.stop() == 0
    assert gateway_pid(daemon) == first


def test_none_without_its_setting_and_none_for_once(daemon: Daemon) -> None:
    assert daemon.once() == 0
    del daemon.settings["gateway.namesrv_upstream"]
    daemon.start()
    assert daemon.stop() == 0
    assert not (daemon.state / "gateway").exists()
