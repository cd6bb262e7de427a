"""An archive on the real S3 server behind a fault proxy: what the daemon gets, and what a reader beside the proxy gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.daemonproc import SMALL_FLUSHES, Daemon
from tests.kit.faultproxy import FaultProxy
from tests.kit.oracle import Oracle, Verdict, compare
from tests.kit.s3server import REGION, S3Server
from tiered.settings import Store

IMPATIENT: Mapping[str, object] = {
    **SMALL_FLUSHES,
    "store.connect_timeout_ms": 500,
    "store.read_timeout_ms": 500,
    "store.attempts": 2,
    "store.retry_base_ms": 10,
    "store.retry_max_ms": 50,
}
"""A daemon that sees a fault soon and tries again soon."""


@dataclass(frozen=True, slots=True)
class FaultyS3:
    """``url`` goes through the proxy, ``direct_url`` does not."""

    server: S3Server
    proxy: FaultProxy
    bucket: str

    @property
    def url(self) -> str:
        """The archive as the daemon reaches it."""
        return f"s3://{self.bucket}/archive?endpoint={self.proxy.url}&region={REGION}"

    @property
    def direct_url(self) -> str:
        """The archive as it is."""
        return self.server.url(self.bucket, "archive")

    @property
    def store(self) -> Store:
        """Settings of a reader."""
        return self.server.store()

    def daemon(self, work: Path, store: Path, *, name: str = "daemon", **settings: object) -> Daemon:
        """A daemon behind the proxy."""
        return Daemon(
            work,
            store,
            self.url,
            name=name,
            environment=self.server.environment(),
            **{**IMPATIENT, **settings},
        )

    def compare(self, *oracles: Oracle) -> Verdict:
        """Read the archive past the proxy."""
        return compare(self.direct_url, *oracles, store=self.store)


@contextmanager
def faulty_s3(server: S3Server, *, seed: int = 0) -> Iterator[FaultyS3]:
    """A new bucket of a running server, and a proxy before it that passes everything so far."""
    bucket = server.bucket()
    with FaultProxy(f"127.0.0.1:{server.port}", seed=seed) as proxy:
        yield FaultyS3(server, proxy, bucket)
