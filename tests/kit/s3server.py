"""Real S3 servers as child processes on free loopback ports, over temporary directories.

``versitygw`` is the real counterpart (installed by ``tests/kit/install.py versitygw``); ``moto`` is one Python process that
behaves alike in most things, believes any secret, and proves nothing about races.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.kit.cache import versitygw_binary
from tests.kit.process import PATIENCE
from tiered.settings import Store

ACCESS = "test-access"
SECRET = "test-secret"
REGION = "us-east-1"
READY_SECONDS = 30.0


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class S3Server:
    """A server process: ``start``, ``stop`` (asks), ``kill`` (does not), and ``start`` again on the same port and data."""

    def __init__(self, name: str, command: Callable[[int, Path], list[str]], data: Path) -> None:
        self.name = name
        self.port = free_port()
        self.data = data
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log = data.parent / f"{data.name}.log"

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def start(self) -> S3Server:
        """Start, and wait until the port answers HTTP."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self.port, self.data), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + READY_SECONDS * PATIENCE
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} exited with {self._process.returncode}: {self.log()}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), 0.5) as connection:
                    connection.settimeout(5)
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: s3\r\nConnection: close\r\n\r\n")
                    if connection.recv(5) == b"HTTP/":
                        return self
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} did not answer within {READY_SECONDS:g} s: {self.log()}")

    def stop(self) -> None:
        """End it politely, then not; fine if it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9; the data stays, ``start`` brings it back on the same port."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log(self) -> str:
        """The end of what the process said."""
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    def client(self, **config: Any) -> Any:
        """A plain boto3 client, without retries, to look at the bucket from outside."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, **config),
        )

    def bucket(self, name: str | None = None) -> str:
        """Make a new bucket and return its name."""
        bucket = name or f"bucket-{uuid.uuid4().hex[:12]}"
        client = self.client()
        client.create_bucket(Bucket=bucket)
        client.close()
        return bucket

    def store(self, **changes: Any) -> Store:
        """The ``store`` section that reaches this server."""
        options: dict[str, Any] = {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": ACCESS,
            "secret_access_key": SECRET,
            **changes,
        }
        return Store(**options)

    def url(self, bucket: str, root: str = "") -> str:
        """An archive URL; credentials come from ``store()`` or the environment."""
        return f"s3://{bucket}/{root}?endpoint={self.endpoint}&region={REGION}"

    def environment(self) -> dict[str, str]:
        """Credentials for a child process that uses the standard chain."""
        return {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}


@contextmanager
def versitygw(directory: Path | None = None) -> Iterator[S3Server]:
    """A running versitygw over ``directory`` (default: a temporary one, removed afterwards)."""
    binary = versitygw_binary()
    if not binary.exists():
        raise FileNotFoundError(f"{binary} is missing: run python tests/kit/install.py versitygw")

    def command(port: int, data: Path) -> list[str]:
        access = ["--access", ACCESS, "--secret", SECRET, "--region", REGION]
        return [str(binary), *access, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(data)]

    with _running("versitygw", command, directory) as server:
        yield server


@contextmanager
def moto_server(directory: Path | None = None) -> Iterator[S3Server]:
    """A running moto server; its data is in its memory and gone when it stops."""

    def command(port: int, data: Path) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    with _running("moto", command, directory) as server:
        yield server


@contextmanager
def _running(
    name: str, command: Callable[[int, Path], list[str]], directory: Path | None
) -> Iterator[S3Server]:
    top = Path(tempfile.mkdtemp(prefix=f"tiered-{name}-")) if directory is None else directory
    data = top / "data"
    data.mkdir(parents=True, exist_ok=True)
    server = S3Server(name, command, data)
    try:
        yield server.start()
    finally:
        server.stop()
        if directory is None:
            shutil.rmtree(top, ignore_errors=True)
