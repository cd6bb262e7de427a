"""``tiered serve`` as a child process: a read node over an archive, started, asked, killed, paused.

::

    with ReadNode(work, archive.url, environment=archive.environment).running() as node:
        scene.gateway(**{"gateway.read_nodes": [node.address]})

Its port is chosen once, so that a node that was killed comes back where gateways look for it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kit.daemonproc import START_SECONDS, TIERED, Pages
from tests.kit.ports import free_port
from tests.kit.process import Child
from tests.kit.warm import IN_A_HURRY
from tiered.daemon.portfile import WEB_PORT_FILE


class ReadNode(Pages):
    """One read node: its settings, its process when it runs."""

    def __init__(
        self,
        work: Path,
        archive: str,
        name: str,
        *,
        environment: Mapping[str, str] | None = None,
        fork: bool = True,
        hurried: bool = False,
        **settings: object,
    ) -> None:
        """``fork``: from a warm process, whose memory is then its own, too; ``hurried``: as ``hurried.py`` has it, forked."""
        self._fork = fork
        self.address = f"127.0.0.1:{free_port()}"
        self.log = work / f"{name}.log"
        self.state = work / f"{name}-state"
        self.settings: dict[str, object] = {
            "log.format": "json",
            "serve.listen": self.address,
            "serve.web_listen": "127.0.0.1:0",
            "serve.state_directory": str(self.state),
            **settings,
        }
        self._archive = archive
        self._environment = {**(environment or {}), **(IN_A_HURRY if hurried else {})}
        self._child: Child | None = None

    @property
    def port_file(self) -> Path:
        """Where the process writes the port of its pages."""
        return self.state / WEB_PORT_FILE

    @property
    def child(self) -> Child:
        """The process last started."""
        assert self._child is not None, "the node was never started"
        return self._child

    def launch(self) -> ReadNode:
        """Start it, and wait for nothing."""
        sets = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        self.port_file.unlink(missing_ok=True)
        command = (*TIERED, "serve", "--archive", self._archive, *sets)
        self._child = Child("node", command, self.log, self._environment, fork=self._fork)
        return self

    def start(self) -> ReadNode:
        """Start it and wait until it is ready to read."""
        self.launch().child.wait_until(self.ready, START_SECONDS, "its archive")
        return self

    @contextmanager
    def launched(self) -> Iterator[ReadNode]:
        """Launched for the block; killed at its end if it still runs."""
        try:
            yield self.launch()
        finally:
            self.kill()

    @contextmanager
    def running(self) -> Iterator[ReadNode]:
        """Started for the block; killed at its end if it still runs."""
        with self.launched():
            self.child.wait_until(self.ready, START_SECONDS, "its archive")
            yield self

    def stop(self, seconds: float = 30.0) -> None:
        """SIGTERM, and wait."""
        self.child.stop(seconds)

    def kill(self) -> None:
        """kill -9; fine if it is gone."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """SIGSTOP: it hangs instead of dying."""
        self.child.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.child.send(signal.SIGCONT)

    def announced(self) -> bool:
        """Whether it has said in the membership that it is live."""
        said = self.status().get("membership") or {}
        return bool(said.get("state") == "live")

    def given(self) -> float:
        """Reads that it answered with messages."""
        return self.metric("tiered_node_answers_total", status="found") or 0.0
