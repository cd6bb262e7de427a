"""``tiered run`` as a child process: started, asked, stopped, killed, paused and crashed at a numbered point.

::

    daemon = Daemon(work, store, archive, **{"dispatch.inline_bytes": 0})
    assert daemon.once(crash=CrashPoint.AFTER_COMMIT) == CRASHED      # or once() == 0
    with daemon.running():
        daemon.wait_archived(end)
        daemon.kill()
"""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.process import HURRIED, PATIENCE, TIERED, Child
from tests.kit.warm import IN_A_HURRY
from tiered.crashpoint import Point
from tiered.daemon.crashing import CRASH_VARIABLE
from tiered.daemon.portfile import WEB_PORT_FILE

CRASHED = 137
START_SECONDS = 60.0

FAST: Mapping[str, object] = {
    "web.port": 0,
    "log.format": "json",
    "hold.max_disk_percent": 99,
    "source.poll_interval_ms": 5,
    "source.confirm_reread_ms": 30,
    "source.restart_check_ms": 50,
    "dispatch.group_commit_interval_ms": 50,
    "archive.resend_wait_ms": 20,
    "archive.takeover_wait_ms": 0,
}
"""Settings that make a daemon act within milliseconds."""

CALM: Mapping[str, object] = {"source.poll_interval_ms": 50, "dispatch.group_commit_interval_ms": 250}
"""Of one that runs on beside all that a test measures or waits for: a commit costs 7 ms of CPU, and a broker that hands out by
POP, or is sent to, writes all the time."""

SMALL_FLUSHES: Mapping[str, object] = {"dispatch.group_commit_bytes": 65_536, "dispatch.block_bytes": 8192}
"""Many commits of little data."""


class Pages:
    """Questions to a process that answers over HTTP on the port that it writes to a file."""

    @property
    def port_file(self) -> Path:
        """Where the process writes its HTTP port."""
        raise NotImplementedError

    def ask(self, path: str, timeout: float = 5.0) -> tuple[int, bytes]:
        """Status code and body of a page; (0, b"") while nobody answers."""
        try:
            port = int(self.port_file.read_text())
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except (OSError, ValueError):
            return 0, b""

    def ready(self) -> bool:
        """Whether ``/readyz`` is 200."""
        return self.ask("/readyz")[0] == 200

    def status(self) -> dict[str, Any]:
        """``/status``; empty while nobody answers."""
        code, body = self.ask("/status")
        return dict(json.loads(body)) if code == 200 else {}

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample of ``/metrics``; ``None`` if it is not there."""
        wanted = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        for line in self.ask("/metrics")[1].decode().splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == wanted:
                return float(value)
        return None


class Daemon(Pages):
    """One daemon: its state directory, its settings, its process when it runs."""

    def __init__(
        self,
        work: Path,
        store: Path,
        archive: str,
        *,
        name: str = "daemon",
        state: Path | None = None,
        environment: Mapping[str, str] | None = None,
        command: tuple[str, ...] = TIERED,
        fork: bool = True,
        **settings: object,
    ) -> None:
        """``fork``: where ``command`` and ``environment`` allow it, the process is forked from a warm one (``warm.py``)."""
        self.store = store
        self.archive = archive
        self.state = state or work / f"{name}-state"
        self.log = work / f"{name}.log"
        self.settings: dict[str, object] = {
            **FAST,
            "hold.directory": str(work / f"{name}-hold"),
            **settings,
        }
        self._environment = {**(environment or {}), **(IN_A_HURRY if command == HURRIED else {})}
        self._command = command
        self._fork = fork and command in (TIERED, HURRIED)
        self._child: Child | None = None

    # ---- process

    def start(self, *flags: str, crash: Point | None = None, times: int = 1, ready: bool = True) -> Daemon:
        """Start it; ``ready`` waits until ``/readyz`` says so. ``crash``: end like ``kill -9`` at that point."""
        self.port_file.unlink(missing_ok=True)
        self._child = self._spawn(flags, crash, times)
        if ready:
            self.wait_until(self.ready, "ready")
        return self

    def once(
        self,
        *flags: str,
        crash: Point | None = None,
        times: int = 1,
        seconds: float = 60.0,
    ) -> int:
        """``run --once`` to its end; the exit code."""
        self._child = self._spawn(("--once", *flags), crash, times)
        return self.wait(seconds)

    def maintain(
        self,
        *flags: str,
        crash: Point | None = None,
        times: int = 1,
        seconds: float = 60.0,
    ) -> int:
        """``maintain --once`` on this daemon's state directory, to its end; the exit code."""
        self._child = self._spawn(("--once", *flags), crash, times, verb="maintain")
        return self.wait(seconds)

    def _spawn(self, flags: tuple[str, ...], crash: Point | None, times: int, *, verb: str = "run") -> Child:
        sets = [part for key, value in self.settings.items() for part in ("--set", f"{key}={_text(value)}")]
        places = ("--store", str(self.store), "--archive", self.archive, "--state", str(self.state))
        environment = dict(self._environment)
        if crash is not None:
            environment[CRASH_VARIABLE] = f"{int(crash)}:{times}"
        words = (*self._command, verb, *places, *sets, *flags)
        return Child("daemon", words, self.log, environment, fork=self._fork)

    @contextmanager
    def running(self, *flags: str, ready: bool = True) -> Iterator[Daemon]:
        """Started for the block; killed at its end if it still runs."""
        try:
            yield self.start(*flags, ready=ready)
        finally:
            self.kill()

    @property
    def child(self) -> Child:
        """The process last started."""
        assert self._child is not None, "the daemon was never started"
        return self._child

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.running

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end; the exit code."""
        return self.child.wait(seconds)

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM, and the exit code."""
        self.child.send(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> None:
        """kill -9, also when it is paused; fine if it is gone."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.child.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.child.send(signal.SIGCONT)

    def output(self) -> str:
        """What the process last started wrote."""
        return self.child.output(100_000)

    def said(self, words: str) -> bool:
        """Whether its log holds ``words``."""
        return words in self.output()

    # ---- questions

    @property
    def port_file(self) -> Path:
        """Where the process writes its HTTP port."""
        return self.state / WEB_PORT_FILE

    def wait_until(self, done: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Poll until ``done``; an error with the log's end if the process ends first or time is up."""
        self.child.wait_until(done, seconds, what)

    def wait_archived(self, end: int, seconds: float = START_SECONDS) -> None:
        """Wait until everything below the physical offset ``end`` is proven."""
        self.wait_until(
            lambda: (self.status().get("proven_offset") or 0) >= end, f"archived up to {end}", seconds
        )

    def rss_bytes(self) -> int:
        """Resident memory of the process now."""
        return _proc_kib(self.child.pid, "VmRSS") * 1024

    def peak_rss_bytes(self) -> int:
        """Most resident memory the process ever had."""
        return _proc_kib(self.child.pid, "VmHWM") * 1024


def wait_for(done: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Poll every 20 ms until ``done``; ``AssertionError`` when time is up."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"{what}: not seen within {seconds * PATIENCE:g} s"
        time.sleep(0.02)


def _proc_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise LookupError(field)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
