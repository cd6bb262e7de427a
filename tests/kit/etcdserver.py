"""A real etcd as a child process on free loopback ports, one member, over a temporary directory; with TLS and users too."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.cache import etcd_binary
from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.process import Child
from tiered.errors import Unavailable
from tiered.membership.web import JsonAnswer, JsonServers

READY_SECONDS = 30.0


class Etcd:
    """``start``, ``kill``, and ``start`` again on the same ports and data. ``authority``: its clients speak TLS, and trust that
    one; ``token_seconds``: how long a token holds that is not used; ``asks``: clients show a certificate of the authority."""

    def __init__(
        self,
        directory: Path,
        authority: Authority | None = None,
        token_seconds: int = 300,
        *,
        asks: bool = False,
    ) -> None:
        self._authority = authority
        self._asks = asks
        self._token_seconds = token_seconds
        self.port, self._peer = free_port(), free_port()
        self._directory = directory
        self._child: Child | None = None

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where clients ask it."""
        return f"{'http' if self._authority is None else 'https'}://{self.address}"

    def with_users(self, prefix: str, **passwords: str) -> Etcd:
        """From now on only users may ask: ``root``, and these, who may read and write below ``prefix``; not ``stranger``."""
        role = {
            "name": "nodes",
            "perm": {"permType": "READWRITE", "key": _coded(prefix), "range_end": _coded(prefix[:-1] + "0")},
        }
        steps: list[tuple[str, Mapping[str, Any]]] = [
            ("role/add", {"name": "root"}),
            ("role/add", {"name": "nodes"}),
            ("role/grant", role),
        ]
        for name, password in {"root": "root", **passwords}.items():
            steps.append(("user/add", {"name": name, "password": password}))
            if name != "stranger":
                steps.append(("user/grant", {"user": name, "role": "root" if name == "root" else "nodes"}))
        for verb, body in (*steps, ("enable", {})):
            done = self.ask(f"auth/{verb}", body)
            assert done.status == 200, (verb, done)
        return self

    def start(self) -> Etcd:
        """Start, and wait until it has a leader and answers. A short election makes short leases possible."""
        urls = {"client": self.url, "peer": f"http://127.0.0.1:{self._peer}"}
        command = [
            str(etcd_binary()), "--data-dir", str(self._directory / "data"), "--logger", "zap", "--log-level", "warn",
            "--listen-client-urls", urls["client"], "--advertise-client-urls", urls["client"],
            "--listen-peer-urls", urls["peer"], "--initial-advertise-peer-urls", urls["peer"],
            "--initial-cluster", f"default={urls['peer']}", "--heartbeat-interval", "50", "--election-timeout", "300",
            "--unsafe-no-fsync", "--auth-token-ttl", str(self._token_seconds), "--bcrypt-cost", "4",
        ]  # fmt: skip
        if self._authority is not None:
            own = self._authority.issue("etcd")
            command += ["--cert-file", str(own.certificate), "--key-file", str(own.key)]
            if self._asks:
                command += ["--client-cert-auth", "--trusted-ca-file", str(self._authority.certificate)]
        self._child = Child("etcd", command, self._directory / "etcd.log")
        self._child.wait_until(self._answers, READY_SECONDS, "its answer")
        return self

    def kill(self) -> None:
        """kill -9; fine if it is gone."""
        if self._child is not None:
            self._child.kill()

    def ask(self, verb: str, body: Mapping[str, Any]) -> JsonAnswer:
        """One request of the JSON gateway."""
        trusted = None if self._authority is None else str(self._authority.certificate)
        context = ssl.create_default_context(cafile=trusted) if trusted else None
        if self._authority is not None and self._asks and context is not None:
            own = self._authority.issue("asking")
            context.load_cert_chain(own.certificate, own.key)
        servers = JsonServers("etcd", [self.url], 5.0, context=context)
        try:
            return servers.ask("POST", f"/v3/{verb}", body)
        finally:
            servers.close()

    def _answers(self) -> bool:
        try:
            return self.ask("kv/range", {"key": "YQ=="}).status in (200, 400)  # 400: only users may ask
        except Unavailable:
            return False


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def etcd(
    directory: Path, authority: Authority | None = None, token_seconds: int = 300, *, asks: bool = False
) -> Iterator[Etcd]:
    """Running for the block; killed at its end."""
    directory.mkdir(parents=True, exist_ok=True)
    server = Etcd(directory, authority, token_seconds, asks=asks)
    try:
        yield server.start()
    finally:
        server.kill()
