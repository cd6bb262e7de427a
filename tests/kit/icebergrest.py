"""Iceberg's own REST catalog as a child process on a loopback port (installed by ``tests/kit/install.py iceberg-rest``)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit import cache
from tests.kit.ports import free_port
from tests.kit.process import Child

JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class RestCatalog:
    """A server: ``kill`` and ``start`` again, on its port, with what it knew; that and new tables lie in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._port = free_port()
        self._child: Child | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def uri(self) -> str:
        """What clients are told."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> RestCatalog:
        """Start it, and wait until it listens."""
        classes = f"{cache.rest_classes()}:{cache.rest_directory()}/lib/*"
        command = [*JAVA, "-cp", classes, "RestCatalog", str(self._port), str(self.directory)]
        self._child = Child("REST catalog", command, self.directory / "log")
        self._child.wait_until(self._listens, 30, "its port open")
        return self

    def kill(self) -> None:
        """kill -9; fine if it does not run."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


@contextmanager
def rest_catalog(directory: Path) -> Iterator[RestCatalog]:
    """A running one."""
    server = RestCatalog(directory)
    try:
        yield server.start()
    finally:
        server.kill()
