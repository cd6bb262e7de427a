"""``tiered gateway`` as a child process between the clients of a test and a real broker.

::

    with Gateway(work, name_server.address, archive.url, environment=archive.environment).running() as gateway:
        client.through(gateway.address).run("push", topic=…, group=…)

Its ports are chosen once, so that a gateway that was killed comes back where its clients look for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kit import remoting
from tests.kit.daemonproc import TIERED, Pages, wait_for
from tests.kit.ports import BLOCK, free_block
from tests.kit.process import HURRIED, Child
from tests.kit.warm import IN_A_HURRY
from tiered.daemon.portfile import GATEWAY_WEB_PORT_FILE

START_SECONDS = 60.0


class Gateway(Pages):
    """One gateway: its settings, its process when it runs."""

    def __init__(
        self,
        work: Path,
        name_server: str,
        archive: str,
        *,
        name: str = "gateway",
        environment: Mapping[str, str] | None = None,
        waits: bool = False,
        program: Sequence[str] = TIERED,
        **settings: object,
    ) -> None:
        """``waits``: it counts as started when its archive is open, too; ``program``: another one than the command as it is."""
        self._program = program
        self._waits = waits
        self.port = free_block()
        self.archive = archive
        self.log = work / f"{name}.log"
        self.state = work / f"{name}-state"
        self.settings: dict[str, object] = {
            "log.format": "json",
            "gateway.namesrv_upstream": name_server,
            "gateway.namesrv_listen": self.address,
            "gateway.broker_listen_ports": f"{self.port + 3}-{self.port + BLOCK - 1}",
            "gateway.state_directory": str(self.state),
            "gateway.web_listen": "127.0.0.1:0",
            "fetch.follow_ms": 200,
            **settings,
        }
        self._environment = {**(environment or {}), **(IN_A_HURRY if program == HURRIED else {})}
        self._child: Child | None = None

    @property
    def address(self) -> str:
        """Of its name-server front: the one thing that clients change."""
        return f"127.0.0.1:{self.port}"

    @property
    def short_cut(self) -> bool:
        """Whether it answers pulls deep below the broker's begin without asking the broker about each."""
        outside = os.environ.get("TIERED_GATEWAY_COLD_RECHECK_MS", "1000")
        return int(str(self.settings.get("gateway.cold_recheck_ms", outside))) > 0

    def archive_open(self) -> bool:
        """Whether it has opened the archive."""
        return self.status().get("archive") == "open"

    @property
    def port_file(self) -> Path:
        """Where the process writes the port of its own pages."""
        return self.state / GATEWAY_WEB_PORT_FILE

    @property
    def child(self) -> Child:
        """The process last started."""
        assert self._child is not None, "the gateway was never started"
        return self._child

    def launch(self) -> Gateway:
        """Start it, and wait for nothing."""
        sets = [part for key, value in self.settings.items() for part in ("--set", f"{key}={_text(value)}")]
        command = (*self._program, "gateway", "--archive", self.archive, *sets)
        self.port_file.unlink(missing_ok=True)
        self._child = Child(
            "gateway", command, self.log, self._environment, fork=self._program in (TIERED, HURRIED)
        )
        return self

    def start(self) -> Gateway:
        """Start it and wait until its name-server front answers from behind."""
        self.launch().child.wait_until(self.answers, START_SECONDS, "its first answer")
        if self._waits:
            self.child.wait_until(self.ready, START_SECONDS, "its archive")
        return self

    @contextmanager
    def running(self) -> Iterator[Gateway]:
        """Started for the block; killed at its end if it still runs."""
        try:
            yield self.start()
        finally:
            self.kill()

    def answers(self) -> bool:
        """Whether a request for the cluster comes back."""
        try:
            return remoting.request(self.address, remoting.CLUSTER).code == 0
        except OSError:
            return False

    def stop(self, seconds: float = 30.0) -> None:
        """SIGTERM, and wait."""
        self.child.stop(seconds)

    def kill(self) -> None:
        """kill -9; fine if it is gone."""
        if self._child is not None:
            self._child.kill()

    def broker(self, topic: str) -> str:
        """Address of the broker front that it hands out for a topic. As any client, this asks again."""
        found: set[str] = set()

        def told() -> bool:
            found.update(remoting.route_addresses(self.address, topic))
            return bool(found)

        wait_for(told, f"a route of {topic}", 10)
        (address,) = found
        return address

    def output(self) -> str:
        """What the process last started wrote."""
        return self.child.output(200_000)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
