"""The gateway as a child of ``tiered run``: started, started again when it ends, stopped with the daemon.

Archiving never depends on it: whatever becomes of the child is a line in the log. And hot traffic never depends on archiving:
when a daemon that has archived ends by an error (another writer owns the archive, say), the child is left running; whoever
manages the processes ends it, or the next daemon finds that a gateway is there already.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.daemon.config import Loaded, env_name, keys
from tiered.daemon.crashing import CRASH_VARIABLE
from tiered.errors import Refused
from tiered.service import Next, pause

log = logging.getLogger("tiered.daemon")

LOOK_SECONDS = 0.5
HEALTHY_SECONDS = 60.0
STOP_SECONDS = 15.0
_NOT_FOR_CHILDREN = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", CRASH_VARIABLE)


def command_line(loaded: Loaded) -> list[str]:
    """``tiered gateway`` with the daemon's own settings: its file, and its flags; the environment is inherited."""
    words = [sys.executable, "-m", "tiered.cli.entry", "gateway"]
    if loaded.file is not None:
        words += ["--config", loaded.file]
    for key, origin in loaded.origins.items():
        if origin.layer == "flag" and not _is_secret(key):
            words += ["--set", f"{key}={_given(loaded, key)}"]
    return words


def child_environment(env: Mapping[str, str], loaded: Loaded) -> dict[str, str]:
    """The environment without what is meant for the daemon alone, and with secrets that came by a flag: a command line can be
    read by everybody."""
    kept = {name: value for name, value in env.items() if name not in _NOT_FOR_CHILDREN}
    flags = [key for key, origin in loaded.origins.items() if origin.layer == "flag" and _is_secret(key)]
    return kept | {env_name(key): _given(loaded, key) for key in flags}


def _is_secret(key: str) -> bool:
    return bool(keys()[key].metadata.get("secret"))


def _given(loaded: Loaded, key: str) -> str:
    section, name = key.split(".")
    return _text(getattr(getattr(loaded.settings, section), name))


class GatewayChild:
    """Keeps one ``tiered gateway`` running. ``step`` is the step of a ``Service``; it never raises.

    As a context manager: an orderly end stops the child, and so does an error, unless ``outlives`` was set: the daemon has
    archived, so clients may rely on the gateway.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], clock: Clock) -> None:
        self.outlives = False
        self._command = list(command)
        self._env = dict(env)
        self._clock = clock
        self._backoff = Backoff(1.0, 30.0)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._failures = 0
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def step(self) -> Next:
        """Start the child if there is none, with a growing pause after each end; look at it else."""
        if self._stopping:
            return pause(LOOK_SECONDS)
        if self._process is None:
            return self._start()
        code = self._process.poll()
        now = self._clock.monotonic()
        if code is None:
            if now - self._started > HEALTHY_SECONDS:
                self._failures = 0
            return pause(LOOK_SECONDS)
        self._process = None
        return self._ended(f"exit code {code}" if code >= 0 else f"signal {-code}", code)

    def stop(self) -> None:
        """Ask the child to end. From any thread; twice is harmless."""
        self._stopping = True
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    def wait(self, seconds: float = STOP_SECONDS) -> None:
        """Wait for the end of a child that was asked to; kill it when it takes too long."""
        process = self._process
        if process is None:
            return
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            log.warning("the gateway does not end; it is killed", extra={"pid": process.pid})
            process.kill()
            process.wait()

    def __enter__(self) -> GatewayChild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.outlives and not self._stopping:
            self._stopping = True
            if self.pid is not None:
                log.warning("the gateway goes on without the daemon", extra={"pid": self.pid})
            return
        self.stop()
        self.wait()

    def _start(self) -> Next:
        try:
            # A session of its own: Ctrl-C at a terminal reaches the daemon, which then stops the child.
            self._process = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return self._ended(f"it cannot be started: {error.strerror}", None)
        self._started = self._clock.monotonic()
        if self._stopping:
            self.stop()
        log.info("gateway started", extra={"pid": self._process.pid})
        return pause(LOOK_SECONDS)

    def _ended(self, why: str, code: int | None) -> Next:
        self._failures += 1
        wait = self._backoff.seconds(self._failures)
        hint = "its own log line says why"
        if code == Refused.exit_code:
            hint = "most likely another gateway of this state directory still runs; it is left alone"
        log.error(
            "the gateway ended; archiving goes on, it is started again",
            extra={"why": why, "wait": wait, "hint": hint},
        )
        return pause(wait)


def _text(value: object) -> str:
    """A value as ``--set`` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, tuple) else str(value)
    )  # a list as TOML has it
