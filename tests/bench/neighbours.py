"""What a user would pick instead of the gateway: HAProxy as a plain TCP proxy before the same broker.

RocketMQ's own Proxy is ``tests.kit.proxy``. HAProxy is Debian's package: the one on PATH, or the package and the libraries that
it names, from the archives that apt is configured for, unpacked into the cache beside the other counterparts. Without either
it is not there, and the benchmark says so by name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit import cache, remoting
from tests.kit.ports import free_block
from tests.kit.process import Child
from tiered.codec.remoting.frame import RESPONSE, Command, FrameReader, decode_command, encode_command

ROUTE_OF_TOPIC = 105
_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
_NAME = "haproxy"
_START_SECONDS = 20.0
_CONFIGURATION = """
defaults
    mode tcp
    timeout connect 3s
    timeout client 10m
    timeout server 10m
listen broker
    bind 127.0.0.1:{port}
    server broker {broker}
"""


class Absent(Exception):
    """A neighbour that is not on this machine and could not be fetched; the text says why."""


def haproxy_command() -> tuple[list[str], dict[str, str]]:
    """How HAProxy is called, and the environment for it. Raises ``Absent``."""
    if found := shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy"):
        return [found], {}
    unpacked = cache.root() / _NAME
    with cache.locked(_NAME):
        if not unpacked.exists():
            _fetch(unpacked)
    libraries = {str(path.parent) for path in unpacked.rglob("*.so*")}
    return [str(unpacked / "usr" / "sbin" / "haproxy")], {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def _fetch(unpacked: Path) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=unpacked.parent, prefix="part-") as part:
            quiet = {"check": True, "cwd": part, "capture_output": True, "timeout": 300}
            subprocess.run(["apt-get", "download", *_PACKAGES], **quiet)  # type: ignore[call-overload]
            for package in sorted(Path(part).glob("*.deb")):
                subprocess.run(["dpkg", "-x", str(package), f"{part}/all"], **quiet)  # type: ignore[call-overload]
            os.replace(f"{part}/all", unpacked)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", b"") or b""
        raise Absent(f"apt-get download haproxy: {error} {said.decode(errors='replace')[-300:]}") from error


class HaProxy:
    """HAProxy before one broker, and a name server that sends clients there. Leaving the ``with`` block ends both."""

    def __init__(self, broker: str, name_server: str, work: Path) -> None:
        """``broker``, ``name_server``: ``host:port``. Raises ``Absent``."""
        self._command, self._environment = haproxy_command()
        self._broker = broker
        self._work = work
        self._port = free_block()
        self._names = _RouteServer(name_server, broker, f"127.0.0.1:{self._port}")
        self._child: Child | None = None

    @property
    def address(self) -> str:
        """Of the name server that names HAProxy as the broker."""
        return self._names.address

    @property
    def pid(self) -> int:
        """Of the process that carries the bytes."""
        assert self._child is not None
        return self._child.pid

    @property
    def version(self) -> str:
        """As it says itself."""
        said = subprocess.run(
            [*self._command, "-v"],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = re.search(r"version (\S+)", said)
        return found[1] if found else "of an unknown version"

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        file = self._work / "haproxy.cfg"
        file.write_text(_CONFIGURATION.format(port=self._port, broker=self._broker))
        self._child = Child(
            "haproxy", [*self._command, "-db", "-f", str(file)], self._work / "haproxy.out", self._environment
        )
        self._child.wait_until(self._answers, _START_SECONDS, "its port")
        self._names.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._names.close()
        if self._child is not None:
            self._child.kill()

    def _answers(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), 1).close()
            return True
        return False


class _RouteServer:
    """Answers routes as the real name server does, with another address of the broker; other codes with an error.

    It is asked some ten times in a run. One thread for each connection.
    """

    def __init__(self, name_server: str, real: str, instead: str) -> None:
        self._name_server = name_server
        self._real, self._instead = real, instead
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader(1 << 20)
        with suppress(OSError):
            while data := connection.recv(1 << 16):
                for frame in reader.feed(data):
                    connection.sendall(b"".join(encode_command(self._answer(decode_command(frame)))))

    def _answer(self, request: Command) -> Command:
        answer = Command(code=1, opaque=request.opaque, flag=RESPONSE, remark="only routes are answered here")
        if request.code == ROUTE_OF_TOPIC:
            real = remoting.request(self._name_server, request.code, dict(request.ext))
            answer.code, answer.remark = real.code, real.remark
            quoted = json.dumps(self._real).encode(), json.dumps(self._instead).encode()
            answer.body = memoryview(real.body.replace(*quoted))
        return answer
