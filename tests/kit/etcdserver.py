"""A real etcd as a child process on free loopback ports, one member, over a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.cache import etcd_binary
from tests.kit.ports import free_port
from tests.kit.process import Child
from tiered.errors import Unavailable
from tiered.membership.web import JsonAnswer, JsonServers

READY_SECONDS = 30.0


class Etcd:
    """``start``, ``kill``, and ``start`` again on the same ports and data."""

    def __init__(self, directory: Path) -> None:
        self.port, self._peer = free_port(), free_port()
        self._directory = directory
        self._child: Child | None = None

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Etcd:
        """Start, and wait until it has a leader and answers. A short election makes short leases possible."""
        urls = {"client": f"http://127.0.0.1:{self.port}", "peer": f"http://127.0.0.1:{self._peer}"}
        command = [
            str(etcd_binary()), "--data-dir", str(self._directory / "data"), "--logger", "zap", "--log-level", "warn",
            "--listen-client-urls", urls["client"], "--advertise-client-urls", urls["client"],
            "--listen-peer-urls", urls["peer"], "--initial-advertise-peer-urls", urls["peer"],
            "--initial-cluster", f"default={urls['peer']}", "--heartbeat-interval", "50", "--election-timeout", "300",
            "--unsafe-no-fsync",
        ]  # fmt: skip
        self._child = Child("etcd", command, self._directory / "etcd.log")
        self._child.wait_until(self._answers, READY_SECONDS, "its answer")
        return self

    def kill(self) -> None:
        """kill -9; fine if it is gone."""
        if self._child is not None:
            self._child.kill()

    def ask(self, verb: str, body: Mapping[str, Any]) -> JsonAnswer:
        """One request of the JSON gateway."""
        servers = JsonServers("etcd", [f"http://{self.address}"], 5.0)
        try:
            return servers.ask("POST", f"/v3/{verb}", body)
        finally:
            servers.close()

    def _answers(self) -> bool:
        try:
            return self.ask("kv/range", {"key": "YQ=="}).status == 200
        except Unavailable:
            return False


@contextmanager
def etcd(directory: Path) -> Iterator[Etcd]:
    """Running for the block; killed at its end."""
    directory.mkdir(parents=True, exist_ok=True)
    server = Etcd(directory)
    try:
        yield server.start()
    finally:
        server.kill()
