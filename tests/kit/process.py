"""Child processes of the kit: started with their output in a file, ended by process id and never by name."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.kit.warm import WARM, Forked, can_fork

TIERED = (sys.executable, "-m", "tiered.cli.main")
"""The command, loaded anew."""
HURRIED = (sys.executable, "-m", "tests.kit.hurried")
"""The same in a hurry (``hurried.py``)."""
_alive: set[subprocess.Popen[bytes] | Forked] = set()
_scratch: set[Path] = set()


class Scratch:
    """A directory for what a JVM leaves behind: it unpacks libraries and keys into ``java.io.tmpdir`` and never cleans up."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> Path:
        """The directory, empty or as it was left."""
        self.path.mkdir(parents=True, exist_ok=True)
        _scratch.add(self.path)
        return self.path

    def remove(self) -> None:
        """Remove it with everything in it, once the child is gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        _scratch.discard(self.path)

    @property
    def java_option(self) -> str:
        """What tells a JVM to use it."""
        return f"-Djava.io.tmpdir={self.path}"


PATIENCE = 3
"""How many times as long as on a quiet machine anything waited for may take: such bounds tell what hangs, not what is slow."""


class ChildError(Exception):
    """A child process ended by itself, or did not become ready; the text ends with its last output."""


class Child:
    """One child process; its output is appended to ``log``."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        fork: bool = False,
    ) -> None:
        """``fork``: ``command`` is ``TIERED`` and its words, and need not be a program loaded anew."""
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        own = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | Forked
        with open(log, "ab") as output:
            if fork and can_fork(environment or {}):
                self._process = WARM.start(command[len(TIERED) :], output.fileno(), own)
            else:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=own
                )
        _alive.add(self._process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def output(self, last_bytes: int = 4000) -> str:
        """The end of what the process wrote since it was started."""
        with open(self.log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - last_bytes))
            return file.read().decode(errors="replace")

    def wait_until(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        """Poll ``ready`` every 50 ms; ChildError when the process ends first or the time is up."""
        deadline = time.monotonic() + seconds * PATIENCE
        while not ready():
            if not self.running:
                code = self._process.returncode
                raise ChildError(f"{self.name} ended with {code} before {what}:\n{self.output()}")
            if time.monotonic() > deadline:
                raise ChildError(
                    f"{self.name}: {what} not seen within {seconds * PATIENCE:.0f} s:\n{self.output()}"
                )
            time.sleep(0.05)

    def wait(self, seconds: float) -> int:
        """Wait for the end and return the exit code; ChildError when the time is up (the process is then killed)."""
        try:
            code = self._process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildError(
                f"{self.name} did not end within {seconds * PATIENCE:.0f} s:\n{self.output()}"
            ) from None
        _alive.discard(self._process)
        return code

    def send(self, number: signal.Signals) -> None:
        """Send a signal (SIGSTOP and SIGCONT for pauses) if the process still runs."""
        if self.running:
            self._process.send_signal(number)

    def stop(self, seconds: float = 60) -> None:
        """Ask it to end (SIGTERM) and wait."""
        self.send(signal.SIGTERM)
        self.wait(seconds)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait()
        _alive.discard(self._process)


@atexit.register
def _end_all() -> None:
    for process in list(_alive):
        if process.poll() is None:
            process.kill()
            process.wait()
    WARM.end()
    for path in list(_scratch):
        shutil.rmtree(path, ignore_errors=True)
