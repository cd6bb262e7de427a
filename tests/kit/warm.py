"""A warm process that forks ``tiered`` commands: a new one takes milliseconds instead of half a second of imports.

``python -m tests.kit.warm SOCKET`` imports the command's modules and nothing more happens in it: no thread, no store, no
session. Each connection brings one command (its words, environment and directory as JSON, its output as a descriptor) and is
answered by a process id, and at the end by the exit status. The fork is the command from ``tiered.cli.entry`` on, with its own
pid, signals, environment and exit; whoever needs a real exec (``LD_PRELOAD``, memory from zero) starts ``TIERED`` itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

VERBS = (
    "run",
    "gateway",
    "status",
    "topics",
    "queues",
    "read",
    "query",
    "verify",
    "repair",
    "replay",
    "doctor",
    "config",
    "gen",
)
MODULES = (
    "tiered.cli.main",
    *(f"tiered.cli.{verb}" for verb in VERBS),
    "tiered.provider.posix",
    "tiered.provider.s3",
    "tiered.provider.s3ranges",
    "tiered.metadata.rocksdb",
)
EXEC_ONLY = ("LD_", "PYTHON", "MALLOC_", "OPENBLAS_", "OMP_", "LC_", "LANG", "TZ")
"""Variables that act when a program is loaded, too late for a fork."""
_LENGTH = 4
IN_A_HURRY = {"TIERED_TEST_HURRIED": "1"}
"""In the environment of a command: it is ``hurried.py``'s."""


class Forked:
    """One command, with the part of ``subprocess.Popen`` that the kit uses."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or ``None`` while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; ``subprocess.TimeoutExpired`` when it is not there in time."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("tiered", timeout or 0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            told = self._connection.recv(_LENGTH)
            self._connection.close()
            if not told:
                raise RuntimeError("the warm process ended")
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(told, "big"))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


class Warm:
    """The warm process of this one, started when first asked. Tests enable it; benchmarks and demos load each process anew."""

    def __init__(self, module: str = "tests.kit.warm") -> None:
        """``module``: what the warm process runs, with the path of its socket."""
        self.enabled = False
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = ""
        self._starting = threading.Lock()  # scenes are built side by side

    def start(
        self, words: Sequence[str], output: int, environment: Mapping[str, str], *, errors: int | None = None
    ) -> Forked:
        """Fork a command with this environment, in this process's directory. Errors go to ``errors``, or ``output``."""
        connection = self._connected()
        asked = json.dumps({"words": words, "environment": dict(environment), "directory": os.getcwd()})
        data = asked.encode("utf-8", "surrogateescape")
        socket.send_fds(
            connection, [len(data).to_bytes(_LENGTH, "big")], [output, output if errors is None else errors]
        )
        connection.sendall(data)
        return Forked(connection, int.from_bytes(connection.recv(_LENGTH), "big"))

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """A command to its end, and what it wrote; killed when time is up."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            made = self.start(words, out.fileno(), environment, errors=err.fileno())
            try:
                code = made.wait(timeout)
            finally:
                made.kill()
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def address(self) -> str:
        """The path of its socket; it is started if it does not run."""
        with self._starting:
            self._ready()
        return os.path.join(self._directory, "socket")

    def _connected(self) -> socket.socket:
        address = self.address()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection

    def _ready(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._directory = tempfile.mkdtemp(prefix="warm-")
        path = os.path.join(self._directory, "socket")
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", self._module, path]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        while not Path(path).exists():
            if self._process.poll() is not None:
                raise RuntimeError("the warm process did not start")
            time.sleep(0.01)

    def end(self) -> None:
        """End it, after all that it forked."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self._directory, ignore_errors=True)


WARM = Warm()


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether it is enabled, and these variables, on top of this process's own, mean the same to a fork."""
    return WARM.enabled and _at_loading({**os.environ, **environment}) == _AT_LOADING


def _at_loading(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EXEC_ONLY)}


_AT_LOADING = _at_loading(os.environ)


def serve(path: str) -> list[str]:
    """Fork for each request until killed; returns, in a fork, the words of its command."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen(64)
    os.rename(path + ".new", path)
    hear, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    parent = os.getppid()
    while os.getppid() == parent:
        readable = select.select([listener, hear], [], [], 5)[0]
        if hear in readable:
            os.read(hear, 4096)
            _reap(running)
        if listener not in readable:
            continue
        connection, _ = listener.accept()
        head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH, 2)
        data = _read(connection, int.from_bytes(head, "big"))
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (listener, connection, *running.values()):
                one.close()
            os.close(hear)
            os.close(ring)
            return _become(json.loads(data.decode("utf-8", "surrogateescape")), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        running[pid] = connection
        connection.sendall(pid.to_bytes(_LENGTH, "big"))
    os._exit(0)


def _read(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _reap(running: dict[int, socket.socket]) -> None:
    """Tell the status first, then let the process id go."""
    while running:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        _, status = os.waitpid(ended.si_pid, 0)
        connection = running.pop(ended.si_pid)
        with contextlib.suppress(OSError):  # whoever asked may be gone
            connection.sendall(status.to_bytes(_LENGTH, "big"))
        connection.close()


def _become(asked: Mapping[str, object], output: int, errors: int) -> list[str]:
    """Output, directory, environment and name of a process of its own."""
    words, environment = asked["words"], asked["environment"]
    assert isinstance(words, list)
    assert isinstance(environment, dict)
    for descriptor, number in ((output, 1), (errors, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(str(asked["directory"]))
    os.environ.clear()
    os.environ.update(environment)
    return [str(word) for word in words]


def main() -> int:
    """Warm up, serve, and be the command in each fork."""
    for name in MODULES:
        __import__(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads after imports: a fork would lose all but one")
    words = serve(sys.argv[1])
    sys.argv[:] = ["tiered", *words]
    if os.environ.items() >= IN_A_HURRY.items():
        from tests.kit.hurried import hurry

        hurry()
    from tiered.cli import entry

    return entry.main()


if __name__ == "__main__":
    sys.exit(main())
