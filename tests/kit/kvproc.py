"""``tiered kv serve`` as a child process beside a real broker: started, asked, killed, paused, emptied.

::

    view = ViewProcess(work, broker, "one").start()
    view.values().put("counters", b"k", b"v")
    view.kill(); view.start()

Its HTTP port is chosen once, so that a view that was killed comes back where its clients look for it.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Protocol

from tests.kit.daemonproc import START_SECONDS, TIERED, Pages
from tests.kit.kvhttp import HttpValues
from tests.kit.ports import free_port
from tests.kit.process import Child
from tiered.daemon.portfile import WEB_PORT_FILE


class Beside(Protocol):
    """Where a view runs: a broker's store, and its address."""

    @property
    def store_dir(self) -> Path:
        """``storePathRootDir``."""
        ...

    @property
    def address(self) -> str:
        """``host:port``."""
        ...


class ViewProcess(Pages):
    """One view: its settings, its process when it runs. ``lives``: how often it was started."""

    def __init__(
        self, work: Path, broker: Beside, name: str, *, anew: bool = False, **settings: object
    ) -> None:
        """``anew``: a program loaded anew, not forked."""
        self.name = name
        self.state = work / f"{name}-kv"
        self.log = work / f"{name}.log"
        self.address = f"127.0.0.1:{free_port()}"
        self.lives = 0
        self._store = broker.store_dir
        self._anew = anew
        self.settings: dict[str, object] = {
            "log.format": "json",
            "kv.state_directory": str(self.state),
            "kv.http_listen": self.address,
            "kv.web_listen": "127.0.0.1:0",
            "kv.broker_address": broker.address,
            **settings,
        }
        self._child: Child | None = None
        self._asked: list[HttpValues] = []

    @property
    def shown_by(self) -> str:
        """This life of it: what it shows by ANY does not go back."""
        return f"{self.name}, life {self.lives}"

    @property
    def port_file(self) -> Path:
        """Where the process writes the port of its health."""
        return self.state / WEB_PORT_FILE

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.running

    def values(self, seconds: float = 30.0) -> HttpValues:
        """Its verbs, until ``end``."""
        self._asked.append(HttpValues(self.address, seconds))
        return self._asked[-1]

    def beside(self, broker: Beside) -> None:
        """From its next start on it reads another broker's log."""
        self._store = broker.store_dir

    def start(self, *, ready: bool = True) -> ViewProcess:
        """Start it; ``ready``: and wait until it has applied the log."""
        self.lives += 1
        sets = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        command = (*TIERED, "kv", "serve", "--store", str(self._store), *sets)
        self.port_file.unlink(missing_ok=True)
        self._child = Child(f"view {self.name}", command, self.log, fork=not self._anew)
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until it says so."""
        assert self._child is not None
        self._child.wait_until(self.ready, START_SECONDS, "ready")

    def kill(self) -> None:
        """kill -9, also when it is paused; fine if it is gone."""
        if self._child is not None:
            self._child.kill()

    def end(self) -> None:
        """Kill it, and end all connections to it."""
        self.kill()
        for values in self._asked:
            values.close_all()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._child is not None
        self._child.send(signal.SIGTERM)
        return self._child.wait(30)

    def pause(self) -> None:
        """SIGSTOP."""
        assert self._child is not None
        self._child.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._child is not None
        self._child.send(signal.SIGCONT)

    def empty(self) -> None:
        """Delete its store, while it does not run."""
        assert not self.alive
        shutil.rmtree(self.state, ignore_errors=True)

    def output(self) -> str:
        """What the process last started wrote."""
        return "" if self._child is None else self._child.output(100_000)
