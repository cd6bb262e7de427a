"""Logs without secrets, the state lock, signals and systemd's datagrams."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiered.clock import ManualClock
from tiered.daemon import logs
from tiered.daemon.lock import StateLock
from tiered.daemon.notify import Notifier
from tiered.daemon.signals import Signals
from tiered.errors import Invalid, Refused, Unavailable
from tiered.settings import STARS, Log

SECRET = 'p"a\\ss/wörd+1'


@pytest.fixture
def clean_logging() -> Iterator[None]:
    """Put the process-wide logging back as it was."""
    root, own = logging.getLogger(), logging.getLogger("tiered")
    handlers, level, own_level = list(root.handlers), root.level, own.level
    yield
    root.handlers[:], root.level = handlers, level
    own.setLevel(own_level)


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.usefixtures("clean_logging")
def test_no_secret_leaves_through_a_log(form: str) -> None:
    stream = io.StringIO()
    logs.configure(Log(format=form), [SECRET, ""], stream)
    logger = logging.getLogger("tiered.provider")
    logger.info(
        "opening %s",
        SECRET,
        extra={"url": f"s3://{SECRET}@host", "inner": {"deep": SECRET}, "error": ValueError(SECRET)},
    )
    logger.info("quoted p%22a%5Css/w%C3%B6rd%2B1")
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("failed")
    text = stream.getvalue()
    assert STARS in text
    assert "wörd" not in text
    assert "w\\u00f6rd" not in text
    assert "w%C3%B6rd" not in text


@pytest.mark.usefixtures("clean_logging")
def test_json_lines_carry_fields() -> None:
    stream = io.StringIO()
    logs.configure(Log(format="json"), (), stream)
    logging.getLogger("tiered.archive.log").warning("commit %d proven", 7, extra={"seq": 7, "time": "clash"})
    logging.getLogger("tiered.archive.log").debug("hidden")
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event["message"] == "commit 7 proven"
    assert (event["level"], event["logger"], event["seq"]) == ("warning", "archive.log", 7)
    assert event["field_time"] == "clash"
    assert event["time"].endswith("Z")


@pytest.mark.usefixtures("clean_logging")
def test_a_value_cannot_forge_a_line_or_steer_a_terminal() -> None:
    stream = io.StringIO()
    logs.configure(Log(), (), stream)
    logging.getLogger("tiered").info("topic a\n2026 ERROR forged", extra={"name_": "x\x1b[31m y"})
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.usefixtures("clean_logging")
def test_configuring_again_replaces_and_sdk_debug_stays_off() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure(Log(level="debug"), (), first)
    logs.configure(Log(level="debug"), (), second)
    logging.getLogger("tiered.x").debug("once")
    logging.getLogger("botocore.auth").debug("Authorization: AWS4")
    logging.getLogger("botocore.auth").info("Authorization: AWS4")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_one_daemon_per_state(tmp_path: Path) -> None:
    first, second = StateLock(tmp_path / "state"), StateLock(tmp_path / "state")
    with first:
        assert first.held
        first.acquire()
        with pytest.raises(Refused) as caught:
            second.acquire()
        assert f"process {os.getpid()} on {socket.gethostname()}" in str(caught.value)
        assert "state.directory" in str(caught.value)
    second.acquire()
    assert second.held
    second.release()
    second.release()
    assert not second.held


def test_a_dead_owner_does_not_hold_the_lock(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pathlib\n"
        "from tiered.daemon.lock import StateLock\n"
        "StateLock(pathlib.Path(sys.argv[1])).acquire()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "lock").read_text().split()[0].isdigit()
    with StateLock(tmp_path) as lock:
        assert lock.held


def test_a_foreign_lock_file_is_not_trusted(tmp_path: Path) -> None:
    holder = StateLock(tmp_path)
    holder.acquire()
    (tmp_path / "lock").write_bytes(b"\xff\xfe evil\x1b[31m" + b"x" * 1000)
    with pytest.raises(Refused, match="unknown process"):
        StateLock(tmp_path).acquire()
    holder.release()


def test_an_unusable_state_directory_is_a_setting_to_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Invalid) as caught:
            StateLock(directory).acquire()
        assert caught.value.fields["key"] == "state.directory"


def test_a_full_disk_is_no_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with StateLock(tmp_path) as lock:
        assert lock.held, "there is no room for the owner's name, and it is locked all the same"
    (tmp_path / "lock").unlink()
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(Unavailable, match="the disk is full") as caught:
        StateLock(tmp_path).acquire()
    assert caught.value.fields["key"] == "state.directory"


def test_first_signal_stops_second_exits() -> None:
    stop, exits, names = threading.Event(), list[int](), list[str]()
    signals = Signals(stop, ManualClock(), on_first=names.append, hard_exit=exits.append)
    signals.deliver(signal.SIGTERM)
    assert stop.is_set()
    assert (names, exits) == (["SIGTERM"], [])
    signals.deliver(signal.SIGINT)
    assert (names, exits) == (["SIGTERM"], [130])


CHILD = """
import sys, threading
from tiered.clock import SystemClock
from tiered.daemon.signals import Signals
stop, clock = threading.Event(), SystemClock()
with Signals(stop, clock):
    print("up", flush=True)
    clock.wait(60, stop)
    print("stopping", flush=True)
    if sys.argv[1] == "wedged":
        clock.wait(60)
print("done", flush=True)
"""


@pytest.mark.parametrize(("mode", "code"), [("graceful", 0), ("wedged", 130)])
def test_real_signals(mode: str, code: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, mode], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "stopping\n"
        if mode == "wedged":
            child.send_signal(signal.SIGINT)
        assert child.wait(30) == code


def test_systemd_hears_of_every_state(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(10)
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2500000"})
        assert notifier.watchdog_seconds == 2.5
        notifier.ready("archiving\nbroker-a")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=archiving broker-a"
        notifier.watchdog()
        assert systemd.recv(1000) == b"WATCHDOG=1"
        notifier.status("lag 5")
        assert systemd.recv(1000) == b"STATUS=lag 5"
        notifier.extend(1.5)
        assert systemd.recv(1000) == b"EXTEND_TIMEOUT_USEC=1500000"
        notifier.stopping()
        assert systemd.recv(1000).startswith(b"STOPPING=1\n")


def test_an_abstract_socket() -> None:
    name = f"tiered-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name)
        systemd.settimeout(10)
        Notifier("@" + name).status("x")
        assert systemd.recv(100) == b"STATUS=x"


def test_nobody_listens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier.from_environment({}).ready("x")
    assert Notifier.from_environment({"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}).watchdog_seconds is None
    dead = Notifier(str(tmp_path / "absent"))
    dead.ready("x")
    dead.watchdog()
    dead.stopping()
    assert len(caplog.records) == 1
