"""The gateway as the daemon's child: started again with growing pauses, stopped with it, left alone by an error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tiered.clock import ManualClock
from tiered.daemon.config import load
from tiered.daemon.gatewaychild import GatewayChild, child_environment, command_line
from tiered.errors import Fenced

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def made(command: Sequence[str]) -> tuple[GatewayChild, ManualClock]:
    clock = ManualClock()
    return GatewayChild(command, os.environ, clock), clock


def ended(child: GatewayChild) -> None:
    deadline = time.monotonic() + 20
    while child.pid is not None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_end_is_followed_by_another_start_and_growing_pauses() -> None:
    child, clock = made((sys.executable, "-c", "raise SystemExit(3)"))
    waits = []
    for _ in range(7):
        child.step()
        ended(child)
        waits.append(child.step().wait_seconds)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    clock.advance(0)


def test_a_child_that_ran_long_starts_the_pauses_anew() -> None:
    child, clock = made(SLEEP)
    waits = []
    for _ in range(2):
        child.step()
        clock.advance(61)
        child.step()
        assert child.pid is not None
        os.kill(child.pid, 9)
        ended(child)
        waits.append(child.step().wait_seconds)
    assert waits == [1, 1]


def test_a_program_that_is_not_there_is_no_error_of_the_daemon() -> None:
    child, _ = made(("/nonexistent/tiered",))
    assert [child.step().wait_seconds for _ in range(3)] == [1, 2, 4]


def test_an_orderly_end_stops_it() -> None:
    child, _ = made(SLEEP)
    with child:
        child.step()
        pid = child.pid
        assert pid is not None
    assert child.pid is None
    assert child.step().wait_seconds is not None
    assert child.pid is None


@pytest.mark.parametrize("archived", [False, True])
def test_an_error_of_the_daemon_leaves_it_running_once_it_is_relied_on(archived: bool) -> None:
    child, _ = made(SLEEP)
    child.outlives = archived

    def fail() -> None:
        with child:
            child.step()
            raise Fenced("another writer")

    with pytest.raises(Fenced):
        fail()
    assert (child.pid is not None) == archived
    child.stop()
    child.wait()


def test_it_gets_the_daemons_settings(tmp_path: Path) -> None:
    file = tmp_path / "tiered.toml"
    file.write_text('[gateway]\nnamesrv_upstream = "a:1"\n')
    loaded = load(
        file,
        {"TIERED_LOG_LEVEL": "debug"},
        {
            "gateway.tls_upstream": "true",
            "fetch.topic_storage_levels": '["[ab]=FORCE", "B=DISABLE"]',
            "web.port": "0",
        },
    )
    words = command_line(loaded)
    assert words[1:6] == ["-m", "tiered.cli.entry", "gateway", "--config", str(file)]
    given = dict(pair.split("=", 1) for pair in words[7::2])
    assert given == {
        "gateway.tls_upstream": "true",
        "fetch.topic_storage_levels": '["[ab]=FORCE", "B=DISABLE"]',
        "web.port": "0",
    }
    again = load(file, {"TIERED_LOG_LEVEL": "debug"}, dict(given))
    assert again.settings == loaded.settings


def test_what_is_meant_for_the_daemon_alone_stays_there() -> None:
    env = {"PATH": "/bin", "NOTIFY_SOCKET": "/run/x", "TIERED_CRASH_AT": "3", "TIERED_STORE_REGION": "r"}
    assert child_environment(env, load()) == {"PATH": "/bin", "TIERED_STORE_REGION": "r"}


def test_a_secret_does_not_go_on_its_command_line() -> None:
    loaded = load(flags={"store.access_key_id": "AK", "store.secret_access_key": "tiger", "web.port": "0"})
    assert "tiger" not in " ".join(command_line(loaded))
    child = load(env=child_environment({}, loaded))
    assert child.settings.store == loaded.settings.store
